package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns M for each malformed line and E for each entry, and the error
// that ended the log.
func read(r io.Reader) (lines string, err error) {
	format := newCombined()
	for text, err := range linesOf(r) {
		if err == nil {
			_, _, err = format.Parse(text)
		}
		switch {
		case err == nil:
			lines += "E"
		case errors.Is(err, ErrMalformed):
			lines += "M"
		default:
			return lines, err
		}
	}
	return lines, nil
}

func TestRead(t *testing.T) {
	full := line + ` "` + strings.Repeat("r", MaxLine-len(line)-len(` "" ""`)) + `" ""`
	require.Len(t, full, MaxLine)
	for name, c := range map[string]struct{ log, want string }{
		"nothing":                    {"", ""},
		"last line without an end":   {line + "\n" + line, "EE"},
		"CR LF":                      {line + "\r\n" + line + "\r\n", "EE"},
		"empty lines":                {"\n" + line + "\n\n", "MEM"},
		"longest line":               {full + "\n" + line, "EE"},
		"too long by one":            {full + "x\n" + line, "ME"},
		"too long by one with CR LF": {full + "x\r\n" + line, "ME"},
		"much too long":              {strings.Repeat(full, 3) + "\n" + line, "ME"},
	} {
		t.Run(name, func(t *testing.T) {
			for reader, r := range map[string]io.Reader{
				"plain":      strings.NewReader(c.log),
				"half reads": iotest.HalfReader(strings.NewReader(c.log)),
				"gzip":       bytes.NewReader(zip(t, c.log)),
			} {
				lines, err := read(r)
				require.NoError(t, err, reader)
				assert.Equal(t, c.want, lines, reader)
			}
		})
	}
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestReadFaults(t *testing.T) {
	broken := errors.New("broken")
	_, err := read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken, "at once")

	lines, err := read(io.MultiReader(strings.NewReader(line+"\n"+line), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken, "within a line")
	assert.Equal(t, "E", lines)

	zipped := zip(t, line+"\n")
	_, err = read(bytes.NewReader(zipped[:len(zipped)-4]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "gzip cut off")

	_, err = read(bytes.NewReader([]byte{0x1f, 0x8b, 'x'}))
	require.Error(t, err, "not gzip behind the magic")
	require.NotErrorIs(t, err, ErrMalformed)
}

// The lines are those of the whole text when it is split, however it comes.
func FuzzRead(f *testing.F) {
	f.Add("a\nb\r\n\r\nc\r", false, false)
	f.Add("\n\n", true, true)
	f.Fuzz(func(t *testing.T, text string, zipped, dribble bool) {
		want := strings.Split(text, "\n")
		if last := len(want) - 1; want[last] == "" {
			want = want[:last]
		}
		var in io.Reader = strings.NewReader(text)
		if zipped {
			// In two members, apart in the middle of a line.
			in = io.MultiReader(bytes.NewReader(zip(t, text[:len(text)/2])), bytes.NewReader(zip(t, text[len(text)/2:])))
		} else if strings.HasPrefix(text, "\x1f\x8b") {
			t.Skip("it is taken for gzip")
		}
		if dribble {
			in = iotest.OneByteReader(in)
		}
		var got []string
		for line, err := range linesOf(in) {
			require.NoError(t, err)
			got = append(got, line)
		}
		require.Len(t, got, len(want))
		for i, line := range want {
			require.Equal(t, strings.TrimSuffix(line, "\r"), got[i])
		}
	})
}
