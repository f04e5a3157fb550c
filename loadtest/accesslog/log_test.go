package accesslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func readTexts(t *testing.T, features string, texts ...string) (*Log, error) {
	t.Helper()
	mapping, err := ParseMapping(features)
	require.NoError(t, err)
	format, err := New(Config{Fields: mapping.Fields()})
	require.NoError(t, err)
	var inputs []Input
	for i, text := range texts {
		inputs = append(inputs, Stream(fmt.Sprintf("log.%d", i+1), strings.NewReader(text)))
	}
	return ReadLog(t.Context(), format, mapping, inputs...)
}

func TestReadLog(t *testing.T) {
	log, err := readTexts(t, "ip=host,user",
		`{"ts": 7.5, "host": "192.0.2.1", "user": "a"}
{"ts": 3, "host": "192.0.2.1"}
`, `{"ts": 7.25, "host": "192.0.2.1", "user": "a"}
{"ts": 7.25, "host": "www.example.com", "user": "a"}
{"ts": 7.25, "user": "-"}
{"ts": 7.25, "host": "-", "user": "a"}
{"ts": 1}
foo`)
	require.NoError(t, err)
	assert.Equal(t, 8, log.Lines)
	assert.Equal(t, 2, log.Malformed)
	assert.Equal(t, []string{"log.2:2", "log.2:6"}, log.Places)
	assert.Equal(t, []events.Features{{"ip": "192.0.2.1", "user": "a"}, {"ip": "192.0.2.1"}, {}, {"user": "a"}}, log.Actors)
	assert.Equal(t, []Event{{1e6, 2}, {3e6, 1}, {7_250_000, 0}, {7_250_000, 2}, {7_250_000, 3}, {7_500_000, 0}}, log.Events)
	assert.EqualValues(t, 7, log.Events[5].Second())

	var all []string
	for at, features := range log.All() {
		all = append(all, fmt.Sprint(at.Format("05.00"), features))
		if len(all) == 4 {
			break
		}
	}
	assert.Equal(t, []string{"01.00map[]", "03.00map[ip:192.0.2.1]", "07.25map[ip:192.0.2.1 user:a]", "07.25map[]"}, all)
}

// Which values go together is not lost where they are put together.
func TestActorsAreKeptApart(t *testing.T) {
	log, err := readTexts(t, "a,b", `{"ts": 1, "a": "x0:", "b": "z"}`+"\n"+`{"ts": 1, "a": "x", "b": "0:z"}`+"\n"+`{"ts": 1, "a": "1:x", "b": ""}`+"\n"+`{"ts": 1, "a": "", "b": "1:x"}`+"\n"+`{"ts": 1, "a": "x1:", "b": "y"}`+
		"\n"+`{"ts": 1, "a": "x", "b": "1:y"}`+"\n")
	require.NoError(t, err)
	assert.Len(t, log.Actors, 6)
}

// The order is that of time, and in a moment that of the log.
func TestTheOrderOfALog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `{"ts": %d, "user": "%04d"}`+"\n", rng.IntN(50), i)
	}
	log, err := readTexts(t, "user", text.String())
	require.NoError(t, err)
	require.Len(t, log.Events, 1000)
	for i, e := range log.Events[1:] {
		before := log.Events[i]
		assert.True(t, before.Micros < e.Micros || before.Micros == e.Micros && before.Actor < e.Actor)
	}
}

func TestNoLineIsInTheFormat(t *testing.T) {
	log, err := readTexts(t, "ip=host", strings.Repeat("foo\n", 7), strings.Repeat("secret\n", 5))
	require.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, "wanted is the common or combined log format, or JSON lines with the time in ")
	assert.ErrorContains(t, err, "of 12 lines 12 malformed: it is not in the common or combined log format")
	assert.NotContains(t, err.Error(), "secret")
	assert.Equal(t, 12, log.Malformed)
	assert.Len(t, log.Places, 10)
	assert.Equal(t, "log.2:3", log.Places[9])

	_, err = readTexts(t, "ip=host", strings.Repeat("foo\n", 3)+strings.Replace(line, ":03 ", ":63 ", 1)+"\n"+line[:9]+"\n", strings.Replace(line, "192.0.2.1", "secret", 1))
	require.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, "; of 6 lines 4 malformed: it is not in the common or combined log format; 1 malformed: the time is not like 02/Jan/2006:15:04:05 -0700; 1 malformed: feature of kind ")

	format, err := New(Config{Regexp: `login of (?P<user>\S+) at (?P<time>.*)`, Fields: []string{"user"}})
	require.NoError(t, err)
	_, err = ReadLog(t.Context(), format, Mapping{{"user", "user"}}, Stream("", strings.NewReader("start\nlogin of a at noon\nstop\n")))
	assert.ErrorContains(t, err, "; of 3 lines 2 filtered: the regular expression does not match; 1 malformed: the time is not like ")

	log, err = readTexts(t, "ip=host", "")
	require.NoError(t, err, "an empty log is none in another format")
	assert.Zero(t, log.Lines)
}

