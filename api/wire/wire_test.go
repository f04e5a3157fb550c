package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/wire"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600+1800) // nothing depends on it
	goleak.VerifyTestMain(m)
}

func ExampleParseMoment() {
	for _, text := range []string{"2026-11-21T05:12:48+01:00", "1795234368"} {
		moment, err := wire.ParseMoment(text)
		fmt.Println(moment.Format(time.RFC3339), err)
	}
	// Output:
	// 2026-11-21T04:12:48Z <nil>
	// 2026-11-21T04:12:48Z <nil>
}

func TestParseMoment(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-14T23:30:33Z":           "2026-03-14T23:30:33Z",
		"2026-03-14t23:30:33z":           "2026-03-14T23:30:33Z",
		"2026-03-14t23:30:33.5z":         "2026-03-14T23:30:33Z",
		"2026-03-14T23:30:33.999999999Z": "2026-03-14T23:30:33Z",
		"1969-12-31T23:59:59.9Z":         "1969-12-31T23:59:59Z",
		"2026-03-15T05:00:33+05:30":      "2026-03-14T23:30:33Z",
		"2026-03-14T18:30:33-05:00":      "2026-03-14T23:30:33Z",
		"2026-03-14T23:30:33-00:00":      "2026-03-14T23:30:33Z",
		"9999-12-31T23:59:59Z":           "9999-12-31T23:59:59Z",
		"0":                              "1970-01-01T00:00:00Z",
		"-1":                             "1969-12-31T23:59:59Z",
		"1773531033":                     "2026-03-14T23:30:33Z",
		"0001773531033":                  "2026-03-14T23:30:33Z",
	} {
		moment, err := wire.ParseMoment(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, moment.Format(time.RFC3339), text)
		assert.Equal(t, time.UTC, moment.Location(), text)
		out, err := json.Marshal(moment)
		require.NoError(t, err)
		assert.Equal(t, `"`+want+`"`, string(out))
	}
	for _, text := range []string{
		"", "now", "-", "+1773531033", "1_773_531_033", "0x1", "1e9", "1773531033.5", " 1773531033", "9223372036854775807", "99999999999999999999",
		"2026-03-14", "2026-03-14T23:30Z", "2026-03-14 23:30:33Z", "2026-03-14T23:30:33", "2026-03-14T3:30:33Z", "2026-03-14T23:30:33,5Z",
		"2026-03-14T23:30:33+24:00", "2026-03-14T23:30:33+05:60", "2026-03-14T23:30:33+0530", "2026-03-14T24:00:00Z", "2026-02-30T00:00:00Z",
		"2026-03-14T23:30:33ZZ", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "z", "2026-03-14t",
	} {
		_, err := wire.ParseMoment(text)
		assert.ErrorIs(t, err, wire.ErrMoment, "%q", text)
	}
}

func FuzzMoment(f *testing.F) {
	f.Add("2026-03-14T23:30:33Z")
	f.Add("2026-03-14t23:30:33.25-00:30")
	f.Add("-1773531033")
	f.Fuzz(func(t *testing.T, text string) {
		moment, err := wire.ParseMoment(text)
		if err != nil {
			return
		}
		if !strings.Contains(text, "-") || text[0] == '-' {
			require.Regexp(t, "^-?[0-9]+$", text)
		}
		again, err := wire.ParseMoment(moment.Format(time.RFC3339))
		require.NoError(t, err)
		require.Equal(t, moment, again)
	})
}
