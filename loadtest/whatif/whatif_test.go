package whatif_test

import (
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/whatif"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realText returns the text of the real log.
func realText(t *testing.T) string {
	t.Helper()
	file, err := os.Open("../testdata/apache_logs.log.gz")
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	text, err := io.ReadAll(unzipped)
	require.NoError(t, err)
	return string(text)
}

// readLog reads a log in the combined format, whose fields are features as the mapping says.
func readLog(t *testing.T, text, mapping string) *accesslog.Log {
	t.Helper()
	kinds, err := accesslog.ParseMapping(mapping)
	require.NoError(t, err)
	format, err := accesslog.New(accesslog.Config{Fields: kinds.Fields()})
	require.NoError(t, err)
	log, err := accesslog.ReadLog(t.Context(), format, kinds, accesslog.Stream("", strings.NewReader(text)))
	require.NoError(t, err)
	return log
}

// parsed returns the event test with the limits of a rules file.
func parsed(t testing.TB, limits string) *events.Event {
	t.Helper()
	rules, err := rulesfile.Parse([]byte("events: {test: {limits: " + limits + "}}"))
	require.NoError(t, err, limits)
	return rules.Events["test"]
}

// ruled is the limits of a rules file, how a log is read for them, and the field of costs.
type ruled struct{ limits, mapping, cost string }

// agree has both implementations run, and compares every number.
func (r ruled) agree(t *testing.T, text string) *whatif.Report {
	t.Helper()
	mapping, costKind := r.mapping, ""
	kinds := map[string]string{}
	for part := range strings.SplitSeq(r.mapping, ",") {
		kind, field, _ := strings.Cut(part, "=")
		kinds[kind] = field
	}
	if r.cost != "" {
		mapping, costKind = mapping+",cost="+r.cost, "cost"
	}
	const top = 7
	event := parsed(t, r.limits)
	got, err := whatif.Run(t.Context(), whatif.Config{Event: event, Log: readLog(t, text, mapping), CostKind: costKind, Top: top})
	require.NoError(t, err)
	second := slow{kinds: kinds, costs: r.cost, rules: event.Rules}
	require.Equal(t, second.run(slowLines(text), top), got)
	return got
}

func theRules() map[string]ruled {
	return map[string]ruled{
		"one limit":                   {"[{per: ip, rate: 20/h}]", "ip=host", ""},
		"5/m":                         {"[{per: ip, rate: 5/m}]", "ip=host", ""},
		"four limits":                 {"[{per: ip, rate: [2/s, 5/m, 10/h, 100/d]}]", "ip=host", ""},
		"count all":                   {"[{per: ip, rate: [5/m, 30/d], count: all}]", "ip=host", ""},
		"shadow":                      {"[{per: ip, rate: [2/s, 40/d], shadow: true}, {per: ip, rate: 100/d, name: real}]", "ip=host", ""},
		"per method, path and both":   {"[{per: [ip, path], rate: [3/m, 8/12h]}, {per: method, rate: 300/d}, {per: [], rate: 40/10m}]", "ip=host,path=path,method=method", ""},
		"users, who are seldom there": {"[{per: user, rate: 1/d}]", "ip=host,user=status", ""},
		"costs":                       {"[{per: ip, rate: [100000/s, 1000000/h], name: bytes}, {per: ip, rate: 300000/m, shadow: true}]", "ip=host", "bytes"},
		"lists and overrides": {`[{per: ip, rate: [3/m, 9/h], allow: [66.249.73.135, 46.0.0.0/8], deny: [46.105.14.53, 50.16.0.0/16],
			overrides: {"130.237.218.86": 50/h, "75.97.9.59": 50/h}}]`, "ip=host", ""},
		"soft, and elastic": {"[{per: ip, rate: [10/h, 25/d], throttle: soft 30%}, {per: path, rate: 5/m, throttle: elastic}, {per: [], rate: 120/h}]", "ip=host,path=path", ""},
		"token buckets": {`[{per: ip, rate: 30/h, burst: 8}, {per: [ip, path], rate: 1/m, queue: 2}, {per: ip, rate: 60/d, burst: 30, throttle: soft 20%},
			{per: path, rate: 4/m, burst: 3, count: all, shadow: true}]`, "ip=host,path=path", ""},
		"fixed windows, and logs": {`[{per: ip, rate: [20/h, 60/d], algorithm: fixed-window}, {per: ip, rate: [3/s, 90/d], algorithm: sliding-log},
			{per: [ip, path], rate: 5/week, calendar: America/New_York}]`, "ip=host,path=path", ""},
		"leases":          {"[{per: ip, concurrent: 2, lease: 30s}, {per: path, concurrent: 9, lease: 10m, shadow: true}, {per: ip, rate: 100/d, count: all}]", "ip=host,path=path", ""},
		"tokens by costs": {"[{per: ip, rate: 600/m, burst: 700}, {per: path, rate: 900/h, burst: 650}, {per: ip, concurrent: 4, lease: 20s}]", "ip=host,path=path", "status"},
		"precision":       {"[{per: ip, rate: [6/90s, 9/2h, 50/2d], precision: minute}]", "ip=host", ""},
	}
}

// On the real log every number of every report is what the second implementation says.
func TestOnTheRealLog(t *testing.T) {
	text := realText(t)
	for name, rules := range theRules() {
		if !testkit.Thorough() && name != "token buckets" && name != "windows in logs" && name != "leases" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := rules.agree(t, text)
			own := map[string]bool{} // limits of rules; those of overrides may deny nothing
			for _, rule := range parsed(t, rules.limits).Rules {
				for _, l := range rule.Limits {
					own[l.Name] = true
				}
			}
			for _, l := range report.Limits {
				if own[l.Name] {
					require.Positive(t, l.Denied, "%s denies nothing, and proves nothing", l.Name)
				}
			}
		})
	}
}

// at returns a line of a log.
func at(clock, host string) string {
	return host + " - - [17/May/2015:" + clock + ` +0000] "GET / HTTP/1.1" 200 1` + "\n"
}

// Counters that do not fit into memory would begin again from zero: that is an error.
func TestNoCounterIsEvicted(t *testing.T) {
	log := readLog(t, realText(t), "ip=host")
	event := parsed(t, "[{per: ip, rate: 20/d}]")
	_, err := whatif.Run(t.Context(), whatif.Config{Event: event, Log: log, MaxBytes: 256 << 10})
	require.ErrorIs(t, err, dryrun.ErrMemory)
	_, err = whatif.Run(t.Context(), whatif.Config{Event: event, Log: log})
	require.NoError(t, err)
}

// Below a minute its windows slide by milliseconds, if the log's times have them.
func TestALogDecidesMilliseconds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	log := readLog(t, strings.Repeat(at("10:00:00", "192.0.2.1"), 500), "ip=host")
	var admitted exactlog.Log
	var denied int
	milli := log.Events[0].Micros / 1000
	for i := range log.Events {
		milli += random.Int64N(700)
		log.Events[i].Micros = milli*1000 + random.Int64N(1000)
		if admitted.Sum(milli-999, milli) < 2 && admitted.Sum(milli-6999, milli) < 9 {
			admitted.Add(milli, 1)
		} else {
			denied++
		}
	}
	event := parsed(t, "[{per: ip, rate: [2/s, 9/7s], algorithm: sliding-log}]")
	report, err := whatif.Run(t.Context(), whatif.Config{Event: event, Log: log})
	require.NoError(t, err)
	require.EqualValues(t, denied, report.All.Denied)
	require.Positive(t, denied)
}
