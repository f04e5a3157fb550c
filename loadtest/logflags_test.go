package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/loadtest/replay"
)

const failedLogins = `Dec 31 23:59:59 bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2
Dec 31 23:59:59 bastion CRON[8]: pam_unix(cron:session): session opened for user root by (uid=0)
Jan  1 00:00:01 bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2
`

// The same events in every format.
func TestEveryFormat(t *testing.T) {
	jsonLog := `{"at": "17.05.2015 10:05:03", "client": {"ip": "192.0.2.1"}, "user": "a"}
{"at": "17.05.2015 09:05:03", "client": {"ip": "192.0.2.2"}}
`
	for name, c := range map[string]struct {
		log  string
		args []string
		want string
	}{
		"auto":   {strings.ReplaceAll(log, "www.example.com", "192.0.2.1"), []string{"-features", "ip=host,user"}, "5 hits, from 2015-05-15T10:05:03Z"},
		"common": {log[:strings.Index(log, "\n")], nil, "1 hits, from 2015-05-17T10:05:03Z"},
		"JSON":   {jsonLog, []string{"-features", "ip=client.ip,user", "-time-field", "at", "-time-layout", "02.01.2006 15:04:05"}, "2 hits, from 2015-05-17T09:05:03Z"},
		"vhost":  {"www.example.com:443 " + log[:strings.Index(log, "\n")], []string{"-features", "ip=host,user=vhost"}, "1 hits, from 2015-05-17T10:05:03Z"},
		"sshd":   {failedLogins, []string{"-format", "sshd", "-features", "ip=host,user", "-year", "2025"}, "2 hits, from 202"},
		"syslog": {failedLogins, []string{"-features", "ip,user", "-year", "2025",
			"-regexp", `^(?P<time>.{15}) .*: Failed password for (?P<user>\S+) from (?P<ip>\S+) `}, "2 hits, from 202"},
		"regexp": {"a 1431857103 192.0.2.1 x\nb 1431857104 192.0.2.2 y\n", []string{
			"-regexp", `^(?P<user>\S+) (?P<time>\S+) (?P<ip>\S+)`, "-features", "user,ip"}, "2 hits, from 2015-05-17T10:05:03Z"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := rulesFile(t, "events: {e: {limits: [{per: ip, rate: 1/h}]}}")
			got := runWith(t, strings.NewReader(c.log), append([]string{"replay", "-rules", rules}, c.args...)...)
			assert.Equal(t, exitOK, got.status, got.err+got.out)
			assert.Empty(t, got.err)
			assert.Contains(t, got.out, "e: "+c.want)
		})
	}
}

// A log in another format says which flag reads it.
func TestAnotherFormat(t *testing.T) {
	rules := rulesFile(t, "events: {e: {limits: [{per: ip, rate: 1/h}]}}")
	got := runWith(t, strings.NewReader(failedLogins), "replay", "-rules", rules)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "of 3 lines 3 malformed: it is not in the common or combined log format; -format sshd reads failed logins")
}

// Several files are one log, and what is malformed is named with its file.
func TestReplayOfSeveralFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var names []string
	for i, text := range []string{log, "foo\n" + log, log} {
		name := filepath.Join(folder, fmt.Sprintf("access.log.%d", i))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		names = append(names, name)
	}
	names[2] = "-"
	got := runWith(t, strings.NewReader(log), append([]string{"replay", "-increment", "-json", "-url", serve(t, &fakeserver.Server{}), "-windows", "3h"}, names...)...)
	assert.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, fmt.Sprintf("loadtest: 4 malformed lines: %s:2 %s:1 %[2]s:3 standard input:2; 3: feature of kind \"ip\": the value is not an IP address; 1: it is not in the common or combined log format\n", names[0], names[1]), got.err)
	var result replay.Result
	require.NoError(t, json.Unmarshal([]byte(got.out), &result, json.RejectUnknownMembers(true)))
	assert.Equal(t, 16, result.Lines)
	assert.Equal(t, 9, result.Events)
	assert.Equal(t, []string{names[0] + ":2", names[1] + ":1", names[1] + ":3", "standard input:2"},
		result.MalformedLines)

	got = runWith(t, nil, "replay", "-increment", "-url", "http://127.0.0.1:1", names[0], filepath.Join(folder, "nothing"))
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing")
}
