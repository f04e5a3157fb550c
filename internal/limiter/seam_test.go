package limiter

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
)

// watched is an engine that does more than buckets need, and keeps what it is given.
type watched struct {
	engine.Engine
	tick  time.Duration
	wait  time.Duration // of each search, if it is not 0
	other string        // a server that each round trip goes to besides
	reads bool          // that one first, and only to read
	hits  [][]engine.Hit
}

func (w *watched) Tick() time.Duration { return w.tick }

func (w *watched) Begin(counter events.Counter, id string, moment engine.Moment) engine.Session {
	return &watchedSession{Session: w.Engine.Begin(counter, id, moment), of: w}
}

type watchedSession struct {
	engine.Session
	of     *watched
	hits   []engine.Hit
	others []*store.Op
}

func (s *watchedSession) Add(hits []engine.Hit, most int64) {
	s.hits = hits
	s.Session.Add(hits, most)
}

// besides has the ops go to the other server, too.
func (s *watchedSession) besides(ops []*store.Op) []*store.Op {
	s.others = nil
	for _, op := range ops {
		if s.of.other != "" {
			other := *op
			other.Server, other.Writes, other.Reads = s.of.other, slices.Clone(op.Writes), slices.Clone(op.Reads)
			s.others = append(s.others, &other)
		}
	}
	if s.of.reads {
		for _, other := range s.others {
			other.Writes = nil
		}
		return append(slices.Clone(s.others), ops...)
	}
	return append(slices.Clone(ops), s.others...)
}

func (s *watchedSession) Next(now time.Time) []*store.Op { return s.besides(s.Session.Next(now)) }

func (s *watchedSession) RollBack() []*store.Op { return s.besides(s.Session.RollBack()) }

func (s *watchedSession) Absorb() error {
	for _, other := range s.others {
		if other.Err != nil {
			_ = s.Session.Absorb() // what it has found counts no more
			return engine.StoreError(other.Err)
		}
	}
	return s.Session.Absorb()
}

func (s *watchedSession) Wait(search int) time.Duration {
	if s.of.wait != 0 {
		return s.of.wait
	}
	return s.Session.Wait(search)
}

func (s *watchedSession) End() {
	if s.hits != nil {
		s.of.hits = append(s.of.hits, slices.Clone(s.hits))
	}
	s.Session.End()
}

// An engine gets the hits that add, in their order, and which of them stay.
func TestHitsOfASession(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	w := &watched{Engine: newCounters(storetest.NewSolo(clock.Now), clock.Now), tick: time.Second}
	l, err := New(Config{}, w)
	require.NoError(t, err)
	for _, test := range []struct {
		limits string
		costs  []int64
		want   [][]engine.Hit // of each counter
	}{
		{"[{per: ip, rate: 5/m}]", []int64{3, 4, 2}, [][]engine.Hit{{{Cost: 3, Stays: true}, {Cost: 4}, {Cost: 2, Stays: true}}}},
		{"[{per: ip, rate: 5/m}, {per: user, rate: 2/m}]", []int64{1, 4}, [][]engine.Hit{
			// One that can never fit adds nothing.
			{{Cost: 1, Pending: true, Stays: true}}, {{Cost: 1, Pending: true, Stays: true}},
		}},
		{"[{per: ip, rate: 5/m, count: all}]", []int64{5, 1}, [][]engine.Hit{{{Cost: 5, Counts: true, Stays: true}, {Cost: 1, Counts: true, Stays: true}}}},
		{"[{per: ip, rate: 5/m, allow: [192.0.2.1]}]", []int64{5, 1}, [][]engine.Hit{{{Cost: 5, Counts: true, Stays: true}, {Cost: 1, Counts: true, Stays: true}}}},
		{"[{per: ip, rate: 5/m, shadow: true}]", []int64{6}, [][]engine.Hit{{{Cost: 6, Counts: true, Stays: true}}}},
	} {
		clock.Advance(24 * time.Hour)
		w.hits = nil
		var hits []Hit
		for _, cost := range test.costs {
			hits = append(hits, Hit{testkit.Event(t, test.limits), someUser, cost, 0, nil})
		}
		_, err := l.Hits(t.Context(), hits)
		require.NoError(t, err)
		assert.Equal(t, test.want, w.hits, test.limits)
	}
}

// besideStore keeps the trips of several servers.
type besideStore struct {
	store.Store
	trips   []string // the servers that each trip went to
	refuses bool     // the other server fails
}

func (b *besideStore) Do(ctx context.Context, ops ...*store.Op) {
	servers := ""
	for _, op := range ops {
		servers += op.Server + ";"
		switch {
		case op.Server == "":
			b.Store.Do(ctx, op)
		case b.refuses:
			op.Err = errDown
		}
	}
	b.trips = append(b.trips, servers)
}

// A step may make round trips to several servers side by side, and fails if its session says so.
func TestRoundTripsToSeveralServers(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	st := &besideStore{Store: storetest.NewSolo(clock.Now)}
	var faults []error
	l, err := New(Config{OnStoreError: func(err error) { faults = append(faults, err) }},
		&watched{Engine: newCounters(st, clock.Now), tick: time.Second, other: "b"})
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 1/m, on_error: deny}, {per: user, rate: 2/m}]")
	hit := func() events.Decision {
		d, err := l.Hit(t.Context(), Hit{event, someUser, 1, 0, nil})
		require.NoError(t, err)
		return d
	}
	require.True(t, hit().Allowed)
	require.Equal(t, []string{";b;;b;"}, st.trips, "of both counters at once")
	require.False(t, hit().Allowed)
	require.Equal(t, ";b;;b;", st.trips[2], "rolled back on all")
	require.Empty(t, faults)
	st.refuses = true
	clock.Advance(2 * time.Minute)
	d := hit()
	require.True(t, d.Unavailable)
	require.True(t, d.Limits[0].Failed)
	require.ErrorIs(t, faults[0], errDown)
}

// A step adds if any of its round trips does: cached denials end with it.
func TestAnAddBehindAReadIsAChange(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	w := &watched{Engine: newCounters(&besideStore{Store: storetest.NewSolo(clock.Now)}, clock.Now), tick: time.Second, other: "b", reads: true}
	l, err := New(Config{}, w)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 1/m}]")
	counter, err := event.Counter(events.Features{"ip": someUser["ip"]})
	require.NoError(t, err)
	changes := w.Base().Changes.Of(counter.ID())
	before := changes.Load()
	d, err := l.Hit(t.Context(), Hit{event, someUser, 1, 0, nil})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Equal(t, before+1, changes.Load())
}

// A cached denial ends when the limit has room, if the engine tells the time more finely than in
// seconds; until then the wait grows shorter.
func TestADenialEndsWithinASecond(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_000, 900_400_000)) // waits count from the millisecond
	st := &besideStore{Store: storetest.NewSolo(clock.Now)}
	w := &watched{Engine: newCounters(st, clock.Now), tick: time.Millisecond, wait: time.Duration(450 * time.Millisecond)}
	l, err := New(Config{}, w)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 1/m}]")
	retryAfter := func() (wait time.Duration, asked bool) {
		before := len(st.trips)
		d, err := l.Hit(t.Context(), Hit{event, someUser, 1, 0, nil})
		require.NoError(t, err)
		require.Equal(t, d.RetryAfter, d.Limits[0].Reset)
		return d.RetryAfter, len(st.trips) > before
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
		assert.Equal(t, time.Duration(test.wait), wait, "%+v", test)
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
