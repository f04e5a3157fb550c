package counting_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

const day = 24 * time.Hour

func TestArgumentsOutOfRange(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	for name, algorithm := range algorithms {
		p := newProcess(t, storestest.Embedded(clock.Now), clock.Now, hierarchy.DefaultGrace)
		counter := counterOf(t, newEvent(t, "[{per: ip, rate: 9/d}]", algorithm), "ip", "192.0.2.1")
		now := clock.Now()
		increment := func(by int64, at time.Time) error {
			_, err := p.Increment(t.Context(), by, at, counter)
			return err
		}
		count := func(length time.Duration, at time.Time) error {
			_, err := p.Count(t.Context(), counter, length, at)
			return err
		}
		history := func(level engine.Level, from, to time.Time) error {
			_, err := p.History(t.Context(), counter, level, from, to)
			return err
		}
		for call, test := range map[string]struct {
			err  error
			want engine.Argument // empty: none
		}{
			"by 0":              {increment(0, now), engine.ArgBy},
			"by -1":             {increment(-1, now), engine.ArgBy},
			"by 1,000,001":      {increment(1_000_001, now), engine.ArgBy},
			"by 1,000,000":      {increment(1_000_000, now), ""},
			"at the retention":  {increment(1, now.Add(-day)), ""},
			"at before it":      {increment(1, now.Add(-day-time.Second)), engine.ArgAt},
			"at the grace":      {increment(1, now.Add(2*time.Second)), ""},
			"at behind it":      {increment(1, now.Add(3*time.Second)), engine.ArgAt},
			"window 0":          {count(0, now), engine.ArgWindow},
			"window 1.5s":       {count(1500*time.Millisecond, now), engine.ArgWindow},
			"window a day":      {count(day, now), ""},
			"window longer":     {count(day+time.Second, now), engine.ArgWindow},
			"window of grace":   {count(day, now.Add(-2*time.Second)), ""},
			"begins before":     {count(day, now.Add(-4*time.Second)), engine.ArgWindow},
			"ends before":       {count(time.Second, now.Add(-day-time.Second)), engine.ArgAt},
			"ends far ahead":    {count(time.Second, now.Add(3*time.Second)), engine.ArgAt},
			"history too long":  {history(engine.Second, now.Add(-10_000*time.Second), now), engine.ArgFrom},
			"history reversed":  {history(engine.Second, now, now.Add(-time.Second)), engine.ArgFrom},
			"history too far":   {history(engine.Hour, now.Add(-25*time.Hour), now), engine.ArgFrom},
			"history ahead":     {history(engine.Hour, now, now.Add(time.Minute)), engine.ArgTo},
			"history a minute ": {history(engine.Second, now.Add(-time.Minute), time.Time{}), ""},
		} {
			if test.want == "" {
				assert.NoError(t, test.err, "%s: %s", name, call)
				continue
			}
			fault, ok := errors.AsType[*engine.RangeError](test.err)
			if assert.True(t, ok, "%s: %s: %v", name, call, test.err) {
				assert.Equal(t, test.want, fault.Argument, "%s: %s", name, call)
				assert.ErrorIs(t, test.err, engine.ErrOutOfRange)
			}
		}
		// 1,000,000 and two late ones; the one ahead is not in the window that ends now.
		assert.EqualValues(t, 1_000_000, total(t, p, counter), "nothing is counted of an argument out of range")
	}
}

func TestNothingIsCountedOfAnIncrementOutOfRange(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	p := newProcess(t, storestest.Embedded(clock.Now), clock.Now, hierarchy.DefaultGrace)
	// The moment is in the retention of the first counter, not of the last.
	long := counterOf(t, newEvent(t, "[{per: ip, rate: 9/d}]", eventlog.Algorithm), "ip", "192.0.2.1")
	short := counterOf(t, newEvent(t, "[{per: ip, rate: 9/m}]", ""), "ip", "192.0.2.2")
	_, err := p.Increment(t.Context(), 1, clock.Now().Add(-time.Hour), long, short)
	require.ErrorIs(t, err, engine.ErrOutOfRange)
	require.Zero(t, total(t, p, long))
	_, err = p.Increment(t.Context(), 1, time.Time{})
	require.ErrorIs(t, err, engine.ErrOutOfRange, "no counter to add to")
}

