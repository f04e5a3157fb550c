package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// bench is a process on a watched store with a clock, for one counter.
type bench struct {
	*process
	clock   *testkit.Clock
	store   *watched
	event   *events.Event
	counter string
}

func newBench(t testing.TB, limits string, config limiter.Config) *bench {
	clock := testkit.NewClock(time.Time{})
	kept := &watched{Store: storestest.Embedded(clock.Now)}
	event := newEvent(t, 1, limits)
	return &bench{newProcess(t, kept, clock.Now, config), clock, kept, event, counterOf(t, event, "ip")}
}

// other returns another process on the same store.
func (b *bench) other(config limiter.Config) *process {
	return newProcess(b.tb, b.store, b.clock.Now, config)
}

// tripsOf returns how many times the store is asked.
func (b *bench) tripsOf(do func()) int64 {
	before := b.store.trips.Load()
	do()
	return b.store.trips.Load() - before
}

func (b *bench) log() *journal.Log {
	b.tb.Helper()
	var log journal.Log
	require.NoError(b.tb, log.Read(b.store.value(b.tb, b.counter), journal.Question{}))
	return &log
}

// fill has the log of the counter hold n increments that other processes made, which are young for so long, and
// returns their sum.
func (b *bench) fill(n int, young time.Duration, by func(i int) int64, ago func(i int) time.Duration) (sum int64) {
	b.tb.Helper()
	b.hit(b.event, someUser)
	value, now := b.store.value(b.tb, b.counter), b.clock.Now()
	for i := range n {
		var err error
		value, err = journal.AppendEntry(value, journal.Entry{
			Kind: journal.Increment, ID: journal.NewID(7, uint64(i)), Time: now.Add(-ago(i)).UnixMilli(), Appended: now.UnixMilli(), Cost: by(i), Count: 1,
		})
		require.NoError(b.tb, err)
		sum += by(i)
	}
	var log journal.Log
	require.NoError(b.tb, log.Read(value, journal.Question{}))
	value, err := log.AppendRewrite(nil, journal.Rewrite{Revision: 1, Now: now.UnixMilli() + 1, Young: young.Milliseconds(), Retain: 1 << 30, TTL: 1 << 20})
	require.NoError(b.tb, err)
	b.store.put(b.tb, b.counter, value)
	return sum + 1
}

// A hit is one round trip, far from its limits and at them; the first on its counter is two.
func TestAHitIsOneRoundTrip(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: [2/m, 100/h]}]", limiter.Config{NoCachedDenials: true})
	for i, want := range []struct {
		trips   int64
		allowed bool
	}{{2, true}, {1, true}, {1, false}, {1, false}} {
		assert.Equal(t, want.trips, b.tripsOf(func() { assert.Equal(t, want.allowed, b.hit(b.event, someUser).Allowed) }), "%d", i)
	}
	assert.Equal(t, int64(1), b.tripsOf(func() { b.check(b.event, someUser) }))
}

// A hit that finds the log due is one round trip, too: the log is rewritten after its answer, by one
// session, however many find it due.
func TestNoHitWaitsForARewriteThatIsDue(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1000/h}]", limiter.Config{})
	var later []func(context.Context)
	b.store.background = func(do func(context.Context)) { later = append(later, do) }
	b.hit(b.event, someUser)
	rewrites, shortest := 0, 0
	for range 60 {
		b.clock.Advance(grace)
		require.EqualValues(t, 1, b.tripsOf(func() { require.True(t, b.hit(b.event, someUser).Allowed) }))
		if len(later) < 3 {
			continue
		}
		size := len(b.store.value(t, b.counter))
		b.store.before = func(*store.Op) { // while one is under way
			b.store.before = nil
			for _, do := range later[:2] {
				do(t.Context())
			}
		}
		require.EqualValues(t, 1, b.tripsOf(func() { later[2](t.Context()) }))
		require.Less(t, len(b.store.value(t, b.counter)), size)
		later, rewrites, shortest = nil, rewrites+1, len(b.store.value(t, b.counter))
	}
	require.Greater(t, rewrites, 5)
	require.Less(t, shortest, 300)
	require.EqualValues(t, 61, b.log().Sum(0, 1<<46))
}

