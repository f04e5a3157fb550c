package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/whatif"
)

const apacheLog = "testdata/apache_logs.log.gz"

// rulesFile writes a rules file, and returns its name.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestWhatIf(t *testing.T) {
	rules := rulesFile(t, "events: {signup: {limits: [{per: ip, rate: 1/m}]}}")
	got := runWith(t, strings.NewReader(log), "replay", "-rules", rules, "-top", "0")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, "loadtest: 1 malformed lines: 2; 1: feature of kind \"ip\": the value is not an IP address\n", got.err)
	assert.Equal(t, `signup: 4 hits, from 2015-05-15T10:05:03Z to 2015-05-17T10:05:33Z
of 5 lines 1 malformed

              hits  admitted  denied  alone  over  features  ever denied
ip-1-per-1m      4         3       1      1     0         2            1  50.00%
all together     4         3       1                      2            1  50.00%
`, got.out)

	page := filepath.Join(t.TempDir(), "report.html")
	got = runWith(t, nil, "replay", "-rules", rules, "-json", "-html", page, apacheLog)
	require.Equal(t, exitOK, got.status, got.err)
	var report whatif.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	require.EqualValues(t, 10_000, report.All.Hits)
	require.Len(t, report.All.MostDenied, whatif.DefaultTop)
	require.Equal(t, report.Limits[0].Score, report.All)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "What these rules would have done: signup")
	require.Contains(t, string(html), "<svg")
}

// What hits cost is in a field of the log.
func TestWhatIfWithCosts(t *testing.T) {
	rules := rulesFile(t, "events: {export: {limits: [{per: user, rate: 10/m}]}}")
	lines := `{"time": 1431857103, "user": "anna", "rows": 7}
{"time": 1431857104, "user": "anna", "rows": 4}
{"time": 1431857105, "user": "anna", "rows": 3}
{"time": 1431857106, "user": "anna"}
{"time": 1431857106, "user": "anna", "rows": 0}
{"time": 1431857107, "rows": 3}
`
	got := runWith(t, strings.NewReader(lines), "replay", "-rules", rules, "-features", "user", "-cost", "rows")
	require.Equal(t, exitOK, got.status, got.err)
	require.Contains(t, got.out, "of 6 lines 1 without user\nof 6 lines 1 without the features of any limit: not decided\nof 6 lines 1 without a cost: not decided\n")
	require.Contains(t, got.out, "\nuser-10-per-1m     4         2       2      2", "7 and 3 are admitted, 4 and the 1 of a line without rows are not")
}

// A message that came several times costs as often as it came, with -format sshd by itself and
// with -cost of a group that most lines lack.
func TestWhatIfOfARepeatedMessage(t *testing.T) {
	rules := rulesFile(t, "events: {login_failed: {limits: [{per: ip, rate: 5/5m}]}}")
	lines := `Dec 10 06:55:48 bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2
Dec 10 06:55:50 bastion sshd[7]: message repeated 4 times: [ Failed password for root from 192.0.2.1 port 4711 ssh2]
Dec 10 06:55:51 bastion sshd[7]: Disconnecting: Too many authentication failures for root [preauth]
Dec 10 06:55:52 bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2
`
	const expression = `^(?P<time>.{15}) .*: (?:message repeated (?P<times>\d+) times: \[ )?Failed password for .* from (?P<ip>\S+) `
	for name, args := range map[string][]string{
		"sshd":       {"-format", "sshd"},
		"sshd, said": {"-format", "sshd", "-cost", "n"},
		"regexp":     {"-regexp", expression, "-features", "ip", "-cost", "times"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, strings.NewReader(lines), append([]string{"replay", "-rules", rules, "-year", "2025"}, args...)...)
			require.Equal(t, exitOK, got.status, got.err)
			require.Empty(t, got.err)
			require.Contains(t, got.out, "of 4 lines 1 filtered\n")
			require.Contains(t, got.out, "\nip-5-per-5m      3         2       1")
		})
	}
	got := runWith(t, strings.NewReader(strings.ReplaceAll(lines, "Dec 10", "Feb 29")), "replay", "-rules", rules, "-format", "sshd", "-year", "2025")
	require.Equal(t, exitFailed, got.status)
	require.Contains(t, got.err, "the 29 February in it is none of 2025; -year names the year of the last line")
}