// The levels are those of the counter's precision and retention in buckets; a log has all.
func TestLevelsOfAHistory(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	p := newProcess(t, storestest.Embedded(clock.Now), clock.Now, hierarchy.DefaultGrace)
	for name, algorithm := range algorithms {
		event := newEvent(t, "[{per: ip, rate: 9/90m, precision: minute}]", algorithm)
		for level, want := range []bool{false, true, true, false} {
			_, err := p.History(t.Context(), counterOf(t, event, "ip", "192.0.2.1"), engine.Level(level), clock.Now(), clock.Now())
			require.Equal(t, want || name == "logs", err == nil, "%s: %s: %v", name, engine.Level(level), err)
		}
	}
	history, err := p.History(t.Context(), counterOf(t, newEvent(t, "[{per: ip, rate: 9/90m}]", ""), "ip", "192.0.2.1"), engine.Second, time.Time{}, time.Time{})
	require.NoError(t, err)
	require.Len(t, history.Intervals, 5400, "as far back as the retention")
}

// An increment goes to each engine of the counter's limits, a count is of that of the first limit, and
// a reset goes to all.
func TestEnginesOfACounter(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	for name, test := range map[string]struct {
		algorithms []string // of the limits
		first      string
	}{
		"buckets":          {[]string{"", "sliding-window"}, "buckets"},
		"another":          {[]string{"fixed-window"}, "buckets"},
		"logs":             {[]string{eventlog.Algorithm}, "logs"},
		"buckets and logs": {[]string{"", eventlog.Algorithm}, "buckets"},
		"logs and buckets": {[]string{eventlog.Algorithm, ""}, "logs"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, storestest.Embedded(clock.Now), clock.Now, hierarchy.DefaultGrace)
			event := newEvent(t, "[{per: ip, rate: 9/m}, {per: ip, rate: 20/m, shadow: true}]", test.algorithms...)
			counter := counterOf(t, event, "ip", "192.0.2.1")
			free := counterOf(t, event, "user", "ada") // no limit is per user
			at, err := p.Increment(t.Context(), 3, time.Time{}, counter, free)
			require.NoError(t, err)
			require.Equal(t, clock.Now(), at)
			var keeps [2]int64 // buckets, logs
			for _, algorithm := range test.algorithms {
				if algorithm == eventlog.Algorithm {
					keeps[1] = 3
				} else {
					keeps[0] = 3
				}
			}
			require.Equal(t, keeps, [2]int64{total(t, p.buckets, counter), total(t, p.logs, counter)})
			require.EqualValues(t, 3, total(t, p.buckets, free), "without limits it is kept in buckets")
			require.Zero(t, total(t, p.logs, free))

			// What only one engine has says which answers.
			_, err = p.buckets.Increment(t.Context(), 10, time.Time{}, counter)
			require.NoError(t, err)
			_, err = p.logs.Increment(t.Context(), 20, time.Time{}, counter)
			require.NoError(t, err)
			want := keeps[0] + 10
			if test.first == "logs" {
				want = keeps[1] + 20
			}
			count, err := p.Count(t.Context(), counter, time.Minute, time.Time{})
			require.NoError(t, err)
			require.Equal(t, want, count.Count)
			history, err := p.History(t.Context(), counter, engine.Minute, clock.Now(), clock.Now())
			require.NoError(t, err)
			require.Equal(t, want, history.Intervals[0].Count)

			require.NoError(t, p.Reset(t.Context(), counter))
			if keeps[0] > 0 {
				require.Zero(t, total(t, p.buckets, counter))
			}
			if keeps[1] > 0 {
				require.Zero(t, total(t, p.logs, counter))
			}
			require.EqualValues(t, 3, total(t, p, free), "another counter")
		})
	}
}

// A limit whose algorithm no engine keeps is a fault of the call.
func TestNoEngine(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	p := counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: storestest.Embedded(clock.Now), Clock: clock.Now}))
	counter := counterOf(t, newEvent(t, "[{per: ip, rate: 9/m}]", eventlog.Algorithm), "ip", "192.0.2.1")
	_, err := p.Increment(t.Context(), 1, time.Time{}, counter)
	require.ErrorIs(t, err, events.ErrInvalid)
	_, err = p.Count(t.Context(), counter, time.Minute, time.Time{})
	require.ErrorIs(t, err, events.ErrInvalid)
	_, err = p.History(t.Context(), counter, engine.Minute, time.Time{}, time.Time{})
	require.ErrorIs(t, err, events.ErrInvalid)
	require.ErrorIs(t, p.Reset(t.Context(), counter), events.ErrInvalid)
}
