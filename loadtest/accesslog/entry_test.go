package accesslog

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const front = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] `

func TestParse(t *testing.T) {
	fields := []string{"host", "ident", "user", "request", "status", "bytes", "referer", "agent"}
	for name, c := range map[string]struct {
		line, at string
		want     []string // of the fields
	}{
		"common": {front + `"GET / HTTP/1.1" 200 203023`, "",
			[]string{"192.0.2.1", "-", "-", "GET / HTTP/1.1", "200", "203023", "", ""}},
		"combined": {front + `"GET / HTTP/1.1" 200 1 "http://example.com/" "Mozilla/5.0 (X11)"`, "",
			[]string{"192.0.2.1", "-", "-", "GET / HTTP/1.1", "200", "1", "http://example.com/", "Mozilla/5.0 (X11)"}},
		// Of the real log.
		"no bytes": {`180.76.6.56 - - [20/May/2015:21:05:56 +0000] "GET /robots.txt HTTP/1.1" 200 - "-" "Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2"`, "2015-05-20T21:05:56Z",
			[]string{"180.76.6.56", "-", "-", "GET /robots.txt HTTP/1.1", "200", "-", "-", "Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2"}},
		"escaped bytes": {`201.242.142.135 - - [19/May/2015:11:05:10 +0000] "GET /files/logstash/ HTTP/1.0" 200 13316 "http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/" "Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0"`, "2015-05-19T11:05:10Z",
			[]string{"201.242.142.135", "-", "-", "GET /files/logstash/ HTTP/1.0", "200", "13316", `http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/`, "Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0"}},
		"cut off": {`46.118.127.106 - - [20/May/2015:12:05:17 +0000] "GET /scripts/grok-py-test/configlib.py HTTP/1.1" 200 235 "-" "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html`, "2015-05-20T12:05:17Z",
			[]string{"46.118.127.106", "-", "-", "GET /scripts/grok-py-test/configlib.py HTTP/1.1", "200", "235", "-", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html"}},
		// Of other logs.
		"cut off in an escape":   {front + `"GET / HTTP/1.1" 200 1 "-" "a\`, "", []string{"192.0.2.1", "-", "-", "GET / HTTP/1.1", "200", "1", "-", "a"}},
		"cut off in the referer": {front + `"GET / HTTP/1.1" 200 1 "htt`, "", []string{"192.0.2.1", "-", "-", "GET / HTTP/1.1", "200", "1", "htt", ""}},
		"cut off behind it":      {front + `"GET / HTTP/1.1" 200 1 "http" `, "", []string{"192.0.2.1", "-", "-", "GET / HTTP/1.1", "200", "1", "http", ""}},
		"escaped quotes":         {front + `"GET /a\"b HTTP/1.1" 200 1 "\\" "x\"y"`, "", []string{"192.0.2.1", "-", "-", `GET /a\"b HTTP/1.1`, "200", "1", `\\`, `x\"y`}},
		"no request":             {front + `"-" 408 - "-" "-"`, "", []string{"192.0.2.1", "-", "-", "-", "408", "-", "-", "-"}},
		"TLS on a plain port":    {front + `"\x16\x03\x01" 400 226`, "", []string{"192.0.2.1", "-", "-", `\x16\x03\x01`, "400", "226", "", ""}},
		"a user with a hyphen":   {strings.Replace(front, "- -", "- -b c", 1) + `"-" 400 226`, "", []string{"192.0.2.1", "-", "-b c", "-", "400", "226", "", ""}},
		"name, user with a blank, zone, IPv6, fields behind": {`2001:db8::1 id frank b [17/May/2015:12:05:03 +0200] "" 000 0 "" "" 0.003 "-"`, "",
			[]string{"2001:db8::1", "id", "frank b", "", "000", "0", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			record, err := newCommon(fields...).Parse(c.line)
			require.NoError(t, err)
			assert.Equal(t, cmp.Or(c.at, "2015-05-17T10:05:03Z"), record.Time.UTC().Format(time.RFC3339))
			assert.Equal(t, c.want, record.values)
			for i, field := range fields { // asked for alone
				record, err := newCommon(field).Parse(c.line)
				require.NoError(t, err)
				assert.Equal(t, c.want[i], record.Field(field))
			}
		})
	}
}

