package accesslog

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// readAs reads a log in a format with the features ip and user.
func readAs(t *testing.T, format, text string) (*Log, error) {
	t.Helper()
	mapping, err := ParseMapping("ip=host,user")
	require.NoError(t, err)
	f, err := New(Config{Format: format, Fields: mapping.Fields()})
	require.NoError(t, err)
	input := Stream("log", strings.NewReader(text))
	input.Year = 2026
	return ReadLog(context.Background(), f, mapping, input)
}

const (
	aLine  = `192.0.2.1 - anna [17/May/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "curl/8"`
	aJSON  = `{"time": "2026-05-17T10:05:03Z", "host": "192.0.2.1", "user": "anna"}`
	inJSON = `"192.0.2.1 - anna [17/May/2026:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl/8\"\n"`
)

// What Docker, the runtimes of Kubernetes, Compose and syslog daemons write in front of a line is skipped.
func TestPrefixes(t *testing.T) {
	for name, front := range map[string]string{
		"nothing":                       "",
		"docker logs -t":                "2026-05-17T10:05:04.123456789Z ",
		"CRI":                           "2026-05-17T10:05:04.669794202Z stdout F ",
		"CRI, another zone":             "2026-05-17T12:05:04.669794202+02:00 stderr F ",
		"Compose":                       "web-1  | ",
		"Compose, an old one":           "site_web_1      | ",
		"Compose, in colour":            "\x1b[36mweb-1  | \x1b[0m",
		"Compose, an old one in colour": "\x1b[36;1mweb_1  |\x1b[0m ",
		"Compose with -t":               "web-1  | 2026-05-17T10:05:04.123456789Z ",
		"nginx by UDP":                  "<190>May 17 10:05:03 web nginx: ",
		"rsyslog":                       "May 17 10:05:03 web nginx: ",
		"rsyslog, one digit":            "May  7 10:05:03 web apache2[77]: ",
		"rsyslog of Debian 12":          "2026-05-17T10:05:03.123456+02:00 web nginx: ",
		"journalctl -o short-iso":       "2026-05-17T10:05:03+0200 web docker/f1e2d3[812]: ",
		"RFC 5424":                      "<190>1 2026-05-17T10:05:03.123Z web nginx 812 - - ",
		"RFC 5424, structured data":     `<190>1 2026-05-17T10:05:03Z web nginx - access [a@1 b="c d"] ` + "\ufeff",
		"busybox":                       "May 17 10:05:03 web daemon.info nginx: ",
		"busybox -S":                    "May 17 10:05:03 nginx[12]: ",
		"syslog in Docker":              "2026-05-17T10:05:04.123456789Z stdout F <190>May 17 10:05:03 web nginx: ",
	} {
		for _, line := range []string{aLine, aJSON} {
			log, err := readAs(t, "auto", front+line+"\n")
			require.NoError(t, err, "%s: %s", name, line)
			assert.Equal(t, []events.Features{{"ip": "192.0.2.1", "user": "anna"}}, log.Actors, "%s: %s", name, line)
			assert.Equal(t, time.Date(2026, 5, 17, 10, 5, 3, 0, time.UTC), log.Events[0].Time(), name)
		}
	}
	for name, line := range map[string]string{
		"Docker's json-file":            `{"log":` + inJSON + `,"stream":"stdout","time":"2026-05-17T10:05:04.123456789Z"}`,
		"Docker's json-file with attrs": `{"log":` + inJSON + `,"stream":"stderr","attrs":{"tag":"a"},"time":"2026-05-17T10:05:04Z"}`,
		"JSON in Docker's json-file":    `{"log":"{\"time\": \"2026-05-17T10:05:03Z\", \"host\": \"192.0.2.1\", \"user\": \"anna\"}\n","stream":"stdout","time":"2026-05-17T10:05:04Z"}`,
		"JSON with the same members":    `{"log":"x","stream":"y","time":"2026-05-17T10:05:03Z","host":"192.0.2.1","user":"anna"}`,
	} {
		log, err := readAs(t, "auto", line)
		require.NoError(t, err, name)
		assert.Equal(t, []events.Features{{"ip": "192.0.2.1", "user": "anna"}}, log.Actors, name)
		assert.Equal(t, time.Date(2026, 5, 17, 10, 5, 3, 0, time.UTC), log.Events[0].Time(), name)
	}
}

