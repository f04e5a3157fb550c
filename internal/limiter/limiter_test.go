package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
)

func newLimiter(tb testing.TB, store store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	// The machine that runs the tests may be busy: a wide grace keeps hits trusted.
	l, err := limiter.New(limiter.Config{Timeout: 20 * time.Second,
		OnStoreError: func(err error) { tb.Error(err) }}, hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(tb, err)
	return l
}

func hitOf(event *events.Event, cost int64, features events.Features) limiter.Hit {
	return limiter.Hit{Event: event, Features: features, Cost: cost}
}
