package hierarchy_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// oracle keeps every event, and counts by looking at all of them.
type oracle struct {
	mu  sync.Mutex
	log map[string][]logged
}

type logged struct {
	second, by int64
}

func (o *oracle) add(counter events.Counter, second, by int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log[counter.ID()] = append(o.log[counter.ID()], logged{second, by})
}

func (o *oracle) count(counter events.Counter, w hierarchy.Window) (sum int64) {
	for _, event := range o.log[counter.ID()] {
		if event.second >= w.First && event.second <= w.Last {
			sum += event.by
		}
	}
	return sum
}

// testCounters are counters of different features, retentions and precisions.
func testCounters(t *testing.T) []events.Counter {
	t.Helper()
	counter := func(retention time.Duration, precision events.Precision, features events.Features) events.Counter {
		event := &events.Event{Name: "url_shorten", Retention: retention}
		c, err := event.Counter(features)
		require.NoError(t, err)
		c.Precision = precision
		return c
	}
	return []events.Counter{
		counter(0, events.Second, events.Features{"ip": "192.168.0.1"}),
		counter(0, events.Second, events.Features{"ip": "2001:db8::1"}),
		counter(0, events.Second, events.Features{"ip": "192.168.0.1", "user": "42"}),
		counter(48*time.Hour, events.Second, events.Features{"user": "a b\r\nc\x00"}),
		counter(0, events.Minute, events.Features{"user": "minute"}),
		counter(7*24*time.Hour, events.Hour, events.Features{"user": "hour"}),
		counter(90*time.Minute, events.Second, events.Features{"user": "short"}),
		counter(10*time.Second, events.Second, events.Features{"user": "seconds"}),
	}
}

// Two processes add at random moments of more than a day, late and out of order,
// while the clock goes on; random windows as of random moments are then exactly
// what a log of every event says.
func TestCountsEqualAnOracle(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	storestest.OnEveryStore(t, clock.Now, func(t *testing.T, open func() store.Store) {
		const rounds, adds, counts, processes = 14, 80, 120, 2
		var process [processes]*hierarchy.Counters
		for i := range process {
			process[i] = hierarchy.NewCounters(hierarchy.Config{Store: open(), Clock: clock.Now})
		}
		counters := testCounters(t)
		log := &oracle{log: map[string][]logged{}}
		rng := rand.New(rand.NewPCG(5, 6))
		hits := 0
		for range rounds {
			clock.Advance(time.Duration(rng.Int64N(int64(4 * time.Hour))))
			var running sync.WaitGroup
			for i, p := range process {
				own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
				running.Go(func() {
					for range adds {
						addAtRandom(t, own, clock.Now(), p, counters[own.IntN(len(counters))], log)
					}
				})
			}
			running.Wait()
			for range counts {
				counter := counters[rng.IntN(len(counters))]
				length, at := randomWindow(rng, clock.Now(), counter)
				count, err := process[rng.IntN(processes)].Count(t.Context(), counter, length, at)
				require.NoError(t, err)
				require.Equal(t, log.count(counter, windowOf(count)), count.Count, "%s as of %s of %s", length, at, counter.Feature)
				requireHolds(t, windowOf(count), hierarchy.WindowAt(at, length), counter.Precision)
				if count.Count > 0 {
					hits++
				}
			}
		}
		require.Greater(t, hits, rounds*counts/4, "windows that hold nothing prove nothing")
	})
}

// windowOf returns the seconds of a count.
func windowOf(count engine.Count) hierarchy.Window {
	return hierarchy.Window{First: count.From.Unix(), Last: count.To.Unix()}
}

func kept(counter events.Counter) time.Duration {
	if counter.Retention == 0 {
		return events.DefaultRetention
	}
	return counter.Retention
}

// addAtRandom adds once, now, late, or a little ahead of the clock.
func addAtRandom(t *testing.T, rng *rand.Rand, now time.Time, p *hierarchy.Counters, counter events.Counter, log *oracle) {
	at := now.Add(-time.Duration(rng.Int64N(int64(kept(counter)))))
	switch rng.IntN(4) {
	case 0:
		at = now
	case 1:
		at = now.Add(-time.Duration(rng.Int64N(int64(time.Minute))) % kept(counter)).Add(hierarchy.DefaultGrace)
	}
	by := 1 + rng.Int64N(3)
	stamped, err := p.Increment(t.Context(), by, at, counter)
	if err != nil {
		t.Errorf("increment: %v", err)
		return
	}
	log.add(counter, stamped.Unix(), by)
}

// randomWindow returns a window that lies in the counter's retention.
func randomWindow(rng *rand.Rand, now time.Time, counter events.Counter) (length time.Duration, at time.Time) {
	seconds := int64(kept(counter) / time.Second)
	back := rng.Int64N(seconds)
	length = time.Duration(1+rng.Int64N(seconds-back)) * time.Second
	return length, now.Add(-time.Duration(back) * time.Second)
}

// requireHolds fails unless the window is the one asked for, rounded outward to
// the precision and no further.
func requireHolds(t *testing.T, w, asked hierarchy.Window, precision events.Precision) {
	t.Helper()
	step := int64(precision.Length() / time.Second)
	require.LessOrEqual(t, w.First, asked.First)
	require.Less(t, asked.First-w.First, step)
	require.GreaterOrEqual(t, w.Last, asked.Last)
	require.Less(t, w.Last-asked.Last, step)
	require.Zero(t, w.First%step)
}
