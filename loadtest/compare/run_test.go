package compare

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/memcached"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trafficAt returns hits of one feature so many seconds after midnight.
func trafficAt(seconds ...float64) *accesslog.Log {
	log := &accesslog.Log{Actors: []events.Features{{"user": "f"}}}
	midnight := opening.Truncate(24 * time.Hour).UnixMicro()
	for _, s := range seconds {
		log.Events = append(log.Events, accesslog.Event{Micros: midnight + int64(s*1e6)})
	}
	return log
}

// times returns n times the same second.
func times(n int, at float64) []float64 { return slices.Repeat([]float64{at}, n) }

func rowOf(t *testing.T, c *Comparison, name string) Row {
	t.Helper()
	i := slices.IndexFunc(c.Rows, func(r Row) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, "there is no row %s", name)
	return c.Rows[i]
}

// What each way does wrong is known where the traffic is made for it.
func TestKnownWrongs(t *testing.T) {
	even := func(n int, from, step float64) (list []float64) {
		for i := range n {
			list = append(list, from+float64(i)*step)
		}
		return list
	}
	ten := events.Limit{N: 10, Window: 10 * time.Second}
	type wrongs struct {
		admissions, denials, most int64
	}
	for name, c := range map[string]struct {
		seconds []float64
		limit   events.Limit
		exactly bool
		want    map[string]wrongs
	}{
		// A fixed window admits twice the limit at its edge: the second ten are wrong.
		"at the edge of a window": {append(times(15, 19), times(15, 20)...), ten, false, map[string]wrongs{
			"fixed window": {10, 0, 20}, "two windows": {0, 0, 10}, "sliding log": {0, 0, 10}, "counterd": {0, 0, 10},
			"token bucket": {1, 0, 11}, "GCRA": {1, 0, 11}, "log, 3 at once": {0 + 2 + 0, 0, 12},
		}},
		// Half a window after a burst at the end of the one before, half of it seems gone.
		"in the middle of a window": {append(times(10, 19), times(10, 25)...), ten, false, map[string]wrongs{
			"fixed window": {10, 0, 20}, "two windows": {5, 0, 15}, "sliding log": {0, 0, 10}, "counterd": {0, 0, 10},
			"token bucket": {6, 0, 16}, "GCRA": {6, 0, 16},
		}},
		// A burst at the beginning of the window before is over, and half of it counts still.
		"half a window later": {append(times(10, 10), times(10, 25)...), ten, false, map[string]wrongs{
			"fixed window": {0, 0, 10}, "two windows": {0, 5, 10}, "sliding log": {0, 0, 10}, "counterd": {0, 0, 10},
			"token bucket": {0, 0, 10}, "GCRA": {0, 0, 10},
		}},
		// A bucket that was full is filled while it is emptied: 5 in 10s come to 5 and one
		// every other second.
		"a burst, and then evenly": {append(times(5, 20), even(9, 21, 1)...), events.Limit{N: 5, Window: 10 * time.Second}, false, map[string]wrongs{
			"fixed window": {0, 0, 5}, "sliding log": {0, 0, 5}, "counterd": {0, 0, 5}, "token bucket": {4, 0, 9}, "GCRA": {4, 0, 9},
		}},
		// Ten whole seconds may touch eleven: what is exact by the second is not by the
		// nanosecond, and what is exact by that is by the second.
		"the part of a second": {append(times(10, 20.9), times(10, 30)...), ten, true, map[string]wrongs{
			"counterd": {10, 0, 20}, "sliding log": {0, 0, 10}, "fixed window": {10, 0, 20},
		}},
		"the part of a second, by the second": {append(times(10, 20.9), times(10, 30)...), ten, false, map[string]wrongs{
			"counterd": {0, 0, 10}, "sliding log": {0, 0, 10}, "fixed window": {0 + 0, 0, 10},
		}},
		// A minute's precision takes the whole of the minute in which the window begins.
		"a window that begins within a minute": {[]float64{61, 200, 245}, events.Limit{N: 2, Window: 3 * time.Minute}, false, map[string]wrongs{
			"counterd": {0, 0, 2}, "counterd, precision: minute": {0, 1, 2}, "sliding log": {0, 0, 2},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Run(t.Context(), Config{Traffic: trafficAt(c.seconds...), Kind: "user", Limit: c.limit, Exactly: c.exactly, processes: 3})
			require.NoError(t, err)
			for who, want := range c.want {
				row := rowOf(t, found, who)
				assert.Equal(t, want, wrongs{row.WrongAdmissions, row.WrongDenials, row.MostInAWindow}, who)
				assert.InDelta(t, float64(want.most)/float64(c.limit.N), row.WorstWindow, 1e-9, who)
				assert.EqualValues(t, len(c.seconds), row.Admitted+row.Denied, who)
			}
		})
	}
}

