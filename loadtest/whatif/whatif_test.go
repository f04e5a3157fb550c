package whatif_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/insight/dryrun"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/page"
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
		"windows in logs": {`[{per: ip, rate: [20/h, 60/d], algorithm: fixed-log}, {per: ip, rate: [3/s, 90/d], algorithm: sliding-log},
			{per: [ip, path], rate: 5/week, algorithm: fixed-log, calendar: America/New_York}]`, "ip=host,path=path", ""},
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

// A denial that is remembered for its second has its other limits as they were then;
// since then one on the allow list was counted.
func TestOtherLimitsOfARememberedDenial(t *testing.T) {
	report := ruled{"[{per: ip, rate: [1/m, 2/h], allow: [\"2001:db8::2\"]}]", "ip=host", ""}.agree(t, at("10:05:03", "2001:db8::1")+at("10:05:03", "2001:db8::1")+at("10:05:03", "2001:db8::2")+at("10:05:03", "2001:db8::1"))
	require.EqualValues(t, 2, report.Limits[0].Denied)
	require.EqualValues(t, 1, report.Limits[1].Denied)
	require.EqualValues(t, 1, report.Limits[0].Alone)
	require.EqualValues(t, 1, report.All.Features)
}

func TestWhatCannotBeDecided(t *testing.T) {
	line := at("10:05:03", "192.0.2.1")
	for name, c := range map[string]struct {
		text, mapping, limits, cost string
		want                        error
		says                        string
	}{
		"an empty log":     {"", "ip=host", "[{per: ip, rate: 1/m}]", "", whatif.ErrNoHits, "the log is empty"},
		"no limits":        {line, "ip=host", "[]", "", whatif.ErrNoHits, "test has no limits"},
		"no such features": {line, "user=user", "[{per: user, rate: 1/m}, {per: [user, ip], rate: 1/m}]", "", whatif.ErrNoHits, "of 1 lines none has the features that test is limited per: ip, user"},
		"no cost":          {line, "ip=host,cost=method", "[{per: ip, rate: 1/m}]", "cost", whatif.ErrNoHits, "of 1 lines 1 have no cost from 1 to 1000000"},
		"a span of years":  {strings.Replace(line, "2015", "1970", 1) + line, "ip=host", "[{per: ip, rate: 1/m}]", "", nil, ""},
		"before 1970":      {strings.Replace(line, "17/May/2015", "30/Jan/1970", 1), "ip=host", "[{per: ip, rate: 1/m}]", "", whatif.ErrTime, "from 1970-01-30T10:05:03Z to 1970-01-30T10:05:03Z"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := whatif.Run(t.Context(), whatif.Config{Event: parsed(t, c.limits), Log: readLog(t, c.text, c.mapping), CostKind: c.cost})
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
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

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	progress := &counted{after: cancel}
	_, err := whatif.Run(ctx, whatif.Config{Event: parsed(t, "[{per: ip, rate: 20/d}]"), Log: readLog(t, realText(t), "ip=host"), Progress: progress})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1000, progress.steps, "it ends at once")
	require.Equal(t, 10_000, progress.of)
}

// counted is a progress that calls a function after its first steps.
type counted struct {
	of, steps int
	after     func()
}

func (c *counted) Start(_ string, steps int) { c.of = steps }

func (c *counted) Add(steps int) {
	c.steps += steps
	c.after()
}

const text = `test: 7 hits, from 2015-05-17T10:05:03Z to 2015-05-17T10:05:09Z
of 8 lines 1 malformed

              hits  admitted  denied  alone  over  features  ever denied
ip-2-per-1m      7         4       3      3     0         2            1  50.00%
ip-1-per-1s      7         6       1      1     0         2            1  50.00%
all together     7         3       4                      2            1  50.00%

all limits together
most denied   hits  denied          first denial           last denial
ip:192.0.2.1     6       4  2015-05-17T10:05:03Z  2015-05-17T10:05:09Z

ip-2-per-1m
most denied   hits  denied          first denial           last denial
ip:192.0.2.1     6       3  2015-05-17T10:05:06Z  2015-05-17T10:05:09Z

ip-1-per-1s
most denied   hits  denied          first denial           last denial
ip:192.0.2.1     6       1  2015-05-17T10:05:03Z  2015-05-17T10:05:03Z
`

func aReport(t *testing.T) *whatif.Report {
	log := at("10:05:03", "192.0.2.1") + at("10:05:03", "192.0.2.1") + at("10:05:04", "192.0.2.1") + at("10:05:06", "192.0.2.1") +
		at("10:05:03", "192.0.2.2") + "nonsense\n" + at("10:05:09", "192.0.2.1") + at("10:05:09", "192.0.2.1")
	report, err := whatif.Run(t.Context(), whatif.Config{Event: parsed(t, "[{per: ip, rate: [2/m, 1/s]}]"), Log: readLog(t, log, "ip=host")})
	require.NoError(t, err)
	return report
}

func TestText(t *testing.T) {
	var out strings.Builder
	require.NoError(t, aReport(t).WriteText(&out))
	require.Equal(t, text, out.String())
}

// The page has what the text has, and the timeline.
func TestPage(t *testing.T) {
	report := aReport(t)
	p := report.Page()
	require.Equal(t, []string{"Limits", "Over time", "Most denied, all limits together", "Most denied by ip-2-per-1m", "Most denied by ip-1-per-1s"}, titles(p))
	plot := p.Sections[1].Plot
	require.Equal(t, []float64{2, 1, 0, 0, 0, 0, 0, 0}, plot.Lines[0].Y, "the last step is there twice: it has an end")
	require.Equal(t, []float64{1, 0, 0, 1, 0, 0, 2, 2}, plot.Lines[1].Y)
	require.EqualValues(t, report.From.Unix(), plot.Lines[0].X[0])
	require.NoError(t, p.Write(io.Discard))
}

func titles(p page.Page) (titles []string) {
	for _, section := range p.Sections {
		titles = append(titles, section.Title)
	}
	return titles
}

// A feature is shown on one line, and not longer than that.
func TestFeaturesAreShown(t *testing.T) {
	for feature, want := range map[string]string{
		"ip:192.0.2.1": "ip:192.0.2.1", "a\x1b[1mb": `"a\x1b[1mb"`, strings.Repeat("ü", 90): strings.Repeat("ü", 60) + "…", "": "the whole event",
	} {
		report := whatif.Report{All: whatif.Score{MostDenied: []whatif.Feature{{Feature: feature}}}}
		var out strings.Builder
		require.NoError(t, report.WriteText(&out))
		require.Contains(t, out.String(), "\n"+want+"     0 ")
	}
}

// No time passes: not where a limit is overfull either, by hits on the allow list, where
// the engine would else give others time to take something back.
func TestNoTimePasses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		var log strings.Builder
		for i := range 50 {
			clock := fmt.Sprintf("10:05:%02d", i)
			log.WriteString(at(clock, "2001:db8::2") + at(clock, "2001:db8::1") + at(clock, "192.0.2.1"))
		}
		event := parsed(t, `[{per: ip, rate: [2/s, 5/m, 10/h], allow: ["2001:db8::2"]}, {per: [], rate: 40/m}]`)
		report, err := whatif.Run(t.Context(), whatif.Config{Event: event, Log: readLog(t, log.String(), "ip=host")})
		require.NoError(t, err)
		require.Positive(t, report.Limits[1].Denied)
		require.Positive(t, report.Limits[3].Denied)
		require.Equal(t, began, time.Now())
	})
}

