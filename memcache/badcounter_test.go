package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// The tests of this file have another client of the Memcached server write what is no count.

// storeItem sets an item, as another client of the server does.
func storeItem(t *testing.T, server, key string, flags uint32, value string) {
	t.Helper()
	conn, err := net.Dial("tcp", server)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "set %s %d 0 %d\r\n%s\r\n", key, flags, len(value), value)
	require.NoError(t, err)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "STORED\r\n", answer)
}

// garbage are items that hold no count. Memcached adds to the addable ones: it takes them
// for a number.
var garbage = map[string]struct {
	value   string
	flags   uint32
	addable bool
}{
	"thirty digits":          {value: strings.Repeat("9", 30)},
	"letters":                {value: "abc"},
	"a negative number":      {value: "-5"},
	"nothing":                {},
	"the end of an answer":   {value: "7\r\nEND\r\n", addable: true},
	"compressed, with flags": {value: "\x78\x9c\x4b\x4c\x4a\x06\x00\x02\x4d\x01\x27", flags: 1 << 31},
	"longer than a buffer":   {value: strings.Repeat("VALUE x 0 1\r\n1\r\nEND\r\n", 9000)},
	"almost a megabyte":      {value: strings.Repeat("x", 1<<20-1000)},
	"a leading blank":        {value: " 5", addable: true},
	"two numbers":            {value: "5 6", addable: true},
	"2^64-1":                 {value: "18446744073709551615"},
	"2^63":                   {value: "9223372036854775808"},
	"2^53+1":                 {value: "9007199254740993"},
}

func requireBad(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, store.ErrNoCount)
	require.ErrorContains(t, err, "an item of the counter holds no count: another client of the server wrote it; reset the counter, or wait until the item expires")
}

func TestABadItemIsABadCounter(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		bad := memcache.Keys("bad", []uint64{2})[0]
		good := int64(0)
		for name, item := range garbage {
			storeItem(t, server.Addr, bad, item.flags, item.value)
			add(t, fleet, "bad", 5, 1, 3)
			before := server.Stats("")
			for range 5 { // more than open a breaker
				_, err := storetest.Trip(t.Context(), fleet, "bad", 0, nil, nil, []uint64{1, 2, 3}, make([]int64, 3))
				requireBad(t, err)
				good++
				require.Equal(t, []int64{good}, add(t, fleet, "good", 1, 1), name)
			}
			if protocol == memcache.Meta {
				require.Equal(t, 1, grown(t, before, server.Stats(""), "total_connections"), "%s: no connection but that of the question", name)
			}
			for range 5 {
				if item.addable {
					break
				}
				storeItem(t, server.Addr, bad, item.flags, item.value) // an add may have wrapped it
				landed, err := storetest.Trip(t.Context(), fleet, "bad", 2, []uint64{1, 2, 3}, []int64{later(), later(), later()}, []uint64{1}, make([]int64, 4))
				requireBad(t, err)
				require.NoError(t, storetest.RollBack(t.Context(), fleet, "bad", 2, []uint64{1, 2, 3}, landed))
				require.Equal(t, []int64{5, 5}, read(t, fleet, "bad", 1, 3), "%s: what had been added is rolled back", name)
				good++
				require.Equal(t, []int64{good}, add(t, fleet, "good", 1, 1), name)
			}
			require.NoError(t, storetest.Delete(t.Context(), fleet, "bad", []uint64{1, 2, 3}))
			require.Equal(t, []int64{0, 0, 0}, read(t, fleet, "bad", 1, 2, 3))
		}
		health := fleet.Health()[0]
		require.True(t, health.Up)
		require.Zero(t, health.Openings)
		storeItem(t, server.Addr, bad, 7, "12  ")
		require.Equal(t, []int64{12}, read(t, fleet, "bad", 2), "a number is a count, whatever its flags")
	})
}