// small is traffic of which a part is denied.
func small() Config {
	return Config{Traffic: draw(50, 1.2, 20, 8*time.Minute), Kind: DrawnKind, Limit: smallLimit}
}

var smallLimit = events.Limit{N: 40, Window: 2 * time.Minute}

// On any traffic counterd and the log are never wrong, and the others are; the same
// traffic gives the same figures.
func TestRun(t *testing.T) {
	config := small()
	found, err := Run(t.Context(), config)
	require.NoError(t, err)
	var names []string
	for _, row := range found.Rows {
		names = append(names, row.Name)
		assert.EqualValues(t, len(config.Traffic.Events), row.Admitted+row.Denied)
		assert.Greater(t, row.Denied, row.Admitted/10)
		switch row.Name {
		case "counterd", inLog, "sliding log":
			assert.Zero(t, row.WrongAdmissions+row.WrongDenials, row.Name)
			assert.Equal(t, 1.0, row.WorstWindow)
		case "counterd, precision: minute":
			assert.Zero(t, row.WrongAdmissions)
			assert.Positive(t, row.WrongDenials)
		default:
			assert.Positive(t, row.WrongAdmissions, row.Name)
			assert.Greater(t, row.WorstWindow, 1.0)
		}
	}
	assert.Equal(t, []string{
		"counterd", "counterd, precision: minute", inLog, inFixed, inFixedLog, inBucket, "sliding log", "two windows", "fixed window", "token bucket", "GCRA", "log, 16 at once",
	}, names)
	assert.Equal(t, rowOf(t, found, "sliding log").Admitted, rowOf(t, found, "counterd").Admitted)
	for name, of := range map[string]string{inFixed: "fixed window", inFixedLog: "fixed window", inBucket: "GCRA"} {
		ours, reference := rowOf(t, found, name), rowOf(t, found, of)
		assert.Equal(t, []int64{reference.Admitted, reference.WrongAdmissions, reference.MostInAWindow}, []int64{ours.Admitted, ours.WrongAdmissions, ours.MostInAWindow}, name)
	}
	for _, name := range []string{inBucket, "token bucket", "GCRA"} {
		assert.Equal(t, &Held{Most: smallLimit.N, Worst: 1}, rowOf(t, found, name).Bucket, name)
	}
	assert.Nil(t, rowOf(t, found, "counterd").Bucket)
	assert.True(t, (&Report{[]*Comparison{found}}).OK())

	again, err := Run(t.Context(), small())
	require.NoError(t, err)
	for i, row := range found.Rows { // closed buckets are cached for a second of this machine
		assert.InEpsilon(t, row.Reads, again.Rows[i].Reads, 0.01, row.Name)
		assert.InEpsilon(t, row.Trips, again.Rows[i].Trips, 0.01, row.Name)
		again.Rows[i].Reads, again.Rows[i].Trips = row.Reads, row.Trips
	}
	assert.Equal(t, found, again)
	config.Exactly = true
	exactly, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Zero(t, rowOf(t, exactly, "sliding log").WrongAdmissions)
	assert.Positive(t, rowOf(t, exactly, "counterd").WrongAdmissions, "its windows are whole seconds")
	assert.True(t, (&Report{[]*Comparison{exactly}}).OK())
}

