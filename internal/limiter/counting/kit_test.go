package counting_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// algorithms are of the limits that each engine keeps.
var algorithms = map[string]string{"buckets": "sliding-window", "logs": eventlog.Algorithm}

// process is one process with all engines.
type process struct {
	*counting.Counters
	buckets *hierarchy.Counters
	logs    *eventlog.Engine
	limiter *limiter.Limiter
}

func newProcess(tb testing.TB, st store.Store, clock func() time.Time, grace time.Duration) process {
	tb.Helper()
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, Grace: grace, CacheBytes: 1 << 19})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(tb, err)
	decider, err := limiter.New(limiter.Config{Timeout: buckets.Base().Grace / 2, OnStoreError: func(err error) { tb.Error(err) }}, buckets, logs)
	require.NoError(tb, err)
	return process{counting.New(counting.Config{}, buckets, logs), buckets, logs, decider}
}

// newEvent returns the event e of limits in YAML, in turn of those algorithms.
func newEvent(tb testing.TB, limits string, algorithms ...string) *events.Event {
	tb.Helper()
	event := testkit.Event(tb, limits)
	for i := range event.Rules {
		rule := &event.Rules[i]
		rule.Revision = 1
		for j := range rule.Limits {
			rule.Limits[j].Algorithm = algorithms[i%len(algorithms)]
		}
	}
	return event
}

func counterOf(tb testing.TB, event *events.Event, kind, value string) events.Counter {
	tb.Helper()
	counter, err := event.Counter(events.Features{kind: value})
	require.NoError(tb, err)
	return counter
}

// onEveryEngine runs a test on each engine, on every store.
func onEveryEngine(t *testing.T, clock func() time.Time, test func(t *testing.T, algorithm string, open func() store.Store)) {
	for name, algorithm := range algorithms {
		t.Run(name, func(t *testing.T) {
			storestest.OnEveryStore(t, clock, func(t *testing.T, open func() store.Store) { test(t, algorithm, open) })
		})
	}
}

// total is the count of a counter over its retention, and of the grace ahead.
func total(tb testing.TB, p counted, counter events.Counter) int64 {
	tb.Helper()
	count, err := p.Count(tb.Context(), counter, counter.Remembered(), time.Time{})
	require.NoError(tb, err)
	require.True(tb, count.Exact)
	return count.Count
}

// counted counts a window.
type counted interface {
	Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (engine.Count, error)
}
