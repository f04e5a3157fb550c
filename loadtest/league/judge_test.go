package main

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// fake limits in this process, exactly by its promise but for what is sabotaged.
type fake struct {
	promise Promise
	extra   int64         // hits that it admits beyond its promise
	refuses int           // it denies one of so many hits that have room; 0: none
	lies    time.Duration // what it adds to the truth of retry_after

	mu    sync.Mutex
	hits  int
	times map[string][]time.Time // admitted hits of each counter
}

// room returns when the promise has room for another hit after those; now or before: it has.
func (f *fake) room(l Limit, admitted []time.Time, now time.Time) time.Time {
	n := int(l.N + f.extra)
	if f.promise == Bucket {
		// When the bucket has one token, by its hits, each of which takes one.
		interval := l.Window / time.Duration(l.N)
		var due time.Time
		for _, at := range admitted {
			due = later(due, at).Add(interval)
		}
		return due.Add(-interval * time.Duration(n-1))
	}
	begin := f.begin(l, admitted, now)
	held := slices.DeleteFunc(slices.Clone(admitted), func(at time.Time) bool { return at.Before(begin) })
	switch {
	case len(held) < n:
		return now
	case f.promise == Sliding || f.promise == Seconds || f.promise == Log:
		return held[len(held)-n].Truncate(f.step(l)).Add(l.Window)
	default:
		return begin.Add(l.Window)
	}
}

func (f *fake) step(l Limit) time.Duration {
	if f.promise == Seconds || f.promise == Log && l.Window >= time.Minute {
		return time.Second
	}
	return 1
}

