//go:build testall

package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// A million items on a real Memcached take what was planned, within 3%; the race detector takes its time, and has
// fewer.
func TestAMillionItems(t *testing.T) {
	counters := 250_000.
	if bubble.RaceDetector {
		counters = 10_000
	}
	items := hold(t, Config{
		Rules: rulesOf(t, fourLimits), Replicas: 1, Features: Amounts{"": counters}, Events: Amounts{"": counters * 5 / 4},
	}, 0.03)
	assert.Greater(t, items, 4*counters)
}

func TestPlansHoldOnMemcached(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		config Config
	}{
		"one limit a day, several events a feature": {
			rules:  "events: {hit: {limits: [{per: user, rate: 1000000/d}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 2000}, Events: Amounts{"": 40_000}},
		},
		"precision of a minute": {
			rules:  "events: {hit: {limits: [{per: ip, rate: [10000/15m, 100000/d], precision: minute}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 5000}, Events: Amounts{"": 30_000}},
		},
		"a retention of two hours": {
			rules:  "events: {hit: {limits: [{per: ip, rate: [1000/10s, 100000/2h]}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 20_000}, Events: Amounts{"": 400_000}},
		},
		"two kinds, and both together": {
			rules: "events: {hit: {limits: [{per: ip, rate: 100000/h}, {per: user, rate: [10000/m, 1000000/d]}, {per: [ip, user], rate: 100000/d}]}}",
			config: Config{Replicas: 1, Features: Amounts{"ip": 6000, "user": 4000, "ip+user": 12_000},
				Events: Amounts{"": 24_000}},
		},
		"the whole event, too": {
			rules:  "events: {hit: {limits: [{per: [], rate: [1000000/s, 10000000/d]}, {per: ip, rate: 100000/h}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 5000}, Events: Amounts{"": 40_000}},
		},
		"logs of a day": {
			rules:  "events: {hit: {limits: [{per: ip, rate: [100/m, 900/d], algorithm: sliding-log}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 2000}, Events: Amounts{"": 40_000}},
		},
		"logs of two hours": {
			rules:  "events: {hit: {limits: [{per: ip, rate: 900/2h, algorithm: sliding-log}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 1000}, Events: Amounts{"": 600_000}},
		},
		"logs beside buckets": {
			rules:  "events: {hit: {limits: [{per: ip, rate: 900/d, algorithm: sliding-log}, {per: ip, rate: 1000/m, shadow: true}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 10_000}, Events: Amounts{"": 20_000}},
		},
		"token buckets": {
			rules:  "events: {hit: {limits: [{per: ip, rate: 60/h, burst: 50}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 1000}, Events: Amounts{"": 600_000}},
		},
		"leaky buckets, whose logs know hits for an hour": {
			rules:  "events: {hit: {limits: [{per: ip, rate: 60/h, queue: 59}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 1000}, Events: Amounts{"": 600_000}},
		},
		"leases": {
			rules:  "events: {hit: {limits: [{per: ip, concurrent: 90, lease: 1h}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 1000}, Events: Amounts{"": 600_000}},
		},
		"two replicas on three servers": {
			rules:  fourLimits,
			config: Config{Replicas: 2, Features: Amounts{"": 10_000}, Events: Amounts{"": 20_000}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Rules = rulesOf(t, c.rules)
			for _, amounts := range []Amounts{c.config.Features, c.config.Events} {
				for name := range amounts {
					if bubble.RaceDetector {
						amounts[name] /= 2
					}
				}
			}
			hold(t, c.config, 0.1)
		})
	}
}