func TestSuggest(t *testing.T) {
	folder := t.TempDir()
	file, page := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "report.html")
	got := runWith(t, nil, "replay", "-suggest", "-deny", "1", "-event", "signup", "-write", file, "-html", page, apacheLog)
	require.Equal(t, exitOK, got.status, got.err)
	assert.NotContains(t, got.out, "events:")
	rules, err := rulesfile.Read(file)
	require.NoError(t, err)
	require.Len(t, rules.Events["signup"].Rules, 1)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(html), "limit 36/h")

	// The same from standard input, and as JSON.
	zipped, err := os.Open(apacheLog)
	require.NoError(t, err)
	defer zipped.Close()
	got = runWith(t, zipped, "replay", "-suggest", "-deny", "1%", "-event", "signup", "-json", "-")
	require.Equal(t, exitOK, got.status, got.err)
	var report struct {
		Rules string        `json:"rules"`
		Deny  string        `json:"deny_percent"`
		Kinds []whatif.Kind `json:"kinds"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(written), strings.Replace(report.Rules, "standard input", "apache_logs.log.gz", 1))
	assert.Equal(t, "1", report.Deny)
	assert.Equal(t, 17, report.Kinds[0].Denied)

	got = runWith(t, nil, "replay", "-suggest", "-deny", "1", "-event", "signup", apacheLog)
	require.Equal(t, exitOK, got.status, got.err)
	assert.True(t, strings.HasSuffix(got.out, "\n\n"+string(written)), got.out)

	got = runWith(t, nil, "replay", "-rules", file, apacheLog)
	require.Equal(t, exitOK, got.status, got.err)
	assert.Regexp(t, `(?m)^all together +10000 +8874 +1126 +1753 +17 +0\.97%$`, got.out)
}

// The rules that failures suggest catch those who made most of them, and deny no other.
func TestSuggestOfFailures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	all := `^(?P<time>.{15}) .*: Failed password for (?:invalid user )?(?P<user>\S+) from (?P<host>\S+) `
	for name, args := range map[string][]string{
		"by the format": {"-format", "sshd", "-features", "ip=host"},
		"two kinds":     {"-format", "sshd", "-features", "ip=host,user"},
		"any lines":     {"-failures", "-event", "login", "-regexp", all, "-features", "ip=host"},
	} {
		args = append(append(args, "-year", "2026"), "testdata/auth.log")
		got := runWith(t, nil, append([]string{"replay", "-suggest", "-write", file}, args...)...)
		require.Equal(t, exitOK, got.status, got.err)
		rules, err := rulesfile.Read(file)
		require.NoError(t, err, name)
		for _, rule := range rules.Events["login"].Rules {
			assert.Equal(t, events.CountAll, rule.Count, "%s: an attacker whom one rule denies counts for the other", name)
		}
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == "-failures" })
		got = runWith(t, nil, append([]string{"replay", "-rules", file}, args...)...)
		require.Equal(t, exitOK, got.status, got.err)
		assert.Regexp(t, `(?m)^ip-5-per-1h +\d+ +\d+ +\d+ +\d+ +0 +9 +6 +66\.67%$`, got.out, "%s: six of nine addresses attack", name)
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(written), "# Reserve a hit before each try")

	few := strings.Repeat("2026-01-01T00:00:01Z bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2\n", 3)
	got := runWith(t, strings.NewReader(few), "replay", "-format", "sshd")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, "rate: [5/s]", "users may mistype")
}

func TestOfflineFailures(t *testing.T) {
	rules := rulesFile(t, "events: {signup: {limits: [{per: ip, rate: 1/m}]}}")
	folder := t.TempDir()
	for want, c := range map[string]struct {
		log  string
		args []string
	}{
		"open nowhere: no such file":                                     {"", []string{"-rules", rules, "nowhere"}},
		"whatif: nothing to decide: the log is empty":                    {"", []string{"-rules", rules, "-"}},
		"accesslog: no line is in the format":                            {"nonsense\n", []string{"-suggest", "-"}},
		"-features names the fields":                                     {log, []string{"-suggest", "-features", "user=user", "-"}},
		"-html: open " + folder + ": is a directory":                     {log, []string{"-rules", rules, "-html", folder, "-"}},
		"-write: open " + folder + ": is a directory":                    {log, []string{"-suggest", "-write", folder, "-"}},
		"whatif: a time that cannot be counted: the log goes from 1970-": {`{"time": 3, "host": "192.0.2.1"}`, []string{"-rules", rules, "-"}},
	} {
		got := runWith(t, strings.NewReader(c.log), append([]string{"replay"}, c.args...)...)
		assert.Equal(t, exitFailed, got.status, want)
		assert.Contains(t, got.err, want)
	}
}

func TestOfflineInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"-suggest"}, {"-rules", rulesFile(t, "events: {signup: {limits: [{per: ip, rate: 1/m}]}}")}} {
		var said strings.Builder
		status := run(ctx, append(append([]string{"replay"}, args...), "-"), streams{strings.NewReader(log), io.Discard, &said})
		assert.Equal(t, exitInterrupted, status)
		assert.Contains(t, said.String(), "loadtest: interrupted\n")
	}
}