func TestReadLogFaults(t *testing.T) {
	read := func(ctx context.Context, inputs ...Input) error {
		_, err := ReadLog(ctx, newCombined("host"), DefaultMapping(), inputs...)
		return err
	}
	broken := errors.New("broken")
	err := read(t.Context(), Stream("standard input", iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "standard input: ")

	err = read(t.Context(), File(filepath.Join(t.TempDir(), "nothing.log")))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "nothing.log")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, read(ctx, Stream("", strings.NewReader("foo\n"))), context.Canceled)
}

// What is opened is closed, also where the log ends early.
func TestInputsAreClosed(t *testing.T) {
	for _, r := range []io.Reader{strings.NewReader(line), iotest.ErrReader(errors.New("broken"))} {
		closed := 0
		input := Input{Name: "x", Open: func() (io.ReadCloser, time.Time, error) { return closer{r, &closed}, time.Time{}, nil }}
		_, _ = ReadLog(t.Context(), newCombined("host"), DefaultMapping(), input)
		assert.Equal(t, 1, closed)
	}
}

type closer struct {
	io.Reader
	closed *int
}

func (c closer) Close() error { *c.closed++; return nil }

// Every line of the real log is read whole: put together again, its fields are the line. One
// line is cut off.
func TestTheRealLogIsReadWhole(t *testing.T) {
	file, err := os.Open(realLog)
	require.NoError(t, err)
	defer file.Close()
	fields := []string{"host", "ident", "user", "request", "status", "bytes", "referer", "agent"}
	format := newCombined(fields...)
	n := 0
	var differ []int
	for text, err := range linesOf(file) {
		require.NoError(t, err)
		n++
		at, v, err := format.Parse(text)
		require.NoError(t, err, "line %d", n)
		if line := fmt.Sprintf(`%s %s %s [%s] "%s" %s %s "%s" "%s"`, v[0], v[1], v[2], at.Format(TimeLayout), v[3], v[4], v[5], v[6], v[7]); line != text {
			differ = append(differ, n)
			assert.Equal(t, text+`"`, line)
		}
	}
	assert.Equal(t, 10_000, n)
	assert.Equal(t, []int{8899}, differ)
}

const realLog = "../testdata/apache_logs.log.gz"

// The real log, plain, as JSON and by a regular expression, is the same.
func TestTheRealLogInEveryFormat(t *testing.T) {
	var text, zipped strings.Builder
	mapping := Mapping{{"ip", "host"}, {"agent", "agent"}}
	want, err := ReadLog(t.Context(), newCombined("host", "agent"), mapping, File(realLog))
	require.NoError(t, err)
	require.Equal(t, 10_000, want.Lines)
	require.Zero(t, want.Malformed)
	require.Len(t, want.Events, 10_000)

	file, err := os.Open(realLog)
	require.NoError(t, err)
	defer file.Close()
	n := 0
	format := newCombined("host", "agent")
	for line, err := range linesOf(file) {
		require.NoError(t, err)
		at, values, err := format.Parse(line)
		require.NoError(t, err)
		part := fmt.Sprintf(`{"time": %q, "host": %q, "agent": %q}`+"\n",
			at.Format(time.RFC3339), values[0], values[1])
		text.WriteString(part)
		if n++; n%3000 == 0 || n == 10_000 {
			// A member for each part, as rotated logs are put together.
			zipped.Write(zip(t, text.String()))
			text.Reset()
		}
	}
	got, err := ReadLog(t.Context(), jsonFormat(t, Config{Fields: mapping.Fields()}), mapping, Stream("", strings.NewReader(zipped.String())))
	require.NoError(t, err)
	assert.Equal(t, want, got)

	expression, err := New(Config{Regexp: slowCombined + ` \S+ \S+ "(?:[^"\\]|\\.)*" "(?P<agent>(?:[^"\\]|\\.)*)`, Fields: []string{"host", "agent"}})
	require.NoError(t, err)
	got, err = ReadLog(t.Context(), expression, mapping, File(realLog))
	require.NoError(t, err)
	assert.Equal(t, want, got)
}