// Failed logins are found behind the heads of all syslog daemons, and in containers.
func TestPrefixesOfFailedLogins(t *testing.T) {
	const failed = "Failed password for anna from 192.0.2.1 port 4711 ssh2"
	for name, line := range map[string]string{
		"busybox":           "May 17 10:05:03 web auth.info sshd[12]: " + failed,
		"busybox, authpriv": "May 17 10:05:03 web authpriv.notice sshd-session[12]: " + failed,
		"busybox -S":        "May 17 10:05:03 sshd[12]: " + failed,
		"CRI":               "2026-05-17T10:05:04.669794202Z stdout F May 17 10:05:03 web sshd[12]: " + failed,
		"Compose":           "bastion-1  | May 17 10:05:03 web auth.info sshd[12]: " + failed,
		"Docker":            `{"log":"May 17 10:05:03 web sshd[12]: ` + failed + `\n","stream":"stdout","time":"2026-05-17T10:05:04Z"}`,
	} {
		log, err := readAs(t, "sshd", line)
		require.NoError(t, err, name)
		assert.Equal(t, []events.Features{{"ip": "192.0.2.1", "user": "anna"}}, log.Actors, name)
		assert.Equal(t, time.Date(2026, 5, 17, 10, 5, 3, 0, time.Local), log.Events[0].Time().In(time.Local), name)
	}
}

// An address may be in brackets, have a port or a zone, in every format.
func TestAddressesOfLogs(t *testing.T) {
	for host, want := range map[string]string{
		"192.0.2.1:4711": "192.0.2.1", "[2001:db8::1]": "2001:db8::1", "[2001:db8::1]:4711": "2001:db8::1",
		"fe80::1%eth0": "fe80::1", "[fe80::1%eth0]:4711": "fe80::1", "2001:db8::1:80": "2001:db8::1:80",
	} {
		for _, line := range []string{strings.Replace(aLine, "192.0.2.1", host, 1), strings.Replace(aJSON, "192.0.2.1", host, 1), "www.example.com:443 " + strings.Replace(aLine, "192.0.2.1", host, 1)} {
			log, err := readAs(t, "auto", line)
			require.NoError(t, err, line)
			assert.Equal(t, []events.Features{{"ip": want, "user": "anna"}}, log.Actors, line)
		}
	}
	_, err := readAs(t, "auto", strings.Replace(aLine, "192.0.2.1", "192.0.2.1:http", 1))
	assert.ErrorContains(t, err, "not an IP address")
}

// A status that is missing is no reason to leave a line out, and neither is a byte order mark.
func TestLinesWithoutAStatus(t *testing.T) {
	log, err := readAs(t, "auto", "\ufeff"+strings.Replace(aLine, " 200 1 ", " - - ", 1)+"\n"+strings.Replace(aLine, " 200 1 ", " - 12 ", 1)+"\n")
	require.NoError(t, err)
	assert.Len(t, log.Events, 2)
	assert.Zero(t, log.Malformed)
	log, err = readAs(t, "auto", string(zip(t, "\ufeff"+aJSON+"\n"+aJSON)))
	require.NoError(t, err)
	assert.Len(t, log.Events, 2, "also where it was compressed")
}

// Zeros behind gzip data, as a block device has them, end the log.
func TestGzipWithZerosBehind(t *testing.T) {
	for _, zeros := range []int{1, 9, 10, 512, 200_000} {
		lines := maps.Collect(linesOf(strings.NewReader(string(zip(t, "a\n")) + strings.Repeat("\x00", zeros))))
		assert.Equal(t, map[string]error{"a": nil}, lines, zeros)
	}
	lines := maps.Collect(linesOf(strings.NewReader(string(zip(t, "a\n")) + string(zip(t, "b\n")) + "\x00\x00")))
	assert.Equal(t, map[string]error{"a": nil, "b": nil}, lines)
}