// begin returns the beginning of the window that the present one is in.
func (f *fake) begin(l Limit, admitted []time.Time, now time.Time) time.Time {
	switch f.promise {
	case Aligned:
		return now.Truncate(l.Window)
	case Anchored:
		begin := now
		for i, at := range admitted {
			if i == 0 || at.Sub(begin) >= l.Window {
				begin = at
			}
		}
		if now.Sub(begin) >= l.Window {
			begin = now
		}
		return begin
	case Stepped:
		if len(admitted) == 0 {
			return now
		}
		return admitted[0].Add(now.Sub(admitted[0]).Truncate(l.Window))
	default:
		return now.Truncate(f.step(l)).Add(f.step(l) - l.Window)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Hit takes two milliseconds, and is decided after the first.
func (f *fake) Hit(_ context.Context, l Limit, feature string) (Answer, error) {
	time.Sleep(time.Millisecond)
	defer time.Sleep(time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	now, counter := time.Now(), l.Name+feature
	f.hits++
	if free := f.room(l, f.times[counter], now); free.After(now) {
		return Answer{RetryAfter: max(free.Sub(now)+f.lies, 0)}, nil
	}
	if f.refuses > 0 && f.hits%f.refuses == 0 {
		return Answer{RetryAfter: time.Second}, nil
	}
	f.times[counter] = append(f.times[counter], now)
	return Answer{Allowed: true}, nil
}

// contender has two instances of the same limiter.
func (f *fake) contender() Contender {
	return Contender{Name: "fake", Promise: f.promise, Start: func(context.Context, []Limit) (*Fleet, error) {
		f.times = map[string][]time.Time{}
		return &Fleet{Instances: []Instance{f, f}, Close: func() error { return nil }}, nil
	}}
}

// exactness is the league's traffic, without bytes and speed.
func exactness() Config {
	config := defaults
	config.Users, config.Rounds, config.Progress = 0, 0, io.Discard
	return config
}

// measure runs the league's traffic over a fake, in a time of its own.
func measure(t *testing.T, f *fake) *Row {
	t.Helper()
	var rows []*Row
	bubble.Test(t, func(t *testing.T) {
		var err error
		rows, err = run(t.Context(), exactness(), []Contender{f.contender()})
		require.NoError(t, err)
	})
	require.Len(t, rows, 1)
	require.NoError(t, rows[0].Fault)
	all := rows[0].all()
	require.Positive(t, all.Admitted)
	require.Positive(t, all.Denied)
	require.Equal(t, all.Hits, all.Admitted+all.Denied)
	return rows[0]
}

var promises = []Promise{Sliding, Seconds, Log, Aligned, Anchored, Stepped, Bucket}

// A limiter that keeps its promise is found to keep it, its denials right and its retry_after true.
func TestAPromiseIsKept(t *testing.T) {
	for _, promise := range promises {
		t.Run(promise.String(), func(t *testing.T) {
			row := measure(t, &fake{promise: promise})
			all := row.all()
			assert.Zero(t, all.Broken)
			assert.Zero(t, all.FalseDenials)
			share, judged := row.Retries.True()
			assert.True(t, judged)
			assert.InDelta(t, 1, share, 0, "%+v", row.Retries)
			switch promise {
			case Sliding:
				assert.InDelta(t, 1, all.Worst, 0)
			case Aligned, Bucket:
				assert.Greater(t, all.Worst, 1.8, "a window across a turn, or a refilled burst, holds nearly twice the limit")
			}
		})
	}
}

// One hit too many breaks each promise.
func TestOneTooManyIsFound(t *testing.T) {
	for _, promise := range promises {
		t.Run(promise.String(), func(t *testing.T) {
			row := measure(t, &fake{promise: promise, extra: 1})
			assert.EqualValues(t, 1, row.all().Broken)
			assert.Greater(t, row.all().Worst, 1.0)
		})
	}
}

func TestFalseDenialsAreFound(t *testing.T) {
	row := measure(t, &fake{promise: Sliding, refuses: 50})
	assert.Positive(t, row.all().FalseDenials)
	assert.Zero(t, row.all().Broken)
}

// A second is the difference between truth and a lie.
func TestALieAboutRetryAfterIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		lies  time.Duration
		found func(Retries) (wrong, right int)
	}{
		"too early": {-time.Second, func(r Retries) (int, int) { return r.TooEarly, r.Punctual }},
		"too late":  {time.Second + lead, func(r Retries) (int, int) { return r.TooLate, r.Premature }},
	} {
		t.Run(name, func(t *testing.T) {
			row := measure(t, &fake{promise: Sliding, lies: test.lies})
			wrong, right := test.found(row.Retries)
			assert.Positive(t, wrong)
			assert.Zero(t, right)
			share, _ := row.Retries.True()
			assert.Less(t, share, 0.7)
		})
	}
}

// Calls under way at the edge of a window are judged in favor of the limiter.
func TestCallsUnderWayAreNotSure(t *testing.T) {
	limit := Limit{"second", 1, time.Second}
	ms := func(start, end int64, outcome Outcome) Call {
		return Call{start * int64(time.Millisecond), end * int64(time.Millisecond), outcome}
	}
	sure := judge(limit, Sliding, []Call{ms(0, 10, Admitted), ms(900, 910, Admitted)})
	assert.EqualValues(t, 1, sure.Broken)
	unsure := judge(limit, Sliding, []Call{ms(0, 10, Admitted), ms(900, 1005, Admitted)})
	assert.Zero(t, unsure.Broken, "it may have been admitted at 1.001 s")

	wrong := judge(limit, Sliding, []Call{ms(0, 10, Admitted), ms(1100, 1110, Denied)})
	assert.Equal(t, 1, wrong.FalseDenials)
	for name, calls := range map[string][]Call{
		"the window may hold it":                {ms(0, 10, Admitted), ms(1005, 1015, Denied)},
		"another was under way":                 {ms(0, 10, Admitted), ms(1100, 1110, Denied), ms(1105, 1120, Denied)},
		"one that failed may have been counted": {ms(500, 900, Undecided), ms(1100, 1110, Denied)},
	} {
		assert.Zero(t, judge(limit, Sliding, calls).FalseDenials, name)
	}
}

// The same seed is the same traffic, also a second later.
func TestTheTrafficIsTheSame(t *testing.T) {
	start := time.Date(2026, 11, 27, 12, 0, 45, 0, time.UTC)
	for _, l := range defaults.Limits {
		one := schedule(7, l, start, defaults.Length, 3)
		assert.Equal(t, one, schedule(7, l, start, defaults.Length, 3))
		assert.NotEqual(t, one, schedule(8, l, start, defaults.Length, 3))
		bursts := map[time.Duration]int{}
		for _, a := range one {
			bursts[a.at]++
		}
		_, most := maxOf(bursts)
		assert.Equal(t, burst, most)
	}
}

func maxOf(counts map[time.Duration]int) (at time.Duration, most int) {
	for key, n := range counts {
		if n > most {
			at, most = key, n
		}
	}
	return at, most
}
