package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
)

// partOf returns a part of a hit on a counter of that name, with a limit of n an hour.
func partOf(name string, n, cost int64, change ...func(*events.Rule)) limiter.Part {
	rule := &events.Rule{Limits: []events.Limit{{Name: name, N: n, Window: time.Hour}}}
	for _, change := range change {
		change(rule)
	}
	counter, id := events.CounterOf([]byte("parts"), 0, [2]string{"name", name})
	return limiter.Part{Applied: events.Applied{Rule: rule, Counter: counter, ID: id}, Cost: cost}
}

func hitOfParts(parts ...limiter.Part) limiter.Hit {
	return limiter.Hit{Event: &events.Event{Name: "parts"}, Parts: parts}
}

// looking returns the part as one that only looks.
func looking(part limiter.Part) limiter.Part {
	part.Looks = true
	return part
}

func quota(rule *events.Rule)  { rule.Throttle.Kind = events.Quota }
func shadow(rule *events.Rule) { rule.Shadow = true }

// A hit of several parts counts on all of them or on none, on each its own cost.
func TestPartsAreDecidedTogether(t *testing.T) {
	for name, test := range map[string]struct {
		parts   []limiter.Part
		allowed bool
		counts  []int64 // as the decision says
		left    []int64 // of counters: what they hold afterwards
	}{
		"all fit":          {[]limiter.Part{partOf("a", 5, 2), partOf("b", 9, 7)}, true, []int64{2, 7}, []int64{2, 7}},
		"one denies":       {[]limiter.Part{partOf("a", 5, 2), partOf("b", 9, 10)}, false, []int64{0, 0}, []int64{0, 0}},
		"costs add up":     {[]limiter.Part{partOf("a", 5, 2), partOf("a", 5, 3)}, true, []int64{5, 5}, []int64{5, 5}},
		"beyond together":  {[]limiter.Part{partOf("a", 5, 3), partOf("a", 5, 3)}, false, []int64{0, 0}, []int64{0, 0}},
		"the lower limit":  {[]limiter.Part{partOf("a", 5, 2), partOf("a", 3, 2)}, false, []int64{0, 0}, []int64{0, 0}},
		"a shadow":         {[]limiter.Part{partOf("a", 5, 2), partOf("b", 3, 4, shadow)}, true, []int64{2, 4}, []int64{2, 4}},
		"one quota is out": {[]limiter.Part{partOf("a", 5, 2, quota), partOf("b", 3, 4, quota)}, true, []int64{2, 4}, []int64{2, 4}},
		"all quotas are":   {[]limiter.Part{partOf("a", 5, 6, quota), partOf("b", 3, 4, quota)}, false, []int64{0, 0}, []int64{0, 0}},
		"quota and limit":  {[]limiter.Part{partOf("a", 5, 6, quota), partOf("b", 3, 1)}, false, []int64{0, 0}, []int64{0, 0}},
		"a limit denies":   {[]limiter.Part{partOf("a", 5, 1, quota), partOf("b", 3, 4)}, false, []int64{0, 0}, []int64{0, 0}},

		"a look":                {[]limiter.Part{looking(partOf("a", 5, 5)), partOf("b", 9, 7)}, true, []int64{0, 7}, []int64{0, 7}},
		"a look denies":         {[]limiter.Part{partOf("b", 9, 7), looking(partOf("a", 5, 6))}, false, []int64{0, 0}, []int64{0, 0}},
		"a hit beside a look":   {[]limiter.Part{looking(partOf("a", 5, 5)), partOf("b", 9, 10)}, false, []int64{0, 0}, []int64{0, 0}},
		"looks and a hit":       {[]limiter.Part{looking(partOf("a", 5, 4)), partOf("a", 5, 5), looking(partOf("a", 5, 1))}, true, []int64{5, 5, 5}, []int64{5, 5, 5}},
		"looks for more":        {[]limiter.Part{partOf("a", 5, 3), partOf("a", 5, 1), looking(partOf("a", 5, 6))}, false, []int64{0, 0, 0}, []int64{0, 0, 0}},
		"looks alone":           {[]limiter.Part{looking(partOf("a", 5, 5)), looking(partOf("a", 5, 5)), looking(partOf("b", 1, 1))}, true, []int64{0, 0, 0}, []int64{0, 0, 0}},
		"a quota that is there": {[]limiter.Part{looking(partOf("a", 5, 5, quota)), partOf("b", 3, 4, quota)}, true, []int64{0, 4}, []int64{0, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			counters := hierarchy.NewCounters(hierarchy.Config{Store: storetest.NewSolo(clock.Now), Clock: clock.Now, Grace: 40 * time.Second})
			l, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, counters)
			require.NoError(t, err)
			result := l.Decide(t.Context(), hitOfParts(test.parts...), limiter.CallHit)
			require.NoError(t, result.Err)
			assert.Equal(t, test.allowed, result.Decision.Allowed)
			for i, state := range result.Decision.Limits {
				assert.Equal(t, i, result.Parts[i])
				assert.Equal(t, test.parts[i].Counter.Feature, state.Feature)
				assert.Equal(t, test.counts[i], state.Count, "part %d", i)
				left, err := counters.Count(t.Context(), test.parts[i].Counter, time.Hour, time.Time{})
				require.NoError(t, err)
				assert.Equal(t, test.left[i], left.Count, "part %d", i)
			}
			check, err := l.Check(t.Context(), hitOfParts(test.parts...))
			require.NoError(t, err)
			assert.Len(t, check.Limits, len(test.parts))
		})
	}
}

// A cached denial is of the cost of its part: a hit with a cheaper one still fits.
func TestDenialsOfParts(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	l := newLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	for i, test := range []struct {
		a, b    int64
		allowed bool
	}{{1, 3, true}, {1, 3, false}, {1, 3, false}, {1, 2, true}, {4, 1, false}, {3, 1, false}} {
		d, err := l.Hit(t.Context(), hitOfParts(partOf("a", 5, test.a), partOf("b", 5, test.b)))
		require.NoError(t, err)
		assert.Equal(t, test.allowed, d.Allowed, "hit %d", i)
	}
	for range 3 {
		_, err := l.Hit(t.Context(), hitOfParts(partOf("b", 5, 1)))
		require.NoError(t, err)
	}
	assert.Positive(t, l.Stats().CachedDenials)
}

func TestFaultsOfParts(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	l := newLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	many := make([]limiter.Part, limiter.MaxHits+1)
	for i := range many {
		many[i] = partOf(fmt.Sprint(i), 1, 1)
	}
	for name, parts := range map[string][]limiter.Part{
		"no cost": {partOf("a", 5, 1), partOf("b", 5, 0)}, "a negative one": {partOf("a", 5, -1)},
		"too much": {partOf("a", 5, limiter.MaxPartCost+1)}, "too many": many,
	} {
		_, err := l.Hit(t.Context(), hitOfParts(parts...))
		require.ErrorIs(t, err, engine.ErrOutOfRange, name)
		_, err = l.Check(t.Context(), hitOfParts(parts...))
		require.ErrorIs(t, err, engine.ErrOutOfRange, name)
	}
	d, err := l.Hit(t.Context(), hitOfParts(many[:limiter.MaxHits]...))
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}