func TestParseMalformed(t *testing.T) {
	for name, line := range map[string]string{
		"empty":                      ``,
		"one word":                   `192.0.2.1`,
		"no user":                    `192.0.2.1 - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
		"blank in front":             ` 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
		"virtual host in front":      `www.example.com:80 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`,
		"cut off in the time":        `192.0.2.1 - - [17/May/2015:10:0`,
		"cut off in the request":     front + `"GET / HT`,
		"cut off behind the status":  front + `"GET / HTTP/1.1" 200`,
		"cut off behind a blank":     front + `"GET / HTTP/1.1" 200 1 `,
		"two blanks":                 front + `"GET / HTTP/1.1"  200 1`,
		"status in words":            front + `"GET / HTTP/1.1" abc 1`,
		"signed status":              front + `"GET / HTTP/1.1" +20 1`,
		"status of four digits":      front + `"GET / HTTP/1.1" 1000 1`,
		"negative bytes":             front + `"GET / HTTP/1.1" 200 -1`,
		"bytes above an int64":       front + `"GET / HTTP/1.1" 200 9223372036854775808`,
		"referer without quotes":     front + `"GET / HTTP/1.1" 200 1 -`,
		"user agent without quotes":  front + `"GET / HTTP/1.1" 200 1 "-" -`,
		"quote in the user agent":    front + `"GET / HTTP/1.1" 200 1 "-" "a"b"`,
		"two lines":                  front + `"GET / HTTP/1.1" 200 1 "-` + "\n" + `"`,
		"JSON":                       `{"time": "2015-05-17T10:05:03Z", "host": "192.0.2.1"}`,
		"no such day":                strings.Replace(front, "17/May", "31/Jun", 1) + `"GET / HTTP/1.1" 200 1`,
		"no such month":              strings.Replace(front, "May", "Mai", 1) + `"GET / HTTP/1.1" 200 1`,
		"month in lower case":        strings.Replace(front, "May", "may", 1) + `"GET / HTTP/1.1" 200 1`,
		"hour of one digit":          strings.Replace(front, ":10:", ":1:", 1) + `"GET / HTTP/1.1" 200 1`,
		"fraction of a second":       strings.Replace(front, ":03 ", ":03.5 ", 1) + `"GET / HTTP/1.1" 200 1`,
		"fraction, hour of a digit":  strings.Replace(front, "10:05:03", "1:05:03.", 1) + `"GET / HTTP/1.1" 200 1`,
		"leap second, unknown to Go": strings.Replace(front, ":03 ", ":60 ", 1) + `"GET / HTTP/1.1" 200 1`,
		"no zone":                    strings.Replace(front, " +0000", "", 1) + `"GET / HTTP/1.1" 200 1`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newCommon("host").Parse(line)
			require.ErrorIs(t, err, ErrMalformed)
			if line != "" {
				assert.NotContains(t, err.Error(), line)
			}
		})
	}
}

// What is written as a line is read back.
func FuzzParse(f *testing.F) {
	f.Add("192.0.2.1", "-", "-", int64(1431857103), "GET / HTTP/1.1", 200, int64(203023), "-", "curl/8")
	f.Add("2001:db8::1", "id", "frank b", int64(951782399), `a"b\`, 999, int64(-1), "\x16", "")
	clean := func(text string, not string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' || strings.ContainsRune(not, r) {
				return '_'
			}
			return r
		}, strings.ToValidUTF8(text, "?"))
	}
	f.Fuzz(func(t *testing.T, host, ident, user string, second int64, request string, status int, bytes int64, referer, agent string) {
		escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
		host, ident = cmp.Or(clean(host, " "), "-"), cmp.Or(clean(ident, " "), "-")
		user = cmp.Or(strings.TrimLeft(clean(user, "["), "- "), "-")
		want := []string{
			host, ident, user, escape.Replace(clean(request, "")), fmt.Sprintf("%03d", mod(int64(status), 1000)), fmt.Sprint(mod(bytes, 1e18)),
			escape.Replace(clean(referer, "")), escape.Replace(clean(agent, "")),
		}
		at := time.Unix(mod(second, 1e10), 0).UTC()
		line := fmt.Sprintf(`%s %s %s [%s] "%s" %s %s "%s" "%s"`, host, ident, user, at.Format(TimeLayout), want[3], want[4], want[5], want[6], want[7])
		record, err := newCommon("host", "ident", "user", "request", "status", "bytes", "referer", "agent").Parse(line)
		require.NoError(t, err, "%q", line)
		require.True(t, at.Equal(record.Time))
		require.Equal(t, want, record.values, "%q", line)
	})
}

func FuzzTime(f *testing.F) {
	f.Add(int64(1431857103), 0)
	f.Add(int64(951782399), -570)
	f.Fuzz(func(t *testing.T, second int64, zone int) {
		at := time.Unix(second, 0).In(time.FixedZone("", zone%(14*60)*60))
		if year := at.Year(); year < 0 || year > 9999 {
			t.Skip("not a year of four digits")
		}
		got, err := parseTime(at.Format(TimeLayout))
		require.NoError(t, err)
		require.Equal(t, second, got.Unix())
	})
}
