package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"

	"github.com/counterd/counterd/internal/limiter"
)

// watched is an engine that notes what it is given, and may tell time in milliseconds.
type watched struct {
	limiter.Engine
	wait   time.Duration        // the Reset of each search, if not 0: it then counts from the millisecond
	adds   [][]limiter.Addition // of each tally that was undone
	checks int
}

func (w *watched) NewSession() limiter.Session {
	return &watchedSession{Session: w.Engine.NewSession(), of: w}
}

type watchedSession struct {
	limiter.Session
	of      *watched
	tallies []*limiter.Tally
}

func (s *watchedSession) Add(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.tallies = tallies
	s.Session.Add(ctx, at, tallies)
	s.tick(at)
}

func (s *watchedSession) Check(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.tallies = tallies
	s.of.checks++
	s.Session.Check(ctx, at, tallies)
	s.tick(at)
}

func (s *watchedSession) tick(at limiter.Moment) {
	for _, t := range s.tallies {
		if s.of.wait != 0 {
			t.Tick, t.Until = time.Millisecond, at.Time.Truncate(time.Millisecond).Add(s.of.wait)
		}
	}
}

func (s *watchedSession) Undo(ctx context.Context) error {
	for _, t := range s.tallies {
		var adds []limiter.Addition
		for _, a := range t.Adds {
			adds = append(adds, limiter.Addition{Cost: a.Cost, Shared: a.Shared, Counts: a.Counts, Kept: a.Kept})
		}
		s.of.adds = append(s.of.adds, adds)
	}
	return s.Session.Undo(ctx)
}

func (s *watchedSession) Search(ctx context.Context) error {
	err := s.Session.Search(ctx)
	for _, t := range s.tallies {
		for i := range t.Searches {
			if s.of.wait != 0 {
				t.Searches[i].Reset = s.of.wait
			}
		}
	}
	return err
}

// An engine gets the hits that add, in their order, and which of them are kept.
func TestAdditions(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	w := &watched{Engine: newCounters(storetest.NewSolo(clock.Now), clock.Now)}
	l, err := limiter.New(limiter.Config{}, w)
	require.NoError(t, err)
	for _, test := range []struct {
		limits string
		costs  []int64
		want   [][]limiter.Addition // of each counter
	}{
		{"[{per: ip, rate: 5/m}]", []int64{3, 4, 2}, [][]limiter.Addition{{{Cost: 3, Kept: true}, {Cost: 4}, {Cost: 2, Kept: true}}}},
		{"[{per: ip, rate: 5/m}, {per: user, rate: 2/m}]", []int64{1, 4}, [][]limiter.Addition{
			// One that can never fit adds nothing.
			{{Cost: 1, Shared: true, Kept: true}}, {{Cost: 1, Shared: true, Kept: true}},
		}},
		{"[{per: ip, rate: 5/m, count: all}]", []int64{5, 1}, [][]limiter.Addition{{{Cost: 5, Counts: true, Kept: true}, {Cost: 1, Counts: true, Kept: true}}}},
		{"[{per: ip, rate: 5/m, allow: [192.0.2.1]}]", []int64{5, 1}, [][]limiter.Addition{{{Cost: 5, Counts: true, Kept: true}, {Cost: 1, Counts: true, Kept: true}}}},
		{"[{per: ip, rate: 5/m, shadow: true}]", []int64{6}, [][]limiter.Addition{{{Cost: 6, Counts: true, Kept: true}}}},
	} {
		clock.Advance(24 * time.Hour)
		w.adds = nil
		var hits []limiter.Hit
		for _, cost := range test.costs {
			hits = append(hits, limiter.Hit{testkit.Event(t, test.limits), someUser, cost, 0, nil})
		}
		_, err := l.Hits(t.Context(), hits)
		require.NoError(t, err)
		assert.Equal(t, test.want, w.adds, test.limits)
	}
}

// A cached denial ends when the limit has room, if the engine tells time more finely than in seconds. Until then the
// reset becomes shorter.
func TestADenialEndsWithinASecond(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_000, 900_400_000)) // resets count from the millisecond
	w := &watched{Engine: newCounters(storetest.NewSolo(clock.Now), clock.Now), wait: 450 * time.Millisecond}
	l, err := limiter.New(limiter.Config{}, w)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 1/m}]")
	retryAfter := func() (wait time.Duration, asked bool) {
		before := w.checks
		d, err := l.Hit(t.Context(), limiter.Hit{event, someUser, 1, 0, nil})
		require.NoError(t, err)
		require.Equal(t, d.RetryAfter, d.Limits[0].Reset)
		return d.RetryAfter, w.checks > before
	}
	_, _ = retryAfter()
	for _, test := range []struct {
		advance, wait time.Duration
		asked         bool
	}{
		{0, 450 * time.Millisecond, true},
		{0, 449_600 * time.Microsecond, false},
		{200 * time.Millisecond, 249_600 * time.Microsecond, false}, // in the next second
		{249 * time.Millisecond, 600 * time.Microsecond, false},
		{600 * time.Microsecond, 450 * time.Millisecond, true},
	} {
		clock.Advance(test.advance)
		wait, asked := retryAfter()
		assert.Equal(t, test.wait, wait, "%+v", test)
		assert.Equal(t, test.asked, asked, "%+v", test)
	}
	// It is asked again after a second, however long the wait.
	clock.Advance(time.Second)
	w.wait = 50 * time.Second
	_, _ = retryAfter()
	clock.Advance(999 * time.Millisecond)
	_, asked := retryAfter()
	assert.False(t, asked)
	clock.Advance(time.Millisecond)
	_, asked = retryAfter()
	assert.True(t, asked)
}
