package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// choosy keeps the counters of one algorithm only.
type choosy struct {
	limiter.Engine
	base      engine.Base
	algorithm string
	begun     int
}

func (c *choosy) Base() engine.Base { return c.base }

func (c *choosy) Keeps(algorithm string) bool { return algorithm == c.algorithm }

func (c *choosy) NewSession() limiter.Session { return &choosySession{c.Engine.NewSession(), c} }

type choosySession struct {
	limiter.Session
	of *choosy
}

func (s *choosySession) Add(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.of.begun += len(tallies)
	s.Session.Add(ctx, at, tallies)
}

func (s *choosySession) Check(ctx context.Context, at limiter.Moment, tallies []*limiter.Tally) {
	s.of.begun += len(tallies)
	s.Session.Check(ctx, at, tallies)
}

// A counter is kept by the first engine that keeps the algorithm of its limits, and by each of
// several engines if rules of several algorithms are on it.
func TestEnginesByAlgorithm(t *testing.T) {
	counters := newCounters(storetest.NewSolo(time.Now), time.Now)
	sliding := &choosy{Engine: counters, base: counters.Base()}
	fixed := &choosy{Engine: newCounters(storetest.NewSolo(time.Now), time.Now), base: counters.Base(), algorithm: "fixed-window"}
	l, err := limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, sliding, fixed)
	require.NoError(t, err)
	hit := func(limits string) (events.Decision, error) {
		return l.Hit(t.Context(), limiter.Hit{testkit.Event(t, limits), someUser, 1, 0, nil})
	}
	d, err := hit("[{per: ip, rate: 1/m}, {per: ip, rate: 1/h, algorithm: fixed-window}]")
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Equal(t, [2]int{1, 1}, [2]int{sliding.begun, fixed.begun})
	_, err = hit("[{per: user, rate: 1/m}]")
	require.NoError(t, err)
	assert.Equal(t, [2]int{2, 1}, [2]int{sliding.begun, fixed.begun})

	l, err = limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, fixed)
	require.NoError(t, err)
	_, err = hit("[{per: ip, rate: 9/m}]")
	require.ErrorIs(t, err, events.ErrInvalid)
	results, err := l.Hits(t.Context(), []limiter.Hit{
		{testkit.Event(t, "[{per: ip, rate: 9/m}]"), someUser, 1, 0, nil},
		{testkit.Event(t, "[{per: user, rate: 9/m, algorithm: fixed-window}]"), someUser, 1, 0, nil},
	})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, events.ErrInvalid)
	require.NoError(t, results[1].Err)
	assert.True(t, results[1].Decision.Allowed)
}

func TestEnginesThatDiffer(t *testing.T) {
	_, err := limiter.New(limiter.Config{})
	require.Error(t, err)
	store := storetest.NewSolo(time.Now)
	_, err = limiter.New(limiter.Config{}, newCounters(store, time.Now), newCounters(store, time.Now))
	require.ErrorContains(t, err, "Base")
	_, err = limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}), newCounters(storetest.NewSolo(time.Now), time.Now))
	require.ErrorContains(t, err, "Base")
}

// What no engine keeps is an error of a check, too.
func TestACheckWithoutAnEngine(t *testing.T) {
	counters := newCounters(storetest.NewSolo(time.Now), time.Now)
	l, err := limiter.New(limiter.Config{OnDecision: func(context.Context, limiter.Hit, *events.Decision, limiter.Call) { t.Error("there is none") }}, &choosy{Engine: counters, base: counters.Base(), algorithm: "fixed-window"})
	require.NoError(t, err)
	_, err = l.Check(t.Context(), limiter.Hit{testkit.Event(t, "[{per: ip, rate: 9/m}]"), someUser, 1, 0, nil})
	require.ErrorIs(t, err, events.ErrInvalid)
}

