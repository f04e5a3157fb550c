package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// leaser is a process that takes leases, and renews them.
type leaser struct {
	*limiter.Limiter
	*counting.Counters
}

func newLeaser(t *testing.T, st store.Store, clock func() time.Time) leaser {
	t.Helper()
	base := engine.Base{Store: st, Clock: clock, Grace: grace, Changes: new(engine.Changes)}
	leases, err := eventlog.NewLeases(base)
	require.NoError(t, err)
	logs, err := eventlog.New(base)
	require.NoError(t, err)
	l, err := limiter.New(limiter.Config{Timeout: grace / 2}, logs, leases)
	require.NoError(t, err)
	return leaser{l, counting.New(counting.Config{}, logs, leases)}
}

func (l leaser) take(t *testing.T, event *events.Event, features events.Features) limiter.Result {
	t.Helper()
	result := l.Limiter.Decide(t.Context(), limiter.Hit{Event: event, Features: features, Cost: 1}, limiter.CallHit)
	require.NoError(t, result.Err)
	return result
}

func isAppend(op *store.Op) bool {
	return len(op.Writes) > 0 && op.Writes[len(op.Writes)-1].Kind == store.Append
}

// Hits that wait for their turn in the order of the log, or whose process ends before it voids them, take no
// place of a lease that is renewed, also when others follow it.
func TestPendingHitsTakeNoPlaceOfARenewedLease(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	kept := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
	l := newLeaser(t, kept, clock.Now)
	event := testkit.Event(t, "[{per: ip, concurrent: 1, lease: 60s}, {per: user, rate: 100/m, algorithm: sliding-log}]")
	d := l.take(t, event, events.Features{"ip": someUser["ip"]})
	require.True(t, d.Decision.Allowed)
	clock.Advance(30 * time.Second)
	w := &watched{Store: kept}
	w.before = func(op *store.Op) {
		if isAppend(op) && len(op.Reads) == 0 {
			op.Counter = "another" // it ends before its void
		}
	}
	other := newLeaser(t, w, clock.Now)
	for range 20 {
		require.False(t, other.take(t, event, someUser).Decision.Allowed)
	}
	for range 5 {
		var err error
		d.Reserved, err = l.Renew(t.Context(), d.Reserved, 60*time.Second)
		require.NoError(t, err)
		require.False(t, other.take(t, event, someUser).Decision.Allowed)
		clock.Advance(50 * time.Second)
	}
}

// A lease that is about to end, and whose place another one has by a clock that is ahead, is not renewed. It has
// not ended until its time is over: if the other one is released, it is renewed.
func TestARenewalBesideAClockThatIsAhead(t *testing.T) {
	for _, released := range []bool{true, false} {
		clock := testkit.NewClock(time.Time{})
		kept := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
		one := newLeaser(t, kept, clock.Now)
		ahead := newLeaser(t, kept, func() time.Time { return clock.Now().Add(2 * time.Second) })
		event := testkit.Event(t, "[{per: ip, concurrent: 1, lease: 30s}]")
		d := one.take(t, event, someUser)
		require.True(t, d.Decision.Allowed)
		clock.Advance(29 * time.Second)
		other := ahead.take(t, event, someUser)
		require.True(t, other.Decision.Allowed, "by its clock the lease has ended")
		_, err := one.Renew(t.Context(), d.Reserved, 30*time.Second)
		require.ErrorIs(t, err, engine.ErrStore)
		require.NotErrorIs(t, err, engine.ErrEnded)
		if released {
			require.NoError(t, ahead.Settle(t.Context(), other.Reserved, 0))
			_, err = one.Renew(t.Context(), d.Reserved, 30*time.Second)
			require.NoError(t, err)
			continue
		}
		clock.Advance(time.Second)
		_, err = one.Renew(t.Context(), d.Reserved, 30*time.Second)
		require.ErrorIs(t, err, engine.ErrEnded)
	}
}

// A lease that is released while it is renewed stays so, also if its log has forgotten it by then.
func TestAReleaseBesideARenewal(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	kept := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
	w := &watched{Store: kept}
	l, other := newLeaser(t, w, clock.Now), newLeaser(t, kept, clock.Now)
	event := testkit.Event(t, "[{per: ip, concurrent: 1, lease: 60s}]")
	d := l.take(t, event, someUser)
	w.before = func(op *store.Op) {
		if !isAppend(op) {
			return
		}
		w.before = nil
		require.NoError(t, other.Settle(context.Background(), d.Reserved, 0))
		for range 20 { // the log is rewritten
			next := other.take(t, event, someUser)
			require.True(t, next.Decision.Allowed)
			require.NoError(t, other.Settle(context.Background(), next.Reserved, 0))
		}
		require.True(t, other.take(t, event, someUser).Decision.Allowed)
	}
	_, err := l.Renew(t.Context(), d.Reserved, 60*time.Second)
	require.ErrorIs(t, err, engine.ErrEnded)
	clock.Advance(59 * time.Second)
	require.False(t, other.take(t, event, someUser).Decision.Allowed)
	clock.Advance(2 * time.Second)
	require.True(t, other.take(t, event, someUser).Decision.Allowed, "nothing is left of the renewal")
}

// A part of a hit takes one lease, whatever it costs elsewhere, and none if it only looks.
func TestLeasesOfParts(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	l := newLeaser(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now}), clock.Now)
	event := testkit.Event(t, "[{per: ip, concurrent: 2, lease: 60s}]")
	applied, err := event.Apply(nil, someUser)
	require.NoError(t, err)
	for _, c := range []struct {
		looks   bool
		allowed bool
		count   int64
	}{{true, true, 0}, {false, true, 1}, {true, true, 1}, {false, true, 2}, {true, false, 2}, {false, false, 2}} {
		hit := limiter.Hit{Event: event, Parts: []limiter.Part{{Applied: applied[0], Cost: 3, Looks: c.looks}}}
		d, err := l.Limiter.Hit(t.Context(), hit)
		require.NoError(t, err)
		require.Equal(t, c.allowed, d.Allowed, "%+v", c)
		require.Equal(t, c.count, d.Limits[0].Count, "%+v", c)
	}
}
