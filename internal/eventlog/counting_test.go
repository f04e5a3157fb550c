package eventlog_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// counted is a process that counts without deciding, beside one that decides.
type counted struct {
	*bench
	engine *eventlog.Engine
	ip     events.Counter
}

func newCounted(t testing.TB, limits string) *counted {
	b := newBench(t, limits, limiter.Config{})
	ip, err := b.event.Counter(events.Features{"ip": someUser["ip"]})
	require.NoError(t, err)
	return &counted{b, newEngine(t, b.store, b.clock.Now), ip}
}

// add adds at a moment so long ago.
func (c *counted) add(by int64, ago time.Duration) {
	c.tb.Helper()
	_, err := c.engine.Increment(c.tb.Context(), by, c.clock.Now().Add(-ago), c.ip)
	require.NoError(c.tb, err)
}

func (c *counted) count(length time.Duration) engine.Count {
	c.tb.Helper()
	count, err := c.engine.Count(c.tb.Context(), c.ip, length, time.Time{})
	require.NoError(c.tb, err)
	return count
}

// An increment is one round trip, also on several counters; the first on a counter is two. A count and
// a history are one, and a reset is one delete.
func TestCountingIsOneRoundTrip(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 9/h}, {per: user, rate: 9/h}]")
	both, err := c.event.Counters(someUser)
	require.NoError(t, err)
	increment := func() {
		_, err := c.engine.Increment(t.Context(), 2, c.clock.Now(), both...)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, c.tripsOf(increment))
	require.EqualValues(t, 1, c.tripsOf(increment))
	require.EqualValues(t, 1, c.tripsOf(func() { require.EqualValues(t, 4, c.count(time.Hour).Count) }))
	require.EqualValues(t, 1, c.tripsOf(func() {
		history, err := c.engine.History(t.Context(), c.ip, engine.Minute, c.clock.Now().Add(-time.Hour), c.clock.Now())
		require.NoError(t, err)
		require.Len(t, history.Intervals, 61)
		require.EqualValues(t, 4, history.Intervals[60].Count)
	}))
	require.EqualValues(t, 1, c.tripsOf(func() { require.NoError(t, c.engine.Reset(t.Context(), c.ip)) }))
	require.Zero(t, c.count(time.Hour).Count)
	require.Nil(t, c.store.value(t, c.counter))
	require.EqualValues(t, 1, c.tripsOf(func() { require.NoError(t, c.engine.Reset(t.Context(), c.ip)) }), "of a counter that is not there")
}

// A log that an increment has created has the limits of the rules: a hit on it is one round trip, and
// counts the increment. So does a hit after a reset that this process made.
func TestIncrementsAreBeforeHits(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 3/h}, {per: ip, rate: 100/d, shadow: true}]")
	c.add(2, 30*time.Minute)
	head := c.log().Head()
	require.EqualValues(t, 1, head.Revision)
	require.Equal(t, []journal.Limit{{Window: time.Hour.Milliseconds(), Ceiling: 3}}, head.Limits)
	require.EqualValues(t, 1, c.tripsOf(func() { require.True(t, c.hit(c.event, someUser).Allowed) }))
	require.False(t, c.hit(c.event, someUser).Allowed)
	c.clock.Advance(31 * time.Minute)
	require.True(t, c.hit(c.event, someUser).Allowed)
	require.True(t, c.hit(c.event, someUser).Allowed)
	require.False(t, c.hit(c.event, someUser).Allowed)
	c.add(5, 0) // increments have no limit
	require.EqualValues(t, 8, c.count(time.Hour).Count)
	require.NoError(t, c.engine.Reset(t.Context(), c.ip))
	require.EqualValues(t, 1, c.check(c.event, someUser).Limits[0].Remaining-2)
}

