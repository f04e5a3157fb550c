package eventlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// usualGrace is the default. Times are simulated: a busy machine does not matter.
const usualGrace = events.DefaultGrace

// usualRevision is as long as those of rules files.
const usualRevision = 1 << 63

// population is counters in a Memcached server, whose hits are at times of their own. The server's clock
// is real, so each lives a day longer.
type population struct {
	tb     testing.TB
	server *memcachedtest.Server
	store  store.Store
	engine *eventlog.Engine
	limit  events.Limit
	trips  int64 // that hits have waited for
}

func newPopulation(tb testing.TB, window time.Duration, start time.Time, args ...string) *population {
	tb.Helper()
	clock := func() time.Time { return start }
	// Without its maintainer no item moves while the server lists its keys, and it lists none for itself.
	server := memcachedtest.Start(tb, append(args, "-o", "no_lru_maintainer")...)
	kept := storestest.OpenFleet(tb, func() time.Time { return start.Add(-24 * time.Hour) }, server.Addr)
	require.NoError(tb, kept.Ping(tb.Context())[server.Addr])
	c := &population{tb: tb, server: server, limit: events.Limit{N: 1000, Window: window}}
	c.store = &watched{Store: kept, before: func(op *store.Op) {
		if len(op.Writes) > 0 && len(op.Reads) > 0 {
			c.trips++
		}
	}}
	e, err := eventlog.New(engine.Base{Store: c.store, Clock: clock, Grace: usualGrace, Changes: new(engine.Changes)})
	require.NoError(tb, err)
	c.engine = e
	return c
}

func (c *population) counter(n int) events.Counter {
	return events.Counter{Event: "e" + strconv.Itoa(n), Retention: c.limit.Window}
}

// turn is what happens to a counter: a hit, or the end of its life.
type turn struct {
	at      int64 // milliseconds
	counter int
	dies    bool
}

// play has a few turns of different counters at once.
func (c *population) play(turns []turn) {
	var tallies []*limiter.Tally
	var ops []*store.Op
	at := limiter.Moment{}
	for _, t := range turns {
		counter := c.counter(t.counter)
		if t.dies {
			ops = append(ops, &store.Op{Counter: counter.ID(), Writes: []store.Write{{Kind: store.Delete, Item: eventlog.Item()}}})
			continue
		}
		at = limiter.Moment{Time: time.UnixMilli(t.at), Second: t.at / 1000, Latest: t.at / 1000}
		limit := limiter.Limit{Limit: c.limit, Rule: &events.Rule{Revision: usualRevision}, Ceiling: c.limit.Most(), Enforced: true}
		tallies = append(tallies, &limiter.Tally{
			ID: counter.ID(), Counter: counter, Limits: []limiter.Limit{limit}, Adds: []limiter.Addition{{Cost: 1, Kept: true}}, Demand: 1,
		})
	}
	if len(ops) > 0 {
		c.store.Do(context.Background(), ops...)
	}
	for _, op := range ops {
		require.NoError(c.tb, op.Err)
	}
	s := c.engine.NewSession()
	s.Add(context.Background(), at, tallies)
	for _, t := range tallies {
		require.NoError(c.tb, t.Err)
		require.Less(c.tb, t.Limits[0].Count, t.Limits[0].Ceiling)
	}
	require.NoError(c.tb, s.Undo(context.Background()))
}

// chunks returns how many chunks of each size logs take. It counts the server's keys: a chunk that is in use may also
// be what another item is replaced by.
func (c *population) chunks() map[int64]int64 {
	chunks := map[int64]int64{}
	slabs := c.server.Stats("slabs")
	for _, line := range c.server.Ask("lru_crawler metadump all") {
		if strings.HasPrefix(line, "key=counterd%3A") { // the marker and the clocks
			continue
		}
		_, class, _ := strings.Cut(line, " cls=")
		class, _, _ = strings.Cut(class, " ")
		size, err := strconv.ParseInt(slabs[class+":chunk_size"], 10, 64)
		require.NoError(c.tb, err, line)
		chunks[size]++
	}
	return chunks
}

func (c *population) figure(name string) int64 {
	n, err := strconv.ParseInt(c.server.Stats("")[name], 10, 64)
	require.NoError(c.tb, err)
	return n
}