// told sums up the steps.
type told struct{ stages, steps, done atomic.Int64 }

func (p *told) Start(_ string, steps int) {
	p.stages.Add(1)
	p.steps.Add(int64(steps))
}

func (p *told) Add(steps int) { p.done.Add(int64(steps)) }

// Progress adds up to as many steps as there are.
func TestProgress(t *testing.T) {
	var run told
	config := small()
	config.Progress = &run
	_, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.EqualValues(t, 1, run.stages.Load())
	assert.EqualValues(t, 12*len(config.Traffic.Events), run.steps.Load())
	assert.Equal(t, run.steps.Load(), run.done.Load())
}

// Of each feature the most counts that it took at any time, and of each hit what it asked.
func TestBytesOfFeatures(t *testing.T) {
	made := trafficAt(0, 1, 2, 3, 4, 5, 500, 501)
	made.Actors = append(made.Actors, events.Features{"user": "g"})
	made.Events[7].Actor = 1
	found, err := Run(t.Context(), Config{Traffic: made, Kind: "user", Limit: events.Limit{N: 10, Window: 10 * time.Second}})
	require.NoError(t, err)
	for name, want := range map[string]struct{ one, other int64 }{
		"sliding log": {memcached.ChunkOf(6 * 8), 96}, "fixed window": {120, 120}, "two windows": {120, 120}, "token bucket": {120, 120}, "GCRA": {96, 96},
		// A window of ten seconds has buckets of seconds alone.
		"counterd": {6 * 96, 96},
	} {
		row := rowOf(t, found, name)
		assert.Equal(t, max(want.one, want.other), row.MostBytes, name)
		assert.Equal(t, float64(want.one+want.other)/2, row.Bytes, name)
	}
	ours := rowOf(t, found, "counterd")
	assert.Equal(t, []float64{1, 1}, []float64{ours.Trips, ours.Writes})
}

// A report in which counterd is wrong says so.
func TestCounterdMayBeWrong(t *testing.T) {
	for name, row := range map[string]Row{
		"admission":           {Name: "counterd", WrongAdmissions: 1},
		"denial":              {Name: "counterd", WrongDenials: 1},
		"admission by minute": {Name: "counterd, precision: minute", WrongAdmissions: 1},
		"denial by a log":     {Name: inLog, WrongDenials: 1},
	} {
		r := &Report{[]*Comparison{{Resolution: "second", Rows: []Row{row}}}}
		assert.False(t, r.OK(), name)
		r.Comparisons[0].Rows[0].Name = "fixed window"
		assert.True(t, r.OK(), name)
	}
	assert.True(t, (&Report{[]*Comparison{{Resolution: "second", Rows: []Row{{Name: "counterd, precision: minute", WrongDenials: 1}}}}}).OK())
	for _, name := range []string{inFixed, inFixedLog} {
		other := &Report{[]*Comparison{{Resolution: "second", Rows: []Row{{Name: name, Admitted: 2, WrongAdmissions: 1}, {Name: fixedReference, Admitted: 1}}}}}
		assert.False(t, other.OK(), name)
		other.Comparisons[0].Rows[1].Admitted = 2
		assert.True(t, other.OK(), name)
	}
	for want, held := range map[bool]Held{true: {Most: 9}, false: {WrongDenials: 1}} {
		bucket := &Report{[]*Comparison{{Resolution: "second", Rows: []Row{{Name: inBucket, WrongAdmissions: 1, Bucket: &held}}}}}
		assert.Equal(t, want, bucket.OK())
	}
}

