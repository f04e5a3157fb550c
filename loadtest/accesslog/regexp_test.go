package accesslog

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegexp(t *testing.T) {
	format, err := NewRegexp(`^(?P<time>\S+) (?:login of (?P<user>\S+) failed|logout) from (?P<ip>\S+)`, Layout{}, "ip", "user")
	require.NoError(t, err)
	record, err := format.Parse(`2015-05-17T10:05:03.5Z login of frank failed from 192.0.2.1 port 7`)
	require.NoError(t, err)
	assert.EqualValues(t, 1431857103500, record.Time.UnixMilli())
	assert.Equal(t, "frank", record.Field("user"))
	assert.Equal(t, "192.0.2.1", record.Field("ip"))

	record, err = format.Parse(`1431857103 logout from 192.0.2.1`)
	require.NoError(t, err)
	assert.Empty(t, record.Field("user"), "its group takes no part")

	alternatives, err := NewRegexp(`user=(?P<user>\w+) .* (?P<time>\d+)$|^(?P<time>\d+) .*user=(?P<user>\w+)`, Layout{}, "user")
	require.NoError(t, err)
	for _, line := range []string{"user=frank at 1431857103", "1431857103 by user=frank"} {
		record, err := alternatives.Parse(line)
		require.NoError(t, err)
		assert.EqualValues(t, 1431857103, record.Time.Unix())
		assert.Equal(t, "frank", record.Field("user"))
	}

	for line, want := range map[string]error{"": ErrFiltered, "1431857103 logout": ErrFiltered, "now logout from 192.0.2.1": ErrMalformed} {
		_, err := format.Parse(line)
		require.ErrorIs(t, err, want)
	}
	assert.Equal(t, "lines that the regular expression matches, with the time as auto", format.String())
}

func TestRegexpsThatCannotBe(t *testing.T) {
	for expression, want := range map[string]string{
		`(`:                              "missing closing )",
		`(\S+) (\S+)`:                    "no group named time",
		`(?P<at>\S+) (?P<user>\S+)`:      "no group named time, as in ",
		`(?P<time>\S+) (?P<login>\S+)`:   `no group named "user", as in (?P<user>\S+), but time, login`,
		`(?P<time>\S+) (?=x)(?P<user>x)`: "invalid or unsupported Perl syntax",
	} {
		_, err := NewRegexp(expression, Layout{}, "user")
		assert.ErrorContains(t, err, want, expression)
	}
}

// slowCombined is a second, laxer reading of a line in the combined format.
const slowCombined = `(?s)^(?P<host>[^ ]+) (?P<ident>[^ ]+) (?P<user>.+?) \[(?P<time>[^\]]*)\] "(?P<request>(?:[^"\\]|\\.)*)"`

// What the combined format takes a laxer regular expression takes as well.
func FuzzRegexp(f *testing.F) {
	f.Add(front + `"GET / HTTP/1.1" 200 203023`)
	f.Add(`2001:db8::1 id fr[ank b [29/Feb/2016:23:59:59 -0930] "a\"b\\" 999 0 "\x16" "" 0.003`)
	fields := []string{"host", "ident", "user", "request"}
	format, err := NewRegexp(slowCombined, Layout{layoutCommon}, fields...)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, line string) {
		want, err := newCommon(fields...).Parse(line)
		got, gotErr := format.Parse(line)
		if gotErr != nil && !errors.Is(gotErr, ErrFiltered) {
			require.ErrorIs(t, gotErr, ErrMalformed)
		}
		if err == nil {
			require.NoError(t, gotErr)
			require.True(t, want.Time.Equal(got.Time))
			got.Time = want.Time
			require.Equal(t, want, got)
		}
	})
}