// A counter never takes a larger chunk of a real Memcached, whether its log was just rewritten or is
// about to be.
func TestChunksOfCounters(t *testing.T) {
	for _, test := range []struct {
		hits   int
		window time.Duration
		most   int64
	}{
		{500, time.Hour, 3000}, {100, 24 * time.Hour, 900}, {10, time.Hour, 250}, {10, 24 * time.Hour, 250},
		{30, time.Minute, 384}, {300, time.Minute, 1184}, {10, 10 * time.Second, 480}, {100, 10 * time.Second, 1480},
	} {
		t.Run(fmt.Sprint(test.hits, " in ", test.window), func(t *testing.T) {
			const counters, windows = 3, 2
			start := time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
			c := newPopulation(t, test.window, start)
			random := rand.New(rand.NewPCG(1, uint64(test.hits)))
			distance := float64(test.window.Milliseconds()) / float64(test.hits)
			var largest, sum, samples int64
			every := max(test.hits/100, 1)
			for i := range windows * test.hits {
				var turns []turn
				for n := range counters {
					turns = append(turns, turn{start.UnixMilli() + int64((float64(i)+random.Float64())*distance), n, false})
				}
				c.play(turns)
				if i%every != 0 {
					continue
				}
				for size, n := range c.chunks() {
					if n > 0 {
						largest = max(largest, size)
					}
					if i >= test.hits {
						sum, samples = sum+n*size, samples+n
					}
				}
			}
			require.EqualValues(t, counters*test.hits/every*(windows-1), samples)
			assert.LessOrEqual(t, largest, test.most)
			_, _, due := footprint.Spread([]journal.Limit{{Window: test.window.Milliseconds(), Ceiling: int64(test.hits)}}, 0, 2*usualGrace.Milliseconds(), 0)
			assert.InEpsilon(t, largest, memcache.ChunkBytesOfData(due), 0.26, "or the next size: of 600 it is 752")
			swaps := float64(c.figure("cas_hits")) / counters / windows / float64(test.hits)
			trips := float64(c.trips-counters) / counters / windows / float64(test.hits)
			assert.LessOrEqual(t, trips, 1.001, "but for the first hit of a counter")
			t.Logf("%d bytes on the average, at most %d; %.3f rewrites and %.3f round trips a hit", sum/samples, largest, swaps, trips)
		})
	}
}

// A full log never takes a larger chunk than counterd validate says, whether its events come at once or apart, now or
// late in any order; and what it says is not far above the most that one takes.
func TestAFullLogTakesWhatValidateSays(t *testing.T) {
	for _, rate := range []string{"100/d", "10/h", "500/h", "30/m", "60/month", "2/s", "100/10s"} {
		for _, replicas := range []int{1, 2} {
			if replicas > 1 && rate != "100/d" {
				continue
			}
			t.Run(fmt.Sprint(rate, " ", replicas), func(t *testing.T) {
				event := newEvent(t, usualRevision, "[{per: ip, rate: "+rate+"}]")
				limit, ip := event.Rules[0].Limits[0], ipOf(t, event)
				says := memcache.ChunkBytesOfData(footprint.OfCounter(event, []string{"ip"}, usualGrace).Bytes)
				most, even := int64(0), limit.Window/time.Duration(limit.N)
				for i, gap := range []time.Duration{time.Millisecond, even} {
					for _, late := range []int64{0, int64(limit.Window)} {
						clock := testkit.NewClock(time.Now())
						var kept store.Store = &watched{Store: storestest.Embedded(clock.Now)}
						if replicas > 1 {
							kept = openReplicas(t, memcachedtest.StartMany(t, replicas))
						}
						e, err := eventlog.New(engine.Base{Store: kept, Clock: clock.Now, Grace: usualGrace, Changes: new(engine.Changes)})
						require.NoError(t, err)
						random := rand.New(rand.NewPCG(1, uint64(i)))
						events := limit.N
						if gap == even {
							events = min(5*events, 200)
						}
						for range events {
							at := clock.Now().Add(-time.Duration(random.Int64N(late + 1)))
							_, err := e.Increment(t.Context(), 1, at, ip)
							require.NoError(t, err)
							clock.Advance(gap)
							op := store.Op{Counter: ip.ID(), Data: true, Reads: []store.Read{{Item: logItem}}}
							kept.Do(t.Context(), &op)
							require.NoError(t, op.Err)
							most = max(most, memcache.ChunkBytesOfData(len(op.Reads[0].Data)))
							for _, replica := range op.Replicas {
								most = max(most, memcache.ChunkBytesOfData(len(replica.Reads[0].Data)))
							}
						}
					}
				}
				assert.LessOrEqual(t, most, says)
				assert.Less(t, float64(says), 1.6*float64(most))
				t.Logf("%d bytes, and validate says %d", most, says)
			})
		}
	}
}