// readLog reads a log as traffic, by addresses or names.
func readLog(t *testing.T, in io.Reader, kind string) Config {
	t.Helper()
	format, err := accesslog.New(accesslog.Config{Fields: []string{"host"}})
	require.NoError(t, err)
	log, err := accesslog.ReadLog(t.Context(), format, accesslog.Mapping{{Kind: kind, Field: "host"}}, accesslog.Stream("in", in))
	require.NoError(t, err)
	return Config{Traffic: log, Kind: kind}
}

// A log is read whole, in the order of its times, by one kind of features; IPv6 addresses by
// their network, as counterd counts them.
func TestFromLog(t *testing.T) {
	const lines = `2001:db8::1 - - [17/May/2015:10:05:04 +0000] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
nonsense
2001:db8::2 - - [17/May/2015:12:05:04 +0200] "GET / HTTP/1.1" 200 1
- - - [17/May/2015:12:05:04 +0200] "GET / HTTP/1.1" 200 1
`
	config := readLog(t, strings.NewReader(lines), "ip")
	hits, err := config.hits()
	require.NoError(t, err)
	at := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC).UnixNano()
	assert.Equal(t, []hit{{at, "192.0.2.1"}, {at + second, "2001:db8::1"}, {at + second, "2001:db8::1"}}, hits)
	config.Limit = events.Limit{N: 1, Window: time.Hour}
	found, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 2, 1}, []int{found.Hits, found.Features, found.Malformed})
	for _, row := range found.Rows[:3] {
		assert.EqualValues(t, 1, row.Denied, row.Name)
	}

	hits, err = readLog(t, strings.NewReader(lines), "host").hits()
	require.NoError(t, err)
	assert.Equal(t, "2001:db8::2", hits[2].feature, "as names they are different")
	_, err = readLog(t, strings.NewReader(`- - - [17/May/2015:12:05:04 +0200] "GET / HTTP/1.1" 200 1`), "ip").hits()
	assert.ErrorContains(t, err, "no hit")
	_, err = readLog(t, strings.NewReader(`192.0.2.1 - - [17/May/1965:12:05:04 +0200] "GET / HTTP/1.1" 200 1`), "ip").hits()
	assert.ErrorContains(t, err, "1970")
}

// What is denied of the real log is what is denied of it by hand: of each host whatever
// makes more than 50 of the 24 hours behind it.
func TestTheRealLog(t *testing.T) {
	file, err := os.Open("../testdata/apache_logs.log.gz")
	require.NoError(t, err)
	defer file.Close()
	config := readLog(t, file, "ip")
	config.Limit = events.Limit{N: 50, Window: 24 * time.Hour}
	found, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, []int{10_000, 1753}, []int{found.Hits, found.Features})
	hits, err := config.hits()
	require.NoError(t, err)

	admitted := map[string][]int64{}
	denied := 0
	for _, h := range hits {
		inTheDay := 0
		for _, at := range admitted[h.feature] {
			if h.at-at < int64(24*time.Hour) {
				inTheDay++
			}
		}
		if inTheDay < 50 {
			admitted[h.feature] = append(admitted[h.feature], h.at)
		} else {
			denied++
		}
	}
	for _, name := range []string{"counterd", inLog, "sliding log"} {
		row := rowOf(t, found, name)
		assert.EqualValues(t, denied, row.Denied, name)
		assert.Zero(t, row.WrongAdmissions+row.WrongDenials, name)
	}
	assert.Positive(t, denied)
	assert.Equal(t, 2.0, rowOf(t, found, "fixed window").WorstWindow)
}

// Drawn traffic is in order, as long and as dense as was asked for.
func TestDraw(t *testing.T) {
	log := draw(1000, 1.5, 40, 10*time.Minute)
	assert.Equal(t, log, draw(1000, 1.5, 40, 10*time.Minute))
	const expected = 40 * 600
	assert.InDelta(t, expected, len(log.Events), 5*155, "five standard deviations")
	assert.True(t, slices.IsSortedFunc(log.Events, func(a, b accesslog.Event) int { return cmp.Compare(a.Micros, b.Micros) }))
	assert.False(t, log.Events[0].Time().Before(opening))
	assert.True(t, log.Events[len(log.Events)-1].Time().Before(opening.Add(10*time.Minute)))
	counts := make([]int, len(log.Actors))
	for _, e := range log.Events {
		counts[e.Actor]++
	}
	// Of Zipf's law with s=1.5 the first has 1/2.55 of a thousand.
	assert.InDelta(t, expected/2.55, float64(slices.Max(counts)), expected/50)
}

