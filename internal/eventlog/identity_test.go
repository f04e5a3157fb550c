package eventlog

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// A process that has written as many entries as its sequence has numbers repeats no identity: the one of a
// reservation would hide a hit.
func TestIdentitiesDoNotRepeat(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	st := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
	e, err := New(engine.Base{Store: st, Clock: clock.Now, Grace: 2 * time.Second, Changes: new(engine.Changes)})
	require.NoError(t, err)
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, e)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 10/d, algorithm: sliding-log}]")
	hit := func(cost int64, d time.Duration) events.Decision {
		got, err := l.Hit(context.Background(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: cost, Reserved: d})
		require.NoError(t, err)
		return got
	}
	require.True(t, hit(1, 24*time.Hour).Allowed)
	e.sequence.Add(1<<24 - 1) // 16.7 million other entries of this process, on any counters
	clock.Advance(time.Hour)
	d := hit(10, 0)
	assert.False(t, d.Allowed, "1 + 10 of 10: %+v", d.Limits)

	seen := map[journal.ID]bool{}
	for turn := range uint64(10_000) {
		e.sequence.Store(turn << journal.SequenceBits)
		id := e.identity()
		require.False(t, seen[id], "turn %d", turn)
		seen[id] = true
	}
}