// A Memcached server's log is rewritten in the background.
func TestALogIsRewrittenInTheBackground(t *testing.T) {
	clock := testkit.NewClock(time.Now())
	kept := storestest.OpenFleet(t, func() time.Time { return time.Now().Add(-time.Hour) }, memcachedtest.Start(t).Addr)
	p, event := newProcess(t, kept, clock.Now, limiter.Config{}), newEvent(t, 1, "[{per: ip, rate: 1000/d}]")
	for range 60 {
		clock.Advance(grace)
		require.True(t, p.hit(event, someUser).Allowed)
	}
	testkit.Await(t, time.Minute, "the log is short", func() bool {
		p.hit(event, someUser)
		return len((&watched{Store: kept}).value(t, counterOf(t, event, "ip"))) < 700
	})
}

// A cached denial makes no round trip, and the first hit after it reads before it appends.
func TestAFloodDoesNotGrowTheLog(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1/m}]", limiter.Config{})
	b.hit(b.event, someUser)
	require.Equal(t, int64(1), b.tripsOf(func() { require.False(t, b.hit(b.event, someUser).Allowed) }))
	size := len(b.store.value(t, b.counter))
	require.Zero(t, b.tripsOf(func() { b.hit(b.event, someUser) }))
	for range 50 {
		b.clock.Advance(time.Second)
		require.False(t, b.hit(b.event, someUser).Allowed)
	}
	require.Len(t, b.store.value(t, b.counter), size)
	b.clock.Advance(10 * time.Second)
	// It appends now, and has the log live for longer.
	require.Equal(t, int64(3), b.tripsOf(func() { require.True(t, b.hit(b.event, someUser).Allowed) }))
}

// A hit shortly before the log expires has it live for longer, or is not decided: here the first
// rewrite meets a hit of another process.
func TestALogOutlivesItsHits(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m}]", limiter.Config{})
	other := b.other(limiter.Config{})
	require.True(t, b.hit(b.event, someUser).Allowed)
	expires := time.UnixMilli(b.log().Head().Until)
	b.clock.Advance(expires.Add(-time.Second).Sub(b.clock.Now()))
	met := false
	b.store.before = func(op *store.Op) {
		if op.Kind() == store.Swap && !met {
			met = true
			require.True(t, other.hit(b.event, someUser).Allowed)
		}
	}
	require.True(t, b.hit(b.event, someUser).Allowed)
	require.True(t, met)
	b.clock.Advance(expires.Add(10 * time.Second).Sub(b.clock.Now()))
	require.True(t, b.hit(b.event, someUser).Allowed)
	require.False(t, b.hit(b.event, someUser).Allowed)

	b.clock.Advance(time.UnixMilli(b.log().Head().Until).Add(-time.Second).Sub(b.clock.Now()))
	b.store.before = func(op *store.Op) {
		if op.Kind() == store.Swap {
			op.Writes[0].Version++ // it always meets another one
		}
	}
	_, err := b.Hit(t.Context(), limiter.Hit{Event: b.event, Features: someUser, Cost: 1})
	require.NoError(t, err)
	require.NotEmpty(t, b.faults)
}

// A log is rewritten as it grows: it has a few bytes for each hit that counts.
func TestTheLogIsRewritten(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 500/h}]", limiter.Config{NoCachedDenials: true})
	trips := b.tripsOf(func() {
		for i := range 1500 {
			b.clock.Advance(3 * time.Second)
			require.Equal(t, i%1200 < 500, b.hit(b.event, someUser).Allowed, "%d", i)
			require.Less(t, len(b.store.value(t, b.counter)), 2000)
		}
	})
	require.Less(t, trips, int64(1500+200))
	require.Empty(t, b.faults)
}

// An item that is lost while its entry is on the way is created anew; if it is lost again, the store
// has failed.
func TestALostLog(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m, on_error: deny}]", limiter.Config{})
	b.hit(b.event, someUser)
	b.store.remove(t, b.counter)
	d := b.hit(b.event, someUser)
	require.True(t, d.Allowed)
	require.EqualValues(t, 1, d.Limits[0].Count)

	losses := 1
	b.store.after = func(op *store.Op) {
		if len(op.Reads) == 1 && op.Kind() != 0 && losses > 0 { // as if it went between the append and the read
			losses--
			b.store.remove(t, b.counter)
			op.Reads[0].Version, op.Reads[0].Data = 0, op.Reads[0].Data[:0]
		}
	}
	d = b.hit(b.event, someUser)
	require.True(t, d.Allowed)
	require.EqualValues(t, 1, d.Limits[0].Count)
	losses = 100
	d = b.hit(b.event, someUser)
	require.True(t, d.Unavailable)
	require.ErrorIs(t, b.faults[0], engine.ErrStore)
	require.Equal(t, 90, losses/10*10, "it does not try for ever")
}

