package accesslog

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const front = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] `

func TestParse(t *testing.T) {
	at := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC)
	for name, c := range map[string]struct {
		line string
		want Entry
	}{
		"common": {
			front + `"GET / HTTP/1.1" 200 203023`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: "GET / HTTP/1.1", Status: 200, Bytes: 203023},
		},
		"combined": {
			front + `"GET / HTTP/1.1" 200 1 "http://example.com/" "Mozilla/5.0 (X11)"`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: "GET / HTTP/1.1", Status: 200, Bytes: 1,
				Combined: true, Referer: "http://example.com/", UserAgent: "Mozilla/5.0 (X11)"},
		},
		// Of the real log.
		"no bytes": {
			`180.76.6.56 - - [20/May/2015:21:05:56 +0000] "GET /robots.txt HTTP/1.1" 200 - "-" "Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2"`,
			Entry{Host: "180.76.6.56", Ident: "-", User: "-", Time: time.Date(2015, time.May, 20, 21, 5, 56, 0, time.UTC),
				Request: "GET /robots.txt HTTP/1.1", Status: 200, Bytes: -1, Combined: true, Referer: "-",
				UserAgent: "Mozilla/5.0 (Windows NT 5.1; rv:6.0.2) Gecko/20100101 Firefox/6.0.2"},
		},
		"escaped bytes": {
			`201.242.142.135 - - [19/May/2015:11:05:10 +0000] "GET /files/logstash/ HTTP/1.0" 200 13316 "http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/" "Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0"`,
			Entry{Host: "201.242.142.135", Ident: "-", User: "-", Time: time.Date(2015, time.May, 19, 11, 5, 10, 0, time.UTC),
				Request: "GET /files/logstash/ HTTP/1.0", Status: 200, Bytes: 13316, Combined: true,
				Referer:   `http://\xe4\xe5\xe3\xf2\xff\xf0\xed\xee\xe5-\xec\xfb\xeb\xee.\xf0\xf4/`,
				UserAgent: "Mozilla/5.0 (Windows NT 6.1; rv:11.0) Gecko/20100101 Firefox/11.0"},
		},
		"cut off": {
			`46.118.127.106 - - [20/May/2015:12:05:17 +0000] "GET /scripts/grok-py-test/configlib.py HTTP/1.1" 200 235 "-" "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html`,
			Entry{Host: "46.118.127.106", Ident: "-", User: "-", Time: time.Date(2015, time.May, 20, 12, 5, 17, 0, time.UTC),
				Request: "GET /scripts/grok-py-test/configlib.py HTTP/1.1", Status: 200, Bytes: 235, Combined: true, Referer: "-",
				UserAgent: "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html"},
		},
		// Of other logs.
		"cut off in an escape": {
			front + `"GET / HTTP/1.1" 200 1 "-" "a\`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: "GET / HTTP/1.1", Status: 200, Bytes: 1,
				Combined: true, Referer: "-", UserAgent: "a"},
		},
		"escaped quotes": {
			front + `"GET /a\"b HTTP/1.1" 200 1 "\\" "x\"y"`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: `GET /a\"b HTTP/1.1`, Status: 200, Bytes: 1,
				Combined: true, Referer: `\\`, UserAgent: `x\"y`},
		},
		"no request": {
			front + `"-" 408 - "-" "-"`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: "-", Status: 408, Bytes: -1,
				Combined: true, Referer: "-", UserAgent: "-"},
		},
		"TLS on a plain port": {
			front + `"\x16\x03\x01" 400 226`,
			Entry{Host: "192.0.2.1", Ident: "-", User: "-", Time: at, Request: `\x16\x03\x01`, Status: 400, Bytes: 226},
		},
		"name, user with a blank, zone, IPv6, fields behind": {
			`2001:db8::1 id frank b [17/May/2015:12:05:03 +0200] "" 000 0 "" "" 0.003 "-"`,
			Entry{Host: "2001:db8::1", Ident: "id", User: "frank b", Time: at.In(time.FixedZone("", 2*60*60)), Combined: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.line)
			require.NoError(t, err)
			assert.True(t, c.want.Time.Equal(got.Time), "%s is not %s", got.Time, c.want.Time)
			c.want.Time = got.Time
			assert.Equal(t, c.want, got)
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
			_, err := Parse(line)
			require.ErrorIs(t, err, ErrMalformed)
			if line != "" {
				assert.NotContains(t, err.Error(), line)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(front + `"GET / HTTP/1.1" 200 203023`)
	f.Add(front + `"-" 408 - "-" "Mozilla/5.0 (compatible; +http://example.com/bot.html`)
	f.Add(`2001:db8::1 id frank b [29/Feb/2016:23:59:59 -0930] "a\"b\\" 999 0 "\x16" "" 0.003`)
	f.Add(front + `"" 000 0 "\`)
	f.Fuzz(func(t *testing.T, line string) {
		entry, err := Parse(line)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := Parse(entry.String())
		require.NoError(t, err, "%q", entry.String())
		require.True(t, entry.Time.Equal(again.Time))
		again.Time = entry.Time
		require.Equal(t, entry, again)
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