// hold holds a plan against real Memcached servers, which it fills with the traffic of a day,
// or of the lifetime of the finest buckets, and returns the measured number of items.
func hold(t *testing.T, config Config, within float64) float64 {
	t.Helper()
	g := newGame(t, config)
	report, err := Run(t.Context(), g.config)
	require.NoError(t, err)
	servers := 1
	if config.Replicas > 1 {
		servers = config.Replicas + 1
	}
	megabytes := 2*int64(report.Total.SlabBytes/float64(servers)/megabyte) + 128
	var running []*memcachedtest.Server
	var names []string
	for range servers {
		s := memcachedtest.Start(t, "-m", strconv.FormatInt(megabytes, 10), "-c", "2048")
		running, names = append(running, s), append(names, s.Addr)
	}
	took := g.play(t, names)
	sum := func(section string, names ...string) (sum float64) {
		for _, s := range running {
			stats := s.Stats(section)
			for _, name := range names {
				value, err := strconv.ParseFloat(stats[name], 64)
				require.NoError(t, err, name)
				sum += value
			}
		}
		return sum
	}
	require.Zero(t, sum("", "evictions"))
	items := sum("", "curr_items")
	each := held{96: report.Total.Items}.each(servers)
	each[memcache.ChunkBytes(1<<10)] = 1 // the instance marker
	// While a table doubles, the one before exists, too.
	planned := hashBytes(each.all()) * float64(servers)
	testkit.Await(t, maxWait, "the hash tables as planned", func() bool { return sum("", "hash_bytes") == planned })
	hits, average := float64(len(g.schedule)), report.Total.Average
	all := map[string][2]float64{
		"items":      {report.Total.Items, items},
		"item bytes": {report.Total.ItemBytes, sum("", "bytes")},
		"pages":      {each.slabBytes() * float64(servers), sum("slabs", "total_malloced")},
		"trips":      {average.Trips / average.Hits, float64(took.trips.Load()) / hits},
		"adds":       {average.Adds / average.Hits, float64(took.adds.Load()) / hits},
		"reads":      {average.Reads / average.Hits, float64(took.reads.Load()) / hits},
		"wire bytes": {average.WireBytes / average.Hits, (sum("", "bytes_read", "bytes_written")) / hits},
	}
	if config.Rules.UseLogs() {
		delete(all, "pages") // all logs begin small here, at once: pages of smaller chunks are left over
	}
	for name, figures := range all {
		assert.InDelta(t, 1, figures[1]/figures[0], within, "%s: planned %g, measured %g", name, figures[0], figures[1])
	}
	return items
}

const (
	callers = 32 // each with a limiter and a clock of its own, as processes of counterd
	maxWait = time.Minute
)

// game is traffic on one event. The i-th actor has, of each kind, the value i modulo the
// number of values.
type game struct {
	config   Config
	event    *events.Event
	actors   int
	values   map[string]int
	schedule []turn
}

// turn is a hit to come.
type turn struct{ second, actor int }

func newGame(t *testing.T, config Config) *game {
	config = config.withDefaults()
	config.Peak, config.processes, config.filled = 1, callers, 24*time.Hour
	g := &game{event: config.Rules.All()[0], values: map[string]int{}, actors: 1}
	for _, c := range countersOf(g.event) {
		config.filled = min(config.filled, c.life(c.finest))
		if !c.whole() {
			n, found := config.featuresOf(g.event.Name, c.kinds)
			require.True(t, found)
			g.actors = max(g.actors, int(math.Round(n)))
		}
	}
	features := Amounts{}
	for _, kind := range g.event.Kinds() {
		n, _ := config.featuresOf(g.event.Name, []string{kind})
		g.values[kind] = int(math.Round(n))
	}
	for _, c := range countersOf(g.event) {
		if !c.whole() {
			features[c.per] = float64(g.together(c.kinds))
		}
	}
	config.Features = features
	g.config = config
	perDay, _ := config.Events.of(g.event.Name+"/", "")
	g.draw(int(math.Round(perDay * config.filled.Hours() / 24)))
	return g
}

// together returns how many different values of those kinds together the actors have.
func (g *game) together(kinds []string) int {
	multiple := 1
	for _, kind := range kinds {
		a, b := multiple, g.values[kind]
		for b != 0 {
			a, b = b, a%b
		}
		multiple *= g.values[kind] / a
	}
	return min(multiple, g.actors)
}