// A cached denial ends with what this process counts without deciding.
func TestCountingEndsACachedDenial(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 1/h}]")
	p, err := limiter.New(limiter.Config{Timeout: grace / 2}, c.engine)
	require.NoError(t, err)
	hit := func() bool {
		d, err := p.Hit(t.Context(), limiter.Hit{Event: c.event, Features: someUser, Cost: 1})
		require.NoError(t, err)
		return d.Allowed
	}
	require.True(t, hit())
	require.False(t, hit())
	require.Zero(t, c.tripsOf(func() { hit() }))
	c.add(1, 0)
	require.EqualValues(t, 1, c.tripsOf(func() { require.False(t, hit()) }))
	require.NoError(t, c.engine.Reset(t.Context(), c.ip))
	require.True(t, hit())
}

// A window shorter than a minute slides by milliseconds as long as the log knows them, a longer one by
// whole seconds.
func TestEdgesOfWindows(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 1000/2s}, {per: ip, rate: 1000/h}]")
	began := c.clock.Now() // a whole second
	for range 100 {
		c.clock.Advance(70 * time.Millisecond)
		c.add(1, 0)
	}
	c.clock.Advance(5 * time.Millisecond)
	require.EqualValues(t, 29, c.count(2*time.Second).Count, "after 5.005: from 5.04 on")
	require.EqualValues(t, 15, c.count(time.Second).Count)
	require.EqualValues(t, 100, c.count(time.Minute).Count)
	count := func(length, after time.Duration) int64 {
		n, err := c.engine.Count(t.Context(), c.ip, length, began.Add(after))
		require.NoError(t, err)
		require.True(t, n.Exact)
		return n.Count
	}
	require.EqualValues(t, 15, count(time.Second, 3*time.Second), "a whole second is the last of the window: 3.01 to 3.99")
	require.EqualValues(t, 14, count(time.Second, 3600*time.Millisecond), "2.66 to 3.57")
	require.EqualValues(t, 57, count(time.Minute, 3500*time.Millisecond), "up to 3.99")

	c.clock.Advance(5 * grace)
	for range 100 { // until it is rewritten
		c.add(1, 0)
	}
	require.EqualValues(t, 15, count(time.Second, 3*time.Second))
	n, err := c.engine.Count(t.Context(), c.ip, time.Second, began.Add(3600*time.Millisecond))
	require.NoError(t, err)
	require.EqualValues(t, 15, n.Count, "the milliseconds are forgotten")
	require.Equal(t, [2]time.Time{began.Add(3 * time.Second), began.Add(3 * time.Second)}, [2]time.Time{n.From, n.To}, "the answer says so")
}

// The delete orders a reset: an increment or a hit that is appended before is gone, and a later one
// stays, whole. One that has not been read yet is appended again. No rewrite brings anything back.
func TestTheDeleteOrdersAReset(t *testing.T) {
	for name, test := range map[string]struct {
		kind  store.Kind // of the round trip before which, or after which, the reset is
		after bool
		want  int64
	}{
		"before the append":   {store.Append, false, 1},
		"after the append":    {store.Append, true, 1},
		"before the creation": {store.Create, false, 1},
		"after the creation":  {store.Create, true, 1},
		"before the rewrite":  {store.Swap, false, 0},
		"after the rewrite":   {store.Swap, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, "[{per: ip, rate: 1000/h}]")
			if test.kind != store.Create {
				for range 16 {
					c.add(1, 0)
				}
			}
			done := false
			hook := func(after bool) func(*store.Op) {
				return func(op *store.Op) {
					if op.Kind() == test.kind && after == test.after && !done {
						done = true
						require.NoError(t, c.engine.Reset(t.Context(), c.ip))
						for i := range op.Reads { // it was between the writes and the read
							op.Reads[i].Version, op.Reads[i].Data = 0, op.Reads[i].Data[:0]
						}
					}
				}
			}
			c.store.before, c.store.after = hook(false), hook(true)
			for range 20 {
				if c.add(1, 0); done {
					break
				}
			}
			require.True(t, done)
			require.Equal(t, test.want, c.count(time.Hour).Count)
			c.add(1, 0)
			require.True(t, c.hit(c.event, someUser).Allowed)
			require.Equal(t, test.want+2, c.count(time.Hour).Count)
		})
	}
}

