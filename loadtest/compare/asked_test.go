package compare

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// A reference reads once for each decision, and writes once for each admission, each in a
// trip of its own.
func TestWhatReferencesAsk(t *testing.T) {
	found, err := Run(t.Context(), small())
	require.NoError(t, err)
	for _, row := range found.Rows[6:] {
		admitted := float64(row.Admitted) / float64(row.Admitted+row.Denied)
		assert.Equal(t, 1.0, row.Reads, row.Name)
		assert.Equal(t, admitted, row.Writes, row.Name)
		assert.InDelta(t, 1+admitted, row.Trips, 1e-9, row.Name)
	}
}

// onMemcached returns counterd on a real server, and the server.
func onMemcached(t *testing.T, l events.Limit) (*hierarchical, *memcachedtest.Server) {
	t.Helper()
	server := memcachedtest.Start(t, "-t", "1")
	h := ours(t, l, events.Second)
	h.clock.Store(opening.UnixNano())
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server.Addr}, Timeout: 10 * time.Second, Clock: h.clock.now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, fleet.Close()) })
	require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	require.NoError(t, h.on(fleet))
	return h, server
}

// What is counted of counterd's reads, writes and buckets is what a real Memcached says was
// asked of it and is there, and the decisions are those on the embedded store.
func TestWhatCounterdAsks(t *testing.T) {
	l := events.Limit{N: 20, Window: 10 * time.Minute}
	real, server := onMemcached(t, l)
	embedded := ours(t, l, events.Second)
	both := func(m moment, feature string) bool {
		got := decide(t, real, feature, m)
		require.Equal(t, decide(t, embedded, feature, m), got)
		return got
	}
	features := []string{"a", "b", "c"}
	for _, feature := range features { // the connections are open, and their first questions asked
		both(moment{opening.UnixNano(), 1}, feature)
	}
	figures := func() memcached.Stats {
		s, err := memcached.Read(server.Addr)
		require.NoError(t, err)
		return s
	}
	began := time.Now()
	before, asked := figures(), real.asked()
	rng := rand.New(rand.NewPCG(4, 0))
	now, admitted, denied := opening.UnixNano(), int64(0), 0
	for range 400 { // all within the window: nothing expires, for the server's clock is the real one
		now += rng.Int64N(int64(l.Window) / 200)
		if both(moment{now, 1}, features[rng.IntN(len(features))]) {
			admitted++
		} else {
			denied++
		}
	}
	require.Positive(t, denied)
	took := real.asked()
	reads, writes, trips := took.reads-asked.reads, took.writes-asked.writes, took.trips-asked.trips
	after := figures().Minus(before)
	// A server is asked for its marker every few seconds, too.
	markers := int64(time.Since(began)/time.Second) + 3
	assert.GreaterOrEqual(t, after.Gets, reads)
	assert.LessOrEqual(t, after.Gets, reads+markers)
	// Each admitted hit adds to second, minute; a longer value is another item to the server.
	adds := after.Adds
	assert.GreaterOrEqual(t, adds, 2*admitted)
	assert.LessOrEqual(t, adds, writes+writes/8)
	assert.GreaterOrEqual(t, writes, 2*admitted)
	assert.GreaterOrEqual(t, trips, admitted)
	assert.Equal(t, embedded.asked(), took, "on the embedded store it asks the same")

	buckets := int64(0)
	for _, feature := range features {
		buckets += int64(real.items(feature))
	}
	assert.Equal(t, buckets+2, figures().Items, "and the marker, and the count of looks")
}

// Buckets are there until they expire, each once, as a plain list of all adds has it.
func TestBucketsAreThereUntilTheyExpire(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	var b buckets
	expires := map[uint64]int64{}
	now := int64(1000)
	for range 2000 {
		now += rng.Int64N(5)
		var added []store.Write
		for level, length := range []int64{1, 60, 3600} {
			number := uint64(level)<<32 | uint64(now/length)
			end := (now/length+1)*length + 600 + length
			added = append(added, store.Write{Item: number, Expires: end})
			expires[number] = end
		}
		b.add(added)
		now += rng.Int64N(3)
		want := 0
		for _, end := range expires {
			if end > now {
				want++
			}
		}
		require.Equal(t, want, b.alive(now))
	}
}

// A store that does not count a trip would be seen by one that does.
func TestObservedStore(t *testing.T) {
	o := &observed{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{}), counters: map[string]*buckets{}}
	values := make([]int64, 3)
	expires := time.Now().Unix() + 100
	landed, err := storetest.Trip(t.Context(), o, "c", 1, []uint64{1, 2}, []int64{expires, expires}, []uint64{3}, values)
	require.NoError(t, err)
	assert.Equal(t, asked{trips: 1, reads: 1, writes: 2}, o.asked)
	require.NoError(t, storetest.RollBack(t.Context(), o, "c", 1, []uint64{1, 2}, landed))
	assert.Equal(t, asked{trips: 2, reads: 1, writes: 4}, o.asked)
	_, err = storetest.Trip(t.Context(), o, "c", 0, nil, nil, []uint64{1, 2, 3}, values)
	require.NoError(t, err)
	assert.Equal(t, asked{trips: 3, reads: 4, writes: 4}, o.asked)
	assert.Equal(t, []int64{0, 0, 0}, values)

	// A deadline that has passed is of no matter: nothing waits.
	past, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	_, err = storetest.Trip(past, o, "c", 0, nil, nil, []uint64{1}, values[:1])
	require.NoError(t, err)
}
