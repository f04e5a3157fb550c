package eventlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A lease that was taken after a reset is released, and renewed, by a process whose clock is behind that of the
// reset, too.
func TestLeasesByAClockBehindAReset(t *testing.T) {
	for _, renews := range []bool{false, true} {
		servers := memcachedtest.StartMany(t, 2)
		clock := testkit.NewClock(time.Now()) // near the clock of the servers, or the items expire
		ahead := func() time.Time { return clock.Now().Add(400 * time.Millisecond) }
		newLeases := func(now func() time.Time) *eventlog.Engine {
			e, err := eventlog.NewLeases(engine.Base{Store: openReplicas(t, servers), Clock: now, Grace: grace, Changes: new(engine.Changes)})
			require.NoError(t, err)
			return e
		}
		event := testkit.Event(t, "[{per: ip, concurrent: 1, lease: 1m}]")
		event.Rules[0].Revision = 1
		l, err := limiter.New(limiter.Config{Timeout: grace / 2, NoCachedDenials: true}, newLeases(ahead))
		require.NoError(t, err)
		hit := func() limiter.Result {
			result := l.Decide(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1}, limiter.CallHit)
			require.NoError(t, result.Err)
			return result
		}
		require.True(t, hit().Decision.Allowed)
		require.NoError(t, newLeases(ahead).Reset(t.Context(), ipOf(t, event)))
		clock.Advance(time.Millisecond)
		taken := hit()
		require.True(t, taken.Decision.Allowed)
		r, behind := taken.Reserved[0], newLeases(clock.Now)
		if renews {
			r, err = behind.Renew(t.Context(), r, 50*time.Second)
			require.NoError(t, err)
			require.False(t, hit().Decision.Allowed, "it is taken")
		}
		require.NoError(t, behind.Settle(t.Context(), r, 0))
		require.True(t, hit().Decision.Allowed, "it is free")
	}
}

// What was reserved after a reset is settled by a process whose clock is behind that of the reset, too.
func TestSettlingByAClockBehindAReset(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	clock := testkit.NewClock(time.Now()) // near the clock of the servers, or the items expire
	ahead := func() time.Time { return clock.Now().Add(400 * time.Millisecond) }
	event := newEvent(t, 1, "[{per: ip, rate: 100/h}]")
	p, resets := newProcess(t, openReplicas(t, servers), ahead, limiter.Config{}), newEngine(t, openReplicas(t, servers), ahead)
	behind := newEngine(t, openReplicas(t, servers), clock.Now)
	require.True(t, p.hit(event, someUser).Allowed)
	require.NoError(t, resets.Reset(t.Context(), ipOf(t, event)))
	clock.Advance(time.Millisecond)
	d := p.Decide(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 10, Reserved: time.Minute}, limiter.CallHit)
	require.NoError(t, d.Err)
	require.Len(t, d.Reserved, 1)
	r := d.Reserved[0]
	require.NoError(t, behind.Settle(t.Context(), r, 3))
	count, err := behind.Count(t.Context(), ipOf(t, event), time.Hour, ahead())
	require.NoError(t, err)
	require.EqualValues(t, 3, count.Count)
}

// What was reserved before a reset is settled by a process whose clock is behind that of the reset: its true cost
// counts, unless the reservation had ended when the counter was reset.
func TestSettlingWhatWasReset(t *testing.T) {
	for reserved, want := range map[time.Duration]error{time.Minute: nil, time.Second: engine.ErrEnded} {
		servers := memcachedtest.StartMany(t, 2)
		clock := testkit.NewClock(time.Now()) // near the clock of the servers, or the items expire
		ahead := func() time.Time { return clock.Now().Add(1200 * time.Millisecond) }
		event := newEvent(t, 1, "[{per: ip, rate: 100/h}]")
		p := newProcess(t, openReplicas(t, servers), clock.Now, limiter.Config{})
		d := p.Decide(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 10, Reserved: reserved}, limiter.CallHit)
		require.NoError(t, d.Err)
		require.Len(t, d.Reserved, 1)
		require.NoError(t, newEngine(t, openReplicas(t, servers), ahead).Reset(t.Context(), ipOf(t, event)))
		clock.Advance(time.Millisecond)
		least := int64(3)
		if want != nil {
			least = 0
		}
		for range 2 { // again, it is the same
			require.ErrorIs(t, p.keeps.Settle(t.Context(), d.Reserved[0], 3), want, reserved)
			count, err := p.keeps.Count(t.Context(), ipOf(t, event), time.Hour, ahead())
			require.NoError(t, err)
			require.Equal(t, least, count.Count)
		}
	}
}