// A denial by one engine's counter says nothing of another's with the same name.
func TestDenialsOfTwoEngines(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_055, 0)) // 45 seconds before a minute turns
	counters := newCounters(storetest.NewSolo(clock.Now), clock.Now)
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, &choosy{Engine: counters, base: counters.Base()},
		&choosy{Engine: newCounters(storetest.NewSolo(clock.Now), clock.Now), base: counters.Base(), algorithm: "fixed-window"})
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 2/m}, {per: ip, rate: 2/m, name: fixed, algorithm: fixed-window}]")
	hit := func() events.Decision {
		d, err := l.Hit(t.Context(), limiter.Hit{event, someUser, 1, 0, nil})
		require.NoError(t, err)
		return d
	}
	require.True(t, hit().Allowed)
	require.True(t, hit().Allowed)
	clock.Advance(45*time.Second + 500*time.Millisecond) // only the fixed window has turned
	first := hit()
	require.False(t, first.Allowed)
	require.Equal(t, first.Limits, hit().Limits)
}

// A cached denial opens no session of an engine, and says what it said of the limit's youth.
func TestACachedDenialBeginsNoSession(t *testing.T) {
	for _, since := range []int64{0, 1_700_000_000} {
		clock := testkit.NewClock(time.Unix(1_700_000_030, 0))
		counters := newCounters(storetest.NewSolo(clock.Now), clock.Now)
		counting := &choosy{Engine: counters, base: counters.Base()}
		l, err := limiter.New(limiter.Config{Timeout: time.Second}, counting)
		require.NoError(t, err)
		event := testkit.Event(t, "[{per: ip, rate: [0/m, 5/h]}, {per: user, rate: 0/m}]")
		event.Rules[0].Limits[1].Since = since
		hit := func() events.Decision {
			d, err := l.Hit(t.Context(), limiter.Hit{event, someUser, 1, 0, nil})
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.Equal(t, since != 0, d.Limits[1].Incomplete)
			return d
		}
		first, begun := hit(), counting.begun
		require.Positive(t, begun)
		require.Equal(t, first, hit())
		require.Equal(t, begun, counting.begun)
		event.Rules[0].Limits[1].Since = 1_700_000_001 // as a reload within the second may have it
		since = 1
		hit()
	}
}

// A denial is not repeated for limits that count in another way, as a reload may have it.
func TestDenialsOfAnotherAlgorithm(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_055, 0))
	l := newTestLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	hit := func(limits string) bool {
		d, err := l.Hit(t.Context(), limiter.Hit{testkit.Event(t, limits), someUser, 1, 0, nil})
		require.NoError(t, err)
		return d.Allowed
	}
	const sliding, fixed = "[{per: ip, rate: 2/m}]", "[{per: ip, rate: 2/m, algorithm: fixed-window}]"
	require.True(t, hit(sliding))
	require.True(t, hit(sliding))
	clock.Advance(45 * time.Second)
	require.False(t, hit(sliding))
	require.True(t, hit(fixed))
}

// A denial for good of two counters, of which one is overfull for now, decides no hit on that one
// alone.
func TestADenialOfOneOfTwoCounters(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	counters := newCounters(storetest.NewSolo(clock.Now), clock.Now)
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, counters)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 2/h}, {per: user, rate: 2/h}]")
	for kind, by := range map[string]int64{"user": 5, "ip": 2} {
		counter, err := event.Counter(events.Features{kind: someUser[kind]})
		require.NoError(t, err)
		_, err = counters.Increment(t.Context(), by, time.Time{}, counter)
		require.NoError(t, err)
	}
	for _, features := range []events.Features{someUser, {"user": someUser["user"]}} {
		d, err := l.Hit(t.Context(), limiter.Hit{event, features, 1, 0, nil})
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Positive(t, d.RetryAfter)
	}
}

// A fixed window that began after its limit did is complete.
func TestAYoungFixedWindow(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_000, 0)) // 40 seconds before a minute turns
	l := newTestLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	event := testkit.Event(t, "[{per: ip, rate: 2/m, algorithm: fixed-window}]")
	event.Rules[0].Limits[0].Since = clock.Now().Unix()
	for _, incomplete := range []bool{true, false} {
		d, err := l.Hit(t.Context(), limiter.Hit{event, someUser, 1, 0, nil})
		require.NoError(t, err)
		require.Equal(t, incomplete, d.Limits[0].Incomplete)
		clock.Advance(41 * time.Second)
	}
}