// An item that no process writes is replaced by an empty log, which has the limit's window say that it is not complete.
func TestUnreadableItems(t *testing.T) {
	for name, spoil := range map[string]func(value []byte) []byte{
		"torn":    func(value []byte) []byte { return value[:len(value)-3] },
		"foreign": func([]byte) []byte { return []byte("17") },
		"empty":   func([]byte) []byte { return nil },
		"huge":    func([]byte) []byte { return make([]byte, 100_000) },
		"changed": func(value []byte) []byte { value[9] ^= 1; return value },
		"twice":   func(value []byte) []byte { return append(value, value...) },
	} {
		for _, checked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", checked), func(t *testing.T) {
				b := newBench(t, "[{per: ip, rate: 9/m, on_error: deny}]", limiter.Config{})
				b.hit(b.event, someUser)
				b.store.put(t, b.counter, spoil(bytes.Clone(b.store.value(t, b.counter))))
				if checked {
					d := b.check(b.event, someUser)
					require.False(t, d.Limits[0].Failed)
					require.True(t, d.Limits[0].Incomplete)
				}
				for i := range 10 {
					d := b.hit(b.event, someUser)
					require.Equal(t, i < 9, d.Allowed, i)
					require.True(t, d.Limits[0].Incomplete)
				}
				require.Empty(t, b.faults)
				b.clock.Advance(2 * time.Minute)
				require.False(t, b.hit(b.event, someUser).Limits[0].Incomplete)
			})
		}
	}
}

// A log of a newer release is an error; it is not appended to again, and expires.
func TestALogOfANewerRelease(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 9/m, on_error: deny}]", limiter.Config{})
	b.hit(b.event, someUser)
	newer := bytes.Clone(b.store.value(t, b.counter))
	newer[1]++
	b.store.put(t, b.counter, newer)
	d := b.hit(b.event, someUser)
	require.False(t, d.Allowed)
	require.True(t, d.Unavailable)
	require.ErrorIs(t, b.faults[0], engine.ErrStore)
	require.ErrorIs(t, b.faults[0], journal.ErrVersion)
	spoiled := bytes.Clone(b.store.value(t, b.counter))
	b.hit(b.event, someUser)
	require.True(t, b.check(b.event, someUser).Limits[0].Failed)
	require.Equal(t, spoiled, b.store.value(t, b.counter), "it is left alone")
	b.clock.Advance(24 * time.Hour)
	b.store.remove(t, b.counter)
	require.True(t, b.hit(b.event, someUser).Allowed)
}

// An item that holds no bytes of counterd is replaced as well, once: of two processes that find it, the second appends
// to the log of the first.
func TestAnItemWithoutBytes(t *testing.T) {
	clock := testkit.NewClock(time.Now())
	event := newEvent(t, 1, "[{per: ip, rate: 1/m, on_error: deny}]")
	counter := counterOf(t, event, "ip")
	for _, servers := range []int{1, 2} {
		addrs := memcachedtest.StartMany(t, servers)
		w := openReplicas(t, addrs).(*watched)
		first, second := newProcess(t, w, clock.Now, limiter.Config{}), newProcess(t, w, clock.Now, limiter.Config{})
		require.True(t, first.hit(event, someUser).Allowed)
		op := store.Op{Counter: counter, Writes: []store.Write{{Kind: store.Delete, Item: logItem}}}
		w.Store.Do(t.Context(), &op)
		require.NoError(t, op.Err)
		for _, server := range addrs {
			put := store.Op{Counter: counter, Server: server, Writes: []store.Write{{Kind: store.Create, Item: logItem, By: 7, Expires: time.Now().Unix() + 100}}}
			w.Store.Do(t.Context(), &put)
			require.NoError(t, put.Err)
		}
		w.before = func(op *store.Op) { // both have read it
			if op.Kind() == store.Swap {
				w.before = nil
				d := second.hit(event, someUser)
				require.True(t, d.Allowed)
				require.True(t, d.Limits[0].Incomplete)
			}
		}
		require.False(t, first.hit(event, someUser).Allowed, "the other process was admitted")
		require.Nil(t, w.before)
		require.Empty(t, append(first.faults, second.faults...))
	}
}