// Trips to other counters, on the one connection on which the bad items come, go on.
func TestBadItemsAmongTheAnswersOfOthers(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, Conns: 1})
		for i, name := range []string{"thirty digits", "almost a megabyte", "longer than a buffer", "the end of an answer"} {
			storeItem(t, server.Addr, memcache.Keys("bad", []uint64{uint64(i)})[0], 0, garbage[name].value)
		}
		var running sync.WaitGroup
		for g := range 8 {
			running.Go(func() {
				counter := fmt.Sprint("good ", g)
				for round := range 100 {
					if g == 0 {
						_, err := storetest.Trip(t.Context(), fleet, "bad", 0, nil, nil, []uint64{9, 0, 1, 2, 3}, make([]int64, 5))
						assert.ErrorIs(t, err, store.ErrNoCount)
						continue
					}
					values := make([]int64, 3)
					_, err := storetest.Trip(t.Context(), fleet, counter, 1, []uint64{1}, []int64{later()}, []uint64{1, 2}, values)
					if !assert.NoError(t, err) || !assert.Equal(t, []int64{int64(round) + 1, int64(round) + 1, 0}, values) {
						return
					}
				}
			})
		}
		running.Wait()
		require.Zero(t, fleet.Health()[0].Openings)
	})
}

// A bad item at any level fails its counter, hits go by on_error, other users' hits are decided, and
// a reset ends it.
func TestABadCounterUntilItIsReset(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		counters := hierarchy.NewCounters(hierarchy.Config{Store: fleet})
		decider, err := limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, hierarchy.NewCounters(hierarchy.Config{Store: fleet}))
		require.NoError(t, err)
		rules, err := rulesfile.Parse([]byte(`
events:
  strict: {limits: [{per: user, rate: 1/d, on_error: deny}]}
  lenient: {limits: [{per: user, rate: 1/d, on_error: allow}]}
`))
		require.NoError(t, err)
		for level := hierarchy.Second; level <= hierarchy.Day; level++ {
			for _, event := range rules.Events {
				time.Sleep(time.Hour)
				hit := limiter.Hit{Event: event, Features: events.Features{"user": fmt.Sprint(level)}, Cost: 1}
				counter, err := event.Counter(hit.Features)
				require.NoError(t, err)
				at, err := counters.Increment(t.Context(), 1, time.Time{}, counter)
				require.NoError(t, err)
				setText(server, memcache.Keys(counter.ID(), []uint64{hierarchy.BucketAt(level, at.Unix()).ID()})[0], "abc")
				time.Sleep(5 * time.Second)   // what is remembered of a closed bucket is from before
				if level > hierarchy.Second { // the hit adds to the bucket
					decision, err := decider.Hit(t.Context(), hit)
					require.NoError(t, err)
					require.Equal(t, event.Name == "strict", decision.Unavailable, "%s", level)
					require.Equal(t, event.Name == "lenient", decision.Allowed)
					_, err = counters.Increment(t.Context(), 1, time.Time{}, counter)
					require.ErrorIs(t, err, engine.ErrBadCounter)
				}
				_, err = counters.History(t.Context(), counter, level, at, at)
				require.ErrorIs(t, err, engine.ErrBadCounter)
				require.ErrorIs(t, err, engine.ErrStore)
				other := limiter.Hit{Event: event, Features: events.Features{"user": fmt.Sprint(level, "neighbor")}, Cost: 1}
				for _, allowed := range []bool{true, false} {
					decision, err := decider.Hit(t.Context(), other)
					require.NoError(t, err)
					require.False(t, decision.Limits[0].Failed)
					require.Equal(t, allowed, decision.Allowed, "others' limits hold")
				}
				require.NoError(t, counters.Reset(t.Context(), counter))
				decision, err := decider.Hit(t.Context(), hit)
				require.NoError(t, err)
				require.True(t, decision.Allowed && !decision.Limits[0].Failed)
			}
		}
		require.Zero(t, fleet.Health()[0].Openings)
	})
}

// The largest counts that there can be make no sum that overflows.
func TestTheLargestCountsDoNotOverflow(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		const most = 1 << 53
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		now := time.Date(2026, 11, 20, 23, 59, 58, 0, time.UTC)
		clock := func() time.Time { return now }
		counter := events.Counter{Event: "e", Retention: 30 * 24 * time.Hour}
		w := hierarchy.WindowAt(now, 30*24*time.Hour-time.Second)
		cover := hierarchy.CoverOf(w, hierarchy.Second, hierarchy.Day)
		for bucket := range cover.Buckets() {
			setText(server, memcache.Keys(counter.ID(), []uint64{bucket.ID()})[0], fmt.Sprint(int64(most)))
		}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: fleet, Clock: clock})
		count, err := counters.Count(context.Background(), counter, 30*24*time.Hour-time.Second, now)
		require.NoError(t, err)
		require.Equal(t, int64(cover.Len())*most, count.Count)
		require.Positive(t, count.Count)
	})
}