// draw schedules the hits in the order of time: each actor has its share of them, anywhere.
func (g *game) draw(hits int) {
	random := rand.New(rand.NewPCG(7, 7))
	span := g.config.filled.Seconds()
	for actor := range g.actors {
		for range hits*(actor+1)/g.actors - hits*actor/g.actors {
			g.schedule = append(g.schedule, turn{int(random.Float64() * span), actor})
		}
	}
	slices.SortStableFunc(g.schedule, func(a, b turn) int { return cmp.Compare(a.second, b.second) })
}

// asked counts what the limiters ask of the servers.
type asked struct{ trips, adds, reads atomic.Int64 }

// play has callers hit, each for every callers-th actor.
func (g *game) play(t *testing.T, servers []string) *asked {
	// The day after this one: no bucket expires meanwhile.
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	took := &asked{}
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{
		Servers: servers, Replicas: g.config.Replicas, Timeout: 20 * time.Second, Clock: func() time.Time { return begin },
		OnRoundTrip: func(_ context.Context, trip memcache.RoundTrip) {
			if trip.Err == nil { // one that fails is made again
				took.trips.Add(1)
				took.adds.Add(int64(trip.Adds))
				took.reads.Add(int64(trip.Reads))
			}
		},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, fleet.Close()) }()
	var callersRun sync.WaitGroup
	for caller := range callers {
		callersRun.Go(func() { assert.NoError(t, g.call(t.Context(), fleet, caller, begin)) })
	}
	callersRun.Wait()
	return took
}

// patientStore is a fleet that the limiter's timeout, which may not exceed half the grace, does not
// interrupt: only its own does.
type patientStore struct{ *memcache.Fleet }

func (s patientStore) Do(ctx context.Context, ops ...*store.Op) {
	s.Fleet.Do(context.WithoutCancel(ctx), ops...)
}

func (g *game) call(ctx context.Context, fleet *memcache.Fleet, caller int, begin time.Time) error {
	var second atomic.Int64
	now := func() time.Time { return begin.Add(time.Duration(second.Load()) * time.Second) }
	counters := hierarchy.NewCounters(hierarchy.Config{Store: patientStore{fleet}, Clock: now, CacheBytes: 1 << 20})
	logs, err := eventlog.New(counters.Base())
	if err != nil {
		return err
	}
	leases, err := eventlog.NewLeases(counters.Base())
	if err != nil {
		return err
	}
	decider, err := limiter.New(limiter.Config{}, counters, logs, leases)
	if err != nil {
		return err
	}
	for _, next := range g.schedule {
		if next.actor%callers != caller {
			continue
		}
		second.Store(int64(next.second))
		if err := hit(ctx, decider, limiter.Hit{Event: g.event, Features: g.features(next.actor), Cost: 1}); err != nil {
			return err
		}
	}
	return nil
}

func (g *game) features(actor int) events.Features {
	features := events.Features{}
	for kind := range maps.Keys(g.values) {
		value := actor % g.values[kind]
		features[kind] = fmt.Sprintf("%s-%06d", kind, value)
		if kind == events.KindIP {
			features[kind] = fmt.Sprintf("10.%d.%d.%d", value>>16&255, value>>8&255, value&255)
		}
	}
	return features
}

// hit repeats a hit that a busy machine had decided without the store.
func hit(ctx context.Context, decider *limiter.Limiter, h limiter.Hit) error {
	for end := time.Now().Add(maxWait); ; {
		d, err := decider.Hit(ctx, h)
		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(d.Limits, func(l events.LimitState) bool { return l.Failed }):
			if !d.Allowed {
				return fmt.Errorf("%v is denied", h.Features)
			}
			return nil
		case time.Now().After(end):
			return fmt.Errorf("Memcached does not answer for %s", maxWait)
		}
	}
}