// A log that is full of increments is rewritten before the next one. If that does not make it short
// enough, events are moved within their hours, late, and counts say that they are not exact.
func TestAFullLogOfIncrements(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 1000000/d}]")
	const before, all = 2900, 3500 // each in a second of its own, of 4.9 hours
	by := func(i int) int64 { return int64(300_000 + i) }
	ago := func(i int) time.Duration { return time.Duration(5*i)*time.Second + time.Minute }
	sum := c.fill(before, 0, by, ago)
	for i := before; i < all; i++ {
		c.add(by(i), ago(i))
		sum += by(i)
		require.LessOrEqual(t, len(c.store.value(t, c.counter)), journal.MaxSize)
		c.clock.Advance(grace / 100) // only entries without an identity are merged
	}
	count := c.count(24 * time.Hour)
	require.Equal(t, sum, count.Count, "nothing is lost")
	require.NotZero(t, c.log().Head().Coarse)
	require.True(t, c.count(time.Second).Exact)
	require.False(t, c.count(2*time.Hour).Exact)
	now := c.clock.Now()
	hours, err := c.engine.History(t.Context(), c.ip, engine.Hour, now.Add(-24*time.Hour), now)
	require.NoError(t, err)
	require.True(t, hours.Exact, "they stay in their hours")
	var total int64
	for _, hour := range hours.Intervals {
		total += hour.Count
		of, err := c.engine.Count(t.Context(), c.ip, time.Hour, time.Unix(hour.Last, 0))
		require.NoError(t, err)
		require.True(t, of.Exact, "a whole hour")
		require.Equal(t, hour.Count, of.Count)
	}
	require.Equal(t, sum, total)
	minutes, err := c.engine.History(t.Context(), c.ip, engine.Minute, now.Add(-3*time.Hour), now)
	require.NoError(t, err)
	require.False(t, minutes.Exact)
	counted := c.count(time.Second).Count
	for range 3000 { // of this moment: none of them can be merged
		if _, err = c.engine.Increment(t.Context(), 1, c.clock.Now(), c.ip); err != nil {
			break
		}
		counted++
	}
	require.Equal(t, counted, c.count(time.Second).Count, "what was acknowledged is counted")
	require.ErrorIs(t, err, engine.ErrStore)
	require.ErrorIs(t, err, journal.ErrTooLarge)
	c.clock.Advance(3 * grace)
	c.add(1, 0)
}

// A log that no process writes is replaced by whatever call finds it: what is counted is not exact then. A log of a newer
// release is an error of every call but a reset, which deletes it, and is never rewritten.
func TestCountingOnUnreadableItems(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"torn":    func(value []byte) []byte { return value[:len(value)-3] },
		"foreign": func([]byte) []byte { return []byte("17") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, "[{per: ip, rate: 9/h}]")
			for range 2 {
				c.add(1, 0)
				c.store.put(t, c.counter, spoil(bytes.Clone(c.store.value(t, c.counter))))
				count := c.count(time.Hour)
				require.Zero(t, count.Count)
				require.False(t, count.Exact)
				history, err := c.engine.History(t.Context(), c.ip, engine.Hour, c.clock.Now(), c.clock.Now())
				require.NoError(t, err)
				require.False(t, history.Exact)
				c.store.put(t, c.counter, spoil(bytes.Clone(c.store.value(t, c.counter))))
				c.add(2, 0)
				require.EqualValues(t, 2, c.count(time.Hour).Count)
				c.clock.Advance(2 * time.Hour)
				require.True(t, c.count(time.Hour).Exact)
			}
		})
	}
	c := newCounted(t, "[{per: ip, rate: 9/h}]")
	c.add(1, 0)
	newer := bytes.Clone(c.store.value(t, c.counter))
	newer[1]++
	c.store.put(t, c.counter, newer)
	_, err := c.engine.Count(t.Context(), c.ip, time.Hour, time.Time{})
	require.ErrorIs(t, err, journal.ErrVersion)
	require.ErrorIs(t, err, engine.ErrStore)
	spoiled := bytes.Clone(c.store.value(t, c.counter))
	_, err = c.engine.Increment(t.Context(), 1, c.clock.Now(), c.ip)
	require.ErrorIs(t, err, journal.ErrVersion)
	_, err = c.engine.History(t.Context(), c.ip, engine.Hour, c.clock.Now(), c.clock.Now())
	require.ErrorIs(t, err, journal.ErrVersion)
	require.Equal(t, spoiled, c.store.value(t, c.counter), "it is left alone")
	require.NoError(t, c.engine.Reset(t.Context(), c.ip))
	c.add(2, 0)
	require.EqualValues(t, 2, c.count(time.Hour).Count)
}