// A server that refuses an append keeps the log: it is rewritten, and if that does not help, the
// store has failed.
func TestARefusedAppend(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 9/m, on_error: deny}]", limiter.Config{})
	b.hit(b.event, someUser)
	refused := 1
	var real []byte
	b.store.before = func(op *store.Op) {
		if op.Kind() == store.Append && refused > 0 {
			real, op.Writes[0].Item = op.Writes[0].Data, store.Item(store.OtherLevels, 77) // there is none
		}
	}
	b.store.after = func(op *store.Op) {
		if op.Kind() == store.Append && refused > 0 {
			refused--
			op.Writes[0].Item, op.Writes[0].Data = logItem, real
		}
	}
	d := b.hit(b.event, someUser)
	require.True(t, d.Allowed)
	require.EqualValues(t, 2, d.Limits[0].Count)
	refused = 100
	require.True(t, b.hit(b.event, someUser).Unavailable)
	refused = 0
	require.EqualValues(t, 3, b.hit(b.event, someUser).Limits[0].Count)
}

// entrySize is the size of the largest entry of a log, in bytes.
const entrySize = 26

// A log never exceeds its bound by more than what processes append that did not know of it: hits
// beyond it are decided by on_error until there is room.
func TestTheLogIsBounded(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1000000000/h, on_error: deny}]", limiter.Config{})
	processes := []*process{b.process, b.other(limiter.Config{}), b.other(limiter.Config{})}
	refused := 0
	for i := 0; i < 5000 && refused < 200; i++ { // at once: all of them are young
		d := processes[i%3].costs(b.event, someUser, int64(1+i))
		require.LessOrEqual(t, len(b.store.value(t, b.counter)), journal.MaxSize+2*entrySize)
		if d.Unavailable {
			refused++
		} else {
			require.True(t, d.Allowed)
		}
	}
	require.Equal(t, 200, refused)
	require.ErrorIs(t, errors.Join(b.faults...), journal.ErrTooLarge)
	b.clock.Advance(2*grace + time.Second)
	require.True(t, b.hit(b.event, someUser).Allowed)
}

// A batch of many different hits is one append behind a read. Of one that is too large the log takes
// what it has room for, and the others are an error.
func TestLargeBatches(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1000000/h, on_error: deny}]", limiter.Config{})
	hits := func(n int) (allowed int) {
		var all []limiter.Hit
		for i := range n {
			all = append(all, limiter.Hit{Event: b.event, Features: someUser, Cost: int64(1 + i)})
		}
		results, err := b.Hits(t.Context(), all)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
			if r.Decision.Allowed {
				allowed++
			}
		}
		return allowed
	}
	require.Equal(t, 300, hits(300))
	require.Equal(t, int64(3), b.tripsOf(func() { require.Equal(t, 100, hits(100)) }), "a read, an append, a rewrite")
	allowed := 1000
	for range 3 {
		allowed = min(allowed, hits(1000))
	}
	require.Less(t, allowed, 900, "of the last there is room for a part")
	require.ErrorIs(t, b.faults[0], journal.ErrTooLarge)
	var equal []limiter.Hit
	for range 1000 {
		equal = append(equal, limiter.Hit{Event: b.event, Features: someUser, Cost: 7})
	}
	size := len(b.store.value(t, b.counter))
	require.Equal(t, int64(2), b.tripsOf(func() { // the log is over half its bound
		results, err := b.Hits(t.Context(), equal)
		require.NoError(t, err)
		require.True(t, results[999].Decision.Allowed)
	}))
	require.LessOrEqual(t, len(b.store.value(t, b.counter))-size, entrySize, "equal hits are one entry")
}

// The log lives as long as its windows, from its last hit on.
func TestTheLogLivesLongEnough(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1/h}]", limiter.Config{})
	for i := range 3 {
		require.True(t, b.hit(b.event, someUser).Allowed)
		need, life := time.Hour+3*grace, time.UnixMilli(b.log().Head().Until).Sub(b.clock.Now())
		require.Greater(t, life, need)
		require.Equal(t, i == 0, life < need*4/3, "longer where hits are rare")
		require.Less(t, life, need*2+4*time.Second)
		b.clock.Advance(time.Hour - time.Second)
		require.False(t, b.hit(b.event, someUser).Allowed)
		b.clock.Advance(time.Second)
	}
	b.clock.Advance(time.Hour + 10*grace)
	require.Empty(t, b.store.value(t, b.counter))
}