// The runtimes of Kubernetes cut long lines into parts, P, of which the last is F.
func TestPartialLinesOfCRI(t *testing.T) {
	const head = "2026-05-17T10:05:04.669794202Z "
	part := func(stream, tag, text string) string { return head + stream + " " + tag + " " + text + "\n" }
	for name, c := range map[string]struct{ text, want string }{
		"two parts":      {part("stdout", "P", "a") + part("stdout", "F", "b"), head + "stdout F ab"},
		"three":          {part("stdout", "P", "a") + part("stdout", "P", "b") + part("stdout", "F", "c"), head + "stdout F abc"},
		"with more tags": {part("stdout", "P:x", "a") + part("stdout", "F:x", "b"), head + "stdout F:x ab"},
		"two streams":    {part("stdout", "P", "a") + part("stderr", "F", "x") + part("stdout", "F", "b"), head + "stderr F x|" + head + "stdout F ab"},
		"at the end":     {part("stdout", "P", "a"), ""},
		"too long":       {strings.Repeat(part("stdout", "P", strings.Repeat("a", MaxLine/2)), 9) + part("stdout", "F", "b") + part("stdout", "F", "c"), "long|" + head + "stdout F c"},
		"whole lines":    {part("stdout", "F", "a") + part("stdout", "F", "b"), head + "stdout F a|" + head + "stdout F b"},
		"no part at all": {"stdout P a\nb\n", "stdout P a|b"},
	} {
		var lines []string
		var joiner partJoiner
		for text, err := range linesOf(strings.NewReader(c.text)) {
			require.NoError(t, err)
			line, complete, err := joiner.join(text)
			if err != nil {
				assert.ErrorIs(t, err, ErrMalformed, name)
				line = "long"
			}
			if complete {
				lines = append(lines, line)
			}
		}
		assert.Equal(t, c.want, strings.Join(lines, "|"), name)
	}
	log, err := readAs(t, "auto", part("stdout", "P", aLine[:20])+part("stdout", "F", aLine[20:])+part("stderr", "P", aLine))
	require.NoError(t, err)
	assert.Len(t, log.Events, 1)
	assert.Equal(t, []Fault{{Reason: "the end of a line that CRI has cut is missing", Lines: 1}}, log.Faults)
	assert.Equal(t, 3, int(log.Lines))
}

// What cannot be read is named, with the program that makes it readable.
func TestUnreadableLogs(t *testing.T) {
	utf16 := func(text string) string { return strings.Join(strings.Split(text, ""), "\x00") + "\x00" }
	for name, c := range map[string]struct{ text, want string }{
		"UTF-16, little":             {"\xff\xfe" + utf16(aLine), "it is text in UTF-16, and UTF-8 is wanted: iconv -f UTF-16 -t UTF-8 FILE"},
		"UTF-16, big":                {"\xfe\xff\x00" + utf16(aLine), "it is text in UTF-16, and UTF-8 is wanted: iconv -f UTF-16 -t UTF-8 FILE"},
		"UTF-16, little, no mark":    {utf16(aLine), "it is text in UTF-16, and UTF-8 is wanted: iconv -f UTF-16LE -t UTF-8 FILE"},
		"UTF-16, big, no mark":       {"\x00" + utf16(aLine), "it is text in UTF-16, and UTF-8 is wanted: iconv -f UTF-16BE -t UTF-8 FILE"},
		"bzip2":                      {"BZh91AY&SY....", "it is compressed by bzip2, and plain text or gzip is wanted: bzip2 -dc FILE"},
		"xz":                         {"\xfd7zXZ\x00\x00\x04", "it is compressed by xz, and plain text or gzip is wanted: xz -dc FILE"},
		"zstd":                       {"\x28\xb5\x2f\xfd....", "it is compressed by zstd, and plain text or gzip is wanted: zstd -dc FILE"},
		"zip":                        {"PK\x03\x04....", "it is compressed by zip, and plain text or gzip is wanted: unzip -p FILE"},
		"gzip with zeros, and more":  {string(zip(t, aLine+"\n")) + strings.Repeat("\x00", 512) + "garbage garbage", "bytes behind the gzip data are not gzip: gzip -dc FILE"},
		"gzip with garbage behind":   {string(zip(t, aLine+"\n")) + "garbage garbage garbage", "bytes behind the gzip data are not gzip: gzip -dc FILE"},
		"gzip that is cut off":       {string(zip(t, strings.Repeat(aLine+"\n", 9)))[:60], "the gzip data is cut off: gzip -dc FILE"},
		"UTF-16, compressed by gzip": {string(zip(t, "\xff\xfe"+utf16(aLine))), "it is text in UTF-16"},
	} {
		_, err := readAs(t, "auto", c.text)
		assert.ErrorContains(t, err, "log: "+c.want, name)
		assert.ErrorContains(t, err, " | loadtest", name)
	}
}