// A store that fails is an error. What was acknowledged of the increment is void then; an append of
// unknown outcome stays, and is never sent again.
func TestIncrementsOnAStoreThatFails(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		fail func(*store.Op)
		want int64
	}{
		"the read fails": {func(op *store.Op) { op.Err = broken }, 1},
		"the answer is lost": {func(op *store.Op) {
			op.Err, op.Receipt = broken, store.Receipt{}
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, "[{per: ip, rate: 9/h}]")
			c.add(1, 0)
			appends := 0
			c.store.after = func(op *store.Op) {
				if op.Kind() == store.Append {
					if appends++; appends == 1 {
						test.fail(op)
					}
				}
			}
			_, err := c.engine.Increment(t.Context(), 5, c.clock.Now(), c.ip)
			require.ErrorIs(t, err, engine.ErrStore)
			require.ErrorIs(t, err, broken)
			require.Equal(t, test.want, c.count(time.Hour).Count)
			c.store.after = func(op *store.Op) { op.Err = broken }
			_, err = c.engine.Count(t.Context(), c.ip, time.Hour, time.Time{})
			require.ErrorIs(t, err, broken)
			require.ErrorIs(t, c.engine.Reset(t.Context(), c.ip), engine.ErrStore)
		})
	}
}

// A reset between the creation of a log and its first append is no failure of the store, of an
// increment or of a hit.
func TestAResetBetweenCreationAndAppend(t *testing.T) {
	for name, act := range map[string]func(*counted){
		"increment": func(c *counted) { c.add(1, 0) },
		"hit":       func(c *counted) { require.True(c.tb, c.hit(c.event, someUser).Allowed) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, "[{per: ip, rate: 1000/h, on_error: deny}]")
			resets := 0
			c.store.before = func(op *store.Op) {
				if op.Kind() == store.Create && resets < 4 {
					op.Writes[1].Item++ // there is none
				}
			}
			c.store.after = func(op *store.Op) {
				if op.Kind() == store.Create && resets < 4 {
					resets++
					op.Writes[1].Item--
					c.store.remove(t, c.counter)
					op.Reads[0].Version, op.Reads[0].Data = 0, op.Reads[0].Data[:0]
				}
			}
			act(c)
			require.Equal(t, 4, resets)
			require.EqualValues(t, 1, c.count(time.Hour).Count)
		})
	}
}

// An append that meets no log, which another process then creates, is repeated, and nothing is rewritten.
func TestALogThatIsCreatedMeanwhile(t *testing.T) {
	c := newCounted(t, "[{per: ip, rate: 1000/h, on_error: deny}]")
	once := true
	c.store.after = func(op *store.Op) {
		require.NotEqual(t, store.Swap, op.Kind())
		if op.Kind() == store.Append && once {
			once = false
			require.True(t, c.other(limiter.Config{}).hit(c.event, someUser).Allowed)
			value := c.store.value(t, c.counter)
			op.Reads[0].Version, op.Reads[0].Data = 1, append(op.Reads[0].Data[:0], value...)
		}
	}
	c.add(1, 0)
	require.False(t, once)
	require.EqualValues(t, 2, c.count(time.Hour).Count)
}
