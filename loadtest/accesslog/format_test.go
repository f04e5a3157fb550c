package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	front = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] `
	line  = front + `"GET / HTTP/1.1" 200 1`
)

// newCombined returns the combined format with those fields.
func newCombined(fields ...string) Format {
	format, err := newByExpression(&combined, fields)
	if err != nil {
		panic(err)
	}
	return format
}

func TestCombined(t *testing.T) {
	fields := strings.Split("vhost port host ident user request method path status bytes referer agent", " ")
	get := func(rest string) string { return "||192.0.2.1|-|-|GET / HTTP/1.1|GET|/|200|" + rest }
	const behind = ` [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 1 "-" "curl/8.5.0"`
	const request = "GET /a?b HTTP/1.1|GET|/a|200|1|-|curl/8.5.0"
	for name, c := range map[string]struct{ line, want, at string }{
		"common":   {front + `"GET / HTTP/1.1" 200 203023`, get("203023||"), ""},
		"combined": {front + `"GET / HTTP/1.1" 200 1 "http://example.com/" "Mozilla/5.0 (X11)"`, get("1|http://example.com/|Mozilla/5.0 (X11)"), ""},
		// Of the real log.
		"no bytes": {`180.76.6.56 - - [20/May/2015:21:05:56 +0000] "GET /robots.txt HTTP/1.1" 200 - "-" "Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2"`,
			"||180.76.6.56|-|-|GET /robots.txt HTTP/1.1|GET|/robots.txt|200|-|-|Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2", "2015-05-20T21:05:56Z"},
		"escaped bytes": {`201.242.142.135 - - [19/May/2015:11:05:10 +0000] "GET /files/logstash/ HTTP/1.0" 200 13316 "http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/" "Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0"`,
			`||201.242.142.135|-|-|GET /files/logstash/ HTTP/1.0|GET|/files/logstash/|200|13316|http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/|Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0`, "2015-05-19T11:05:10Z"},
		"cut off": {`46.118.127.106 - - [20/May/2015:12:05:17 +0000] "GET /scripts/grok-py-test/configlib.py HTTP/1.1" 200 235 "-" "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html`,
			"||46.118.127.106|-|-|GET /scripts/grok-py-test/configlib.py HTTP/1.1|GET|/scripts/grok-py-test/configlib.py|200|235|-|Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html", "2015-05-20T12:05:17Z"},
		// Of other logs.
		"cut off in the referer": {front + `"GET / HTTP/1.1" 200 1 "htt`, get("1|htt|"), ""},
		"escaped quotes":         {front + `"GET /a\"b HTTP/1.1" 200 1 "\\" "x\"y"`, `||192.0.2.1|-|-|GET /a\"b HTTP/1.1|GET|/a\"b|200|1|\\|x\"y`, ""},
		// A request that is not three words has no method and no path.
		"no request": {front + `"-" 408 - "-" "-"`, "||192.0.2.1|-|-|-|||408|-|-|-", ""},
		"two words":  {front + `"GET /" 400 1`, "||192.0.2.1|-|-|GET /|||400|1||", ""},
		"name, user with a blank, zone, IPv6, fields behind": {`2001:db8::1 id frank b [17/May/2015:12:05:03 +0200] "" 000 0 "" "" 0.003 "-"`, "||2001:db8::1|id|frank b||||000|0||", ""},
		// Of vhost_combined.
		"virtual host":           {"www.example.com:443 192.0.2.1 - -" + behind, "www.example.com|443|192.0.2.1|-|-|" + request, ""},
		"virtual host, IPv6":     {"127.0.1.1:80 2001:db8::1 - frank b" + behind, "127.0.1.1|80|2001:db8::1|-|frank b|" + request, ""},
		"an address with a port": {"2001:db8::1:80 - -" + behind, "||2001:db8::1:80|-|-|" + request, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, values, err := newCombined(fields...).Parse(c.line)
			require.NoError(t, err)
			assert.Equal(t, cmp.Or(c.at, "2015-05-17T10:05:03Z"), at.UTC().Format(time.RFC3339))
			want := strings.Split(c.want, "|")
			assert.Equal(t, want, values)
			for i, field := range fields { // asked for alone
				_, values, err := newCombined(field).Parse(c.line)
				require.NoError(t, err)
				assert.Equal(t, want[i:i+1], values)
			}
		})
	}
	_, err := newByExpression(&combined, []string{"host", "remote_addr"})
	require.ErrorContains(t, err, `no field "remote_addr", but vhost, port, host, ident, user,`)
}

