package compare

import (
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trafficAt returns hits of one feature so many seconds after midnight.
func trafficAt(seconds ...float64) *Traffic {
	t := &Traffic{Name: "made", kind: "user", features: []string{"f"}}
	midnight := opening.Truncate(24 * time.Hour).UnixNano()
	for _, s := range seconds {
		t.hits = append(t.hits, hit{midnight + int64(s*float64(second)), 0, 1})
	}
	return t
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
			found, err := Run(t.Context(), Config{Traffic: trafficAt(c.seconds...), Limit: c.limit, Exactly: c.exactly, processes: 3})
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
func small(t *testing.T) *Traffic {
	t.Helper()
	drawn, err := Zipf{Features: 50, S: 1.2, Rate: 20, Duration: 8 * time.Minute, Seed: 3}.Draw(t.Context())
	require.NoError(t, err)
	for i := range drawn.hits {
		if i%10 == 0 {
			drawn.hits[i].cost = 3
		}
	}
	return drawn
}

var smallLimit = events.Limit{N: 40, Window: 2 * time.Minute}

// On any traffic counterd and the log are never wrong, and the others are; the same
// traffic gives the same figures.
func TestRun(t *testing.T) {
	config := Config{Traffic: small(t), Limit: smallLimit}
	found, err := Run(t.Context(), config)
	require.NoError(t, err)
	var names []string
	for _, row := range found.Rows {
		names = append(names, row.Name)
		assert.EqualValues(t, config.Traffic.Hits(), row.Admitted+row.Denied)
		assert.Greater(t, row.Denied, row.Admitted/10)
		switch row.Name {
		case "counterd", "sliding log":
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
		"counterd", "counterd, precision: minute", "sliding log", "two windows", "fixed window", "token bucket", "GCRA", "log, 16 at once",
	}, names)
	assert.Equal(t, rowOf(t, found, "sliding log").Admitted, rowOf(t, found, "counterd").Admitted)
	assert.True(t, (&Report{[]*Comparison{found}}).OK())

	again, err := Run(t.Context(), Config{Traffic: small(t), Limit: smallLimit})
	require.NoError(t, err)
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
	_, err := Run(t.Context(), Config{Traffic: small(t), Limit: smallLimit, Progress: &run})
	require.NoError(t, err)
	assert.EqualValues(t, 1, run.stages.Load())
	assert.EqualValues(t, 8*small(t).Hits(), run.steps.Load())
	assert.Equal(t, run.steps.Load(), run.done.Load())
}

// Of each feature the most counts that it took at any time, and of each hit what it asked.
func TestBytesOfFeatures(t *testing.T) {
	made := trafficAt(0, 1, 2, 3, 4, 5, 500, 501)
	made.features = []string{"f", "g"}
	made.hits[7].feature = 1
	found, err := Run(t.Context(), Config{Traffic: made, Limit: events.Limit{N: 10, Window: 10 * time.Second}})
	require.NoError(t, err)
	for name, want := range map[string]struct{ one, other int64 }{
		"sliding log": {chunkOf(6 * 8), 96}, "fixed window": {120, 120}, "two windows": {120, 120}, "token bucket": {120, 120}, "GCRA": {96, 96},
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
	} {
		r := &Report{[]*Comparison{{Resolution: "second", Rows: []Row{row}}}}
		assert.False(t, r.OK(), name)
		r.Comparisons[0].Rows[0].Name = "fixed window"
		assert.True(t, r.OK(), name)
	}
	assert.True(t, (&Report{[]*Comparison{{Resolution: "second", Rows: []Row{{Name: "counterd, precision: minute", WrongDenials: 1}}}}}).OK())
}

// readLog reads a log as traffic.
func readLog(t *testing.T, in io.Reader, kind string) (*Traffic, error) {
	t.Helper()
	format, err := accesslog.NewAuto(accesslog.JSONConfig{Fields: []string{"host"}})
	require.NoError(t, err)
	log, err := accesslog.ReadLog(t.Context(), format, accesslog.Mapping{{Kind: kind, Field: "host"}}, accesslog.Stream("in", in))
	require.NoError(t, err)
	return FromLog(t.Context(), "name", kind, log)
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
	log, err := readLog(t, strings.NewReader(lines), "ip")
	require.NoError(t, err)
	at := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC).UnixNano()
	assert.Equal(t, &Traffic{
		Name: "name", Malformed: 1, kind: "ip", features: []string{"192.0.2.1", "2001:db8::1"},
		hits: []hit{{at, 0, 1}, {at + second, 1, 1}, {at + second, 1, 1}},
	}, log)
	found, err := Run(t.Context(), Config{Traffic: log, Limit: events.Limit{N: 1, Window: time.Hour}})
	require.NoError(t, err)
	for _, row := range found.Rows[:3] {
		assert.EqualValues(t, 1, row.Denied, row.Name)
	}

	log, err = readLog(t, strings.NewReader(lines), "host")
	require.NoError(t, err)
	assert.Len(t, log.features, 3, "as names they are different")
	_, err = readLog(t, strings.NewReader(`- - - [17/May/2015:12:05:04 +0200] "GET / HTTP/1.1" 200 1`), "ip")
	assert.ErrorContains(t, err, "no hit")
	_, err = readLog(t, strings.NewReader(`192.0.2.1 - - [17/May/1965:12:05:04 +0200] "GET / HTTP/1.1" 200 1`), "ip")
	assert.ErrorContains(t, err, "1970")
}

// What is denied of the real log is what is denied of it by hand: of each host whatever
// makes more than 50 of the 24 hours behind it.
func TestTheRealLog(t *testing.T) {
	file, err := os.Open("../testdata/apache_logs.log.gz")
	require.NoError(t, err)
	defer file.Close()
	log, err := readLog(t, file, "ip")
	require.NoError(t, err)
	assert.Equal(t, 10_000, log.Hits())
	assert.Equal(t, 1753, log.Features())
	found, err := Run(t.Context(), Config{Traffic: log, Limit: events.Limit{N: 50, Window: 24 * time.Hour}})
	require.NoError(t, err)

	admitted := map[int][]int64{}
	denied := 0
	for _, h := range log.hits {
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
	for _, name := range []string{"counterd", "sliding log"} {
		row := rowOf(t, found, name)
		assert.EqualValues(t, denied, row.Denied, name)
		assert.Zero(t, row.WrongAdmissions+row.WrongDenials, name)
	}
	assert.Positive(t, denied)
	assert.Equal(t, 2.0, rowOf(t, found, "fixed window").WorstWindow)
}

// Drawn traffic is of the seed alone, in order, as long and as dense as was asked for.
func TestDraw(t *testing.T) {
	z := Zipf{Features: 1000, S: 1.5, Rate: 40, Duration: 10 * time.Minute, Seed: 5}
	one, err := z.Draw(t.Context())
	require.NoError(t, err)
	same, err := z.Draw(t.Context())
	require.NoError(t, err)
	assert.Equal(t, one, same)
	z.Seed++
	other, err := z.Draw(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, one.hits, other.hits)

	const expected = 40 * 600
	assert.InDelta(t, expected, one.Hits(), 5*155, "five standard deviations")
	assert.True(t, slices.IsSortedFunc(one.hits, func(a, b hit) int { return int(min(max(a.at-b.at, -1), 1)) }))
	assert.GreaterOrEqual(t, one.hits[0].at, opening.UnixNano())
	assert.Less(t, one.hits[one.Hits()-1].at, opening.Add(10*time.Minute).UnixNano())
	counts := make([]int, one.Features())
	for _, h := range one.hits {
		counts[h.feature]++
	}
	// Of Zipf's law with s=1.5 the first has 1/2.55 of a thousand.
	assert.InDelta(t, expected/2.55, float64(slices.Max(counts)), expected/50)
}

func TestWrongConfigs(t *testing.T) {
	good := Zipf{Features: 10, S: 1.1, Rate: 1, Duration: time.Minute}
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*Zipf){
		"no features": func(z *Zipf) { z.Features = 0 },
		"a flat law":  func(z *Zipf) { z.S = 1 },
		"no rate":     func(z *Zipf) { z.Rate = 0 },
		"no time":     func(z *Zipf) { z.Duration = 0 },
		"too many":    func(z *Zipf) { z.Rate = MaxHits },
	} {
		wrong := good
		spoil(&wrong)
		_, err := wrong.Draw(t.Context())
		assert.Error(t, err, name)
	}
	for name, l := range map[string]events.Limit{
		"none":               {Window: time.Minute},
		"more than a log":    {N: maxN + 1, Window: time.Minute},
		"no window":          {N: 1},
		"a part of a second": {N: 1, Window: 1500 * time.Millisecond},
		"a year":             {N: 1, Window: 365 * 24 * time.Hour},
	} {
		_, err := Run(t.Context(), Config{Traffic: trafficAt(1), Limit: l})
		assert.Error(t, err, name)
	}
}

// An interrupted run ends without a report.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, Config{Traffic: trafficAt(1), Limit: smallLimit})
	require.ErrorIs(t, err, context.Canceled)
	_, err = Zipf{Features: 10, S: 1.1, Rate: 1, Duration: time.Minute}.Draw(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestWriteText(t *testing.T) {
	var text strings.Builder
	report := &Report{[]*Comparison{{
		Traffic: "made", Hits: 1_000_000, Features: 1, Malformed: 2, Limit: "5/m", Resolution: "second",
		Rows: []Row{{
			Name: "counterd", Admitted: 999_000, Denied: 1000, WrongAdmissions: 3, WrongDenials: 12, MostInAWindow: 6, WorstWindow: 1.2,
			Bytes: 1234.5, MostBytes: 2000, Trips: 1.5, Reads: 2.25, Writes: 0.125,
		}},
	}}}
	require.NoError(t, report.WriteText(&text))
	table, _, _ := strings.Cut(text.String(), "\nwrong adm.")
	assert.Equal(t, `1: made
   1,000,000 hits by 1 features, 5/m each, judged by the second; 2 lines are malformed

          admitted  denied  wrong adm.  wrong den.  worst  bytes   most  trips  reads  writes
1, 5/m
counterd   999,000   1,000           3          12   1.20  1,235  2,000   1.50   2.25    0.12
`, table)
}