// A network instead of an address would get a 400 from counterd, and is not
// decided. No log that was read has one.
func TestWhatIsRefused(t *testing.T) {
	log := &accesslog.Log{Lines: 2, Actors: []events.Features{{"ip": "10.0.0.0/8"}, {"ip": "192.0.2.1"}}}
	for actor := range log.Actors {
		log.Events = append(log.Events, accesslog.Event{Micros: 1_431_857_103_000_000, Actor: uint32(actor)})
	}
	report, err := whatif.Run(t.Context(), whatif.Config{Event: parsed(t, "[{per: ip, rate: 1/m}, {per: [ip, user], rate: 1/m}]"), Log: log})
	require.NoError(t, err)
	require.Equal(t, 1, report.Refused)
	require.EqualValues(t, 1, report.All.Hits)
	require.Zero(t, report.Limits[1].Hits)
	require.Equal(t, []whatif.Missing{{Kind: "user", Lines: 2}}, report.Missing)
	suggested, err := whatif.Suggest(t.Context(), whatif.SuggestConfig{Config: whatif.Config{Log: log}, Kinds: []string{"ip"}, EventName: "test"})
	require.NoError(t, err)
	require.Equal(t, 1, suggested.Kinds[0].Features)
	require.Equal(t, 1, suggested.Kinds[0].Hits)
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