func TestCombinedMalformed(t *testing.T) {
	for name, line := range map[string]string{
		"empty":                      ``,
		"no user":                    `192.0.2.1 - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
		"blank in front":             " " + line,
		"virtual host, no port":      "www.example.com " + line,
		"virtual host, no such port": "www.example.com:99999 " + line,
		"cut off behind the status":  front + `"GET / HTTP/1.1" 200`,
		"status in words":            front + `"GET / HTTP/1.1" abc 1`,
		"bytes above an int64":       front + `"GET / HTTP/1.1" 200 9223372036854775808`,
		"referer without quotes":     line + ` -`,
		"quote in the user agent":    line + ` "-" "a"b"`,
		"JSON":                       `{"time": "2015-05-17T10:05:03Z", "host": "192.0.2.1"}`,
		"no such day":                strings.Replace(line, "17/May", "31/Jun", 1),
		"fraction of a second":       strings.Replace(line, ":03 ", ":03.5 ", 1),
		"leap second, unknown to Go": strings.Replace(line, ":03 ", ":60 ", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newCombined("host").Parse(line)
			require.ErrorIs(t, err, ErrMalformed)
			if line != "" {
				assert.NotContains(t, err.Error(), line)
			}
		})
	}
}

// What is written as a line is read back, with and without a virtual host.
func FuzzCombined(f *testing.F) {
	f.Add("192.0.2.1", "-", "-", int64(1431857103), "GET / HTTP/1.1", 200, int64(203023), "-", "curl/8", false)
	f.Add("2001:db8::1", "id", "frank b", int64(951782399), `a"b\`, 999, int64(-1), "\x16", "", true)
	clean := func(text string, not string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' || strings.ContainsRune(not, r) {
				return '_'
			}
			return r
		}, strings.ToValidUTF8(text, "?"))
	}
	f.Fuzz(func(t *testing.T, host, ident, user string, second int64, request string, status int, bytes int64, referer, agent string, virtual bool) {
		escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
		host, ident = cmp.Or(clean(host, " "), "-"), cmp.Or(clean(ident, " "), "-")
		user = cmp.Or(strings.TrimLeft(clean(user, "["), "- "), "-")
		want := []string{
			host, ident, user, escape.Replace(clean(request, "")), fmt.Sprintf("%03d", mod(int64(status), 1000)), fmt.Sprint(mod(bytes, 1e18)),
			escape.Replace(clean(referer, "")), escape.Replace(clean(agent, "")), "",
		}
		at := time.Unix(mod(second, 1e10), 0).UTC()
		line := fmt.Sprintf(`%s %s %s [%s] "%s" %s %s "%s" "%s"`, host, ident, user, at.Format(TimeLayout), want[3], want[4], want[5], want[6], want[7])
		if virtual {
			line, want[8] = "www.example.com:80 "+line, "www.example.com"
		} else if name, _, port := strings.Cut(host, ":"); port && name != "" {
			t.Skip("a name with a port may be a virtual host")
		}
		fields := []string{"host", "ident", "user", "request", "status", "bytes", "referer", "agent", "vhost"}
		got, values, err := newCombined(fields...).Parse(line)
		require.NoError(t, err, "%q", line)
		require.True(t, at.Equal(got))
		require.Equal(t, want, values, "%q", line)
	})
}

// slowCombined is a second, laxer reading of a line in the combined format.
const slowCombined = `(?s)^(?:(?:\[[^ \]]+\]|[^ :]+):(?:\d{1,4}|[1-5]\d{4}|6[0-5]\d{3}) )?(?P<host>[^ ]+) (?P<ident>[^ ]+) (?P<user>.+?) \[(?P<time>[^\]]*)\] "(?P<request>(?:[^"\\]|\\.)*)"`

// What the combined format takes a laxer regular expression takes as well.
func FuzzRegexp(f *testing.F) {
	f.Add(front + `"GET / HTTP/1.1" 200 203023`)
	f.Add(`2001:db8::1 id fr[ank b [29/Feb/2016:23:59:59 -0930] "a\"b\\" 999 0 "\x16" "" 0.003`)
	fields := []string{"host", "ident", "user", "request"}
	format, err := New(Config{Regexp: slowCombined, Layout: TimeLayout, Fields: fields})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, line string) {
		at, want, err := newCombined(fields...).Parse(line)
		gotAt, got, gotErr := format.Parse(line)
		if gotErr != nil && !errors.Is(gotErr, ErrFiltered) {
			require.ErrorIs(t, gotErr, ErrMalformed)
		}
		if err == nil {
			require.NoError(t, gotErr)
			require.True(t, at.Equal(gotAt))
			require.Equal(t, want, got)
		}
	})
}