// Nor do full buckets, and late increments take no more of them.
func TestFullBucketsTakeWhatValidateSays(t *testing.T) {
	for _, test := range []struct {
		number int64
		window time.Duration
		late   bool
	}{{100, 24 * time.Hour, false}, {100, 24 * time.Hour, true}, {1000, time.Hour, true}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			start := time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
			c := newPopulation(t, test.window, start)
			counters := hierarchy.NewCounters(hierarchy.Config{Store: c.store, Clock: func() time.Time { return start }, Grace: usualGrace})
			random := rand.New(rand.NewPCG(1, 1))
			for i := range test.number {
				ago := test.window * time.Duration(i) / time.Duration(test.number)
				if test.late {
					ago = time.Duration(random.Int64N(int64(test.window)))
				}
				_, err := counters.Increment(t.Context(), 1, start.Add(-ago), c.counter(1))
				require.NoError(t, err)
			}
			takes := int64(0)
			for size, n := range c.chunks() {
				takes += size * n
			}
			says := hierarchy.SpreadBytes(c.counter(1), test.number, usualGrace)
			assert.LessOrEqual(t, takes, says)
			assert.Less(t, float64(says), 1.3*float64(takes))
			t.Logf("%d bytes, and validate says %d", takes, says)
		})
	}
}

// The counter of a token bucket, hit by three processes once a minute or ten times a second, never takes a
// larger chunk of a real Memcached, and a hit takes one round trip.
func TestChunksOfTokenBuckets(t *testing.T) {
	for _, test := range []struct {
		limit    events.Limit
		distance time.Duration
		most     int64
	}{
		{events.Limit{N: 10, Window: time.Minute, Burst: 20}, time.Minute, 152},
		{events.Limit{N: 600, Window: time.Hour, Burst: 100}, time.Minute, 152},
		{events.Limit{N: 10, Window: time.Second, Burst: 20}, 100 * time.Millisecond, 600},
		{events.Limit{N: 20, Window: time.Second, Burst: 40, Algorithm: "leaky-bucket"}, 100 * time.Millisecond, 480},
	} {
		t.Run(fmt.Sprint(test.limit.N, " in ", test.limit.Window, " each ", test.distance), func(t *testing.T) {
			const counters, hits = 4, 150
			start := time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
			c := newPopulation(t, time.Second, start)
			c.limit = test.limit
			engines := []*eventlog.Engine{c.engine}
			for range 2 {
				e, err := eventlog.New(c.engine.Base())
				require.NoError(t, err)
				engines = append(engines, e)
			}
			random := rand.New(rand.NewPCG(1, 5))
			var largest, sum, samples int64
			for i := range hits {
				c.engine = engines[i%len(engines)]
				var turns []turn
				for n := range counters {
					turns = append(turns, turn{start.UnixMilli() + int64(i)*test.distance.Milliseconds() + random.Int64N(20), n, false})
				}
				c.play(turns)
				for size, n := range c.chunks() {
					largest, sum, samples = max(largest, size), sum+n*size, samples+n
				}
			}
			assert.LessOrEqual(t, largest, test.most)
			assert.LessOrEqual(t, c.trips, int64(counters*(hits+2)), "one a hit, but for the first two")
			t.Logf("%d bytes on the average, at most %d; %.3f rewrites a hit", sum/samples, largest, float64(c.figure("cas_hits"))/counters/hits)
		})
	}
}

// Three processes that are hammered with thirty times as many hits as the bucket admits share a log that is
// larger, and bounded: of each process one batch in a while finds room, and what it has denied is young.
func TestChunksOfATokenBucketUnderAttack(t *testing.T) {
	for _, test := range []struct {
		hits  int // at once
		pause time.Duration
	}{{15, 50 * time.Millisecond}, {3, 10 * time.Millisecond}} {
		t.Run(fmt.Sprint(test.hits, " each ", test.pause), func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			c := newPopulation(t, time.Second, clock.Now())
			event := newEvent(t, 1, "[{per: ip, rate: 10/s, burst: 20}]")
			var processes []*process
			for range 3 {
				e, err := eventlog.New(engine.Base{Store: c.store, Clock: clock.Now, Grace: usualGrace, Changes: new(engine.Changes)})
				require.NoError(t, err)
				l, err := limiter.New(limiter.Config{Timeout: usualGrace / 2}, e)
				require.NoError(t, err)
				processes = append(processes, &process{Limiter: l, tb: t})
			}
			var largest int64
			admitted := 0
			const seconds = 5
			for range seconds * int(time.Second/test.pause) {
				admitted += len(atOnce(t, processes, event, test.hits))
				for size := range c.chunks() {
					largest = max(largest, size)
				}
				clock.Advance(test.pause)
			}
			assert.Equal(t, 20+seconds*10-1, admitted)
			assert.LessOrEqual(t, largest, int64(1184))
			t.Logf("at most %d bytes", largest)
		})
	}
}