// An append whose answer is lost is not repeated: it stays, and counts once.
func TestALostAnswer(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m, on_error: allow}]", limiter.Config{})
	b.hit(b.event, someUser)
	lost := true
	b.store.after = func(op *store.Op) {
		if lost {
			op.Err, op.Receipt = errors.New("the answer was lost"), store.Receipt{}
		}
	}
	require.True(t, b.hit(b.event, someUser).Limits[0].Failed)
	lost = false
	require.EqualValues(t, 3, b.hit(b.event, someUser).Limits[0].Count)
	require.False(t, b.hit(b.event, someUser).Allowed)
	require.EqualValues(t, 3, b.log().Sum(0, 1<<46))
}

// A hit that on_error denies after its append was acknowledged is void.
func TestADenialAfterAnAppend(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m, on_error: deny}]", limiter.Config{})
	b.hit(b.event, someUser)
	fails := true
	b.store.after = func(op *store.Op) {
		if fails {
			op.Err, fails = errors.New("the read failed"), false
		}
	}
	require.True(t, b.hit(b.event, someUser).Unavailable)
	require.EqualValues(t, 1, b.log().Sum(0, 1<<46))
}

// Without the shared store this process's own logs decide.
func TestOnErrorLocal(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	down := &watched{Store: storestest.Embedded(clock.Now), after: func(op *store.Op) { op.Err = errors.New("down") }}
	p := newProcess(t, down, clock.Now, limiter.Config{Local: []limiter.Engine{newEngine(t, storestest.Embedded(clock.Now), clock.Now)}})
	event := newEvent(t, 1, "[{per: ip, rate: 2/m, on_error: local}, {per: user, rate: 1/m, on_error: local}]")
	for _, want := range []bool{true, false, false} {
		d := p.hit(event, someUser)
		require.Equal(t, want, d.Allowed)
		require.True(t, d.Limits[0].Failed)
		require.EqualValues(t, 1, d.Limits[0].Count)
	}
}

// This process's own logs are rewritten, too.
func TestALocalLogStaysShort(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	down := &watched{Store: storestest.Embedded(clock.Now), after: func(op *store.Op) { op.Err = errors.New("down") }}
	local := &watched{Store: storestest.Embedded(clock.Now)}
	p := newProcess(t, down, clock.Now, limiter.Config{Local: []limiter.Engine{newEngine(t, local, clock.Now)}})
	event := newEvent(t, 1, "[{per: ip, rate: 1000/h, on_error: local}]")
	for range 100 {
		clock.Advance(grace)
		require.True(t, p.hit(event, someUser).Allowed)
	}
	require.Less(t, len(local.value(t, counterOf(t, event, "ip"))), 800)
}

// FuzzItem has a limiter find any bytes in the item of a counter: they are a log or an error, and a
// limit is never exceeded by more than what a damaged log has lost.
func FuzzItem(f *testing.F) {
	seeds := newBench(f, "[{per: ip, rate: 2/m}]", limiter.Config{})
	for range 3 {
		seeds.hit(seeds.event, someUser)
		f.Add(seeds.store.value(f, seeds.counter))
	}
	f.Add([]byte{})
	f.Add([]byte{0xEC, 1, 4, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		b := newBench(t, "[{per: ip, rate: 2/m, on_error: deny}]", limiter.Config{})
		b.store.put(t, b.counter, value)
		admitted := 0
		for range 5 {
			b.check(b.event, someUser)
			if b.hit(b.event, someUser).Allowed {
				admitted++
			}
		}
		require.LessOrEqual(t, admitted, 2)
		if errors.Is(new(journal.Log).Read(value, journal.Question{}), journal.ErrVersion) {
			require.Zero(t, admitted)
			require.NotEmpty(t, b.faults)
		}
	})
}

// A flood of hits that are denied and counted fills the log. They are denied all the same, and do not
// pass by on_error.
func TestAFloodOfCountedHitsIsDenied(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: [2/m, 9/h], count: all}]", limiter.Config{})
	full := 0
	for i := 0; i < 4000 && full < 100; i++ { // at once: all of them are young
		if len(b.store.value(t, b.counter)) > journal.MaxSize*7/8-entrySize {
			full++
		}
		d := b.hit(b.event, someUser)
		require.Equal(t, i < 2, d.Allowed, "%d", i)
		require.False(t, d.Limits[0].Failed)
	}
	require.Empty(t, b.faults)
	require.Equal(t, 100, full)
	b.clock.Advance(2*grace + time.Second)
	require.False(t, b.hit(b.event, someUser).Allowed)
	b.clock.Advance(time.Minute)
	require.False(t, b.hit(b.event, someUser).Allowed, "by 9 in an hour")
	b.clock.Advance(time.Hour)
	require.True(t, b.hit(b.event, someUser).Allowed)
}