func TestWrongConfigs(t *testing.T) {
	for name, l := range map[string]events.Limit{
		"none":               {Window: time.Minute},
		"more than a log":    {N: maxN + 1, Window: time.Minute},
		"no window":          {N: 1},
		"a part of a second": {N: 1, Window: 1500 * time.Millisecond},
		"a year":             {N: 1, Window: 365 * 24 * time.Hour},
	} {
		_, err := Run(t.Context(), Config{Traffic: trafficAt(1), Kind: "user", Limit: l})
		assert.Error(t, err, name)
	}
}

// What a bucket admits in the interval behind a burst, and what it denies, is wrong by its own rule only.
func TestTokens(t *testing.T) {
	for exactly, step := range map[bool]int64{false: second, true: second / 1e6} {
		limit := events.Limit{N: 4, Window: time.Duration(6 * step)} // one returns in a step and a half
		judged, err := Config{Limit: limit, Exactly: exactly}.newTokens([]hit{{at: 7 * step}, {at: 99 * step}})
		require.NoError(t, err)
		for _, h := range []struct {
			at       int64
			admitted bool
		}{{7, true}, {7, true}, {7, true}, {7, true}, {7, false}, {8, true}, {10, true}, {10, false}, {11, false}, {12, false}, {99, true}} {
			judged.see("f", h.at*step, 1, h.admitted)
		}
		// At 8 it lacks 3 1/3, at 10 again 3, at 11 3 1/3 and at 12 2 2/3.
		assert.Equal(t, Held{WrongAdmissions: 1, WrongDenials: 1, Most: 5}, judged.found)
	}
	_, err := Config{Limit: events.Limit{N: 999_999_937, Window: events.MaxWindow}, Exactly: true}.newTokens(make([]hit, 1_000_000))
	require.ErrorIs(t, err, errTooFine)
}

// An interrupted run ends without a report.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, Config{Traffic: trafficAt(1), Kind: "user", Limit: smallLimit})
	require.ErrorIs(t, err, context.Canceled)
}

func TestWriteText(t *testing.T) {
	var text strings.Builder
	report := &Report{[]*Comparison{{
		Traffic: "made", Hits: 1_000_000, Features: 1, Malformed: 2, Limit: "5/m", Resolution: "second",
		Rows: []Row{{
			Name: "counterd", Admitted: 999_000, Denied: 1000, WrongAdmissions: 3, WrongDenials: 12, MostInAWindow: 6, WorstWindow: 1.2,
			Bytes: 1234.5, MostBytes: 2000, Trips: 1.5, Reads: 2.25, Writes: 0.125,
		}, {Name: "GCRA", Admitted: 4, Bucket: &Held{WrongAdmissions: 1, WrongDenials: 2, Worst: 1.04}}},
	}}}
	require.NoError(t, report.WriteText(&text))
	table, _, _ := strings.Cut(text.String(), "\nwrong adm.")
	assert.Equal(t, `1: made
   1,000,000 hits by 1 features, 5/m each, judged by the second; 2 lines are malformed

                        admitted  denied  wrong adm.  wrong den.  worst  bytes   most  trips  reads  writes
1, 5/m
counterd                 999,000   1,000           3          12   1.20  1,235  2,000   1.50   2.25    0.12
GCRA                           4       0           0           0   0.00      0      0   0.00   0.00    0.00
by a bucket's own rule
GCRA                           4       0           1           2   1.04
`, table)
}
