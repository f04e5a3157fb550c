package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rulesOf(t *testing.T, text string) *events.Rules {
	t.Helper()
	rules, err := rulesfile.Parse([]byte(text))
	require.NoError(t, err)
	rules.Modified(time.Now()) // as those of a file
	return rules
}

const fourLimits = "events: {hit: {limits: [{per: ip, rate: [1000/s, 10000/m, 100000/h, 1000000/d]}]}}"

// entry is a line of a log.
type entry struct {
	at       time.Time
	features events.Features
}

func logOf(entries []entry) func(func(time.Time, events.Features) bool) {
	return func(yield func(time.Time, events.Features) bool) {
		for _, e := range entries {
			if !yield(e.at, e.features) {
				return
			}
		}
	}
}

// slowMost returns the most items that a log makes, by level: it looks at every second at
// all buckets that there ever were.
func slowMost(entries []entry, retention time.Duration, finest, coarsest hierarchy.Level, keysOf func(events.Features) []string) (most int) {
	type item struct {
		key    string
		bucket hierarchy.Bucket
	}
	made := map[item]int64{}
	next := 0
	for second := entries[0].at.Unix(); second <= entries[len(entries)-1].at.Unix(); second++ {
		for ; next < len(entries) && entries[next].at.Unix() == second; next++ {
			for _, key := range keysOf(entries[next].features) {
				for l := finest; l <= coarsest; l++ {
					i := item{key, hierarchy.BucketAt(l, second)}
					made[i] = i.bucket.Last() + 1 + int64(retention/time.Second) + l.Seconds() + 2 + 1
				}
			}
		}
		alive := 0
		for _, expires := range made {
			if expires > second {
				alive++
			}
		}
		most = max(most, alive)
	}
	return most
}

// What a log makes is counted exactly.
func TestALogIsCountedExactly(t *testing.T) {
	rules := rulesOf(t, "events: {hit: {limits: [{per: ip, rate: [5/s, 10/m]}, {per: [ip, user], rate: 3/20s}]}}")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var entries []entry
		at := time.Date(2026, 3, 14, 23, 57, 13, 0, time.UTC)
		for range 300 {
			at = at.Add(time.Duration(rng.IntN(4000)) * time.Millisecond)
			features := events.Features{"ip": fmt.Sprintf("192.0.2.%d", rng.IntN(9))}
			if rng.IntN(3) > 0 {
				features["user"] = fmt.Sprint(rng.IntN(4))
			}
			entries = append(entries, entry{at, features})
		}
		report, err := Run(t.Context(), Config{Rules: rules, Log: logOf(entries), Replicas: 1})
		require.NoError(t, err)
		want := slowMost(entries, time.Minute, hierarchy.Second, hierarchy.Minute, func(f events.Features) []string {
			keys := []string{f["ip"]}
			if f["user"] != "" {
				keys = append(keys, f["ip"]+" "+f["user"])
			}
			return keys
		})
		assert.EqualValues(t, want, report.Total.Items, "seed %d", seed)
		assert.Equal(t, 300, report.Log.Hits)
		seconds := entries[299].at.Sub(entries[0].at).Seconds() + 1
		assert.InEpsilon(t, 300/seconds, report.Total.Average.Hits, 1e-9)
	}
}

// So are the logs that it makes.
func TestLogsAreCountedExactly(t *testing.T) {
	rules := rulesOf(t, "events: {hit: {limits: [{per: ip, rate: [5/s, 90/m], algorithm: sliding-log}]}}")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var entries []entry
		at := time.Date(2026, 3, 14, 23, 57, 13, 0, time.UTC)
		last, most, created := map[string]int64{}, 0, 0
		for range 300 {
			at = at.Add(time.Duration(rng.IntN(8)) * time.Second)
			user := fmt.Sprintf("192.0.2.%d", rng.IntN(20))
			entries = append(entries, entry{at, events.Features{"ip": user}})
			if at.Unix()-last[user] >= 83 {
				created++
			}
			last[user] = at.Unix()
			live := 0
			for _, second := range last {
				if at.Unix()-second < 83 {
					live++
				}
			}
			most = max(most, live)
		}
		report, err := Run(t.Context(), Config{Rules: rules, Log: logOf(entries), Replicas: 1})
		require.NoError(t, err)
		assert.EqualValues(t, most, report.Total.Items, "seed %d", seed)
		average := report.Total.Average
		assert.InDelta(t, 300+created, average.Reads/average.Hits*300, 1e-6)
		chunks := report.Total.ItemBytes / report.Total.Items
		assert.Greater(t, chunks, 150.)
		assert.Less(t, chunks, 250.)
	}
}

// More of anything needs no less, and the servers that are left when one is gone hold all.
func TestServers(t *testing.T) {
	rules := rulesOf(t, fourLimits)
	before := 0
	for _, features := range []float64{1e3, 1e5, 1e6, 1e7} {
		config := Config{Rules: rules, Features: Amounts{"": features}, Events: Amounts{"": 20 * features}}
		report, err := Run(t.Context(), config)
		require.NoError(t, err)
		s := report.Servers
		assert.GreaterOrEqual(t, s.Needed, before)
		before = s.Needed
		assert.Equal(t, max(s.ByMemory, s.ByCPU)+1, s.Needed)
		assert.LessOrEqual(t, s.MemoryBytes, float64(DefaultMemory))
		assert.InEpsilon(t, report.Total.Items, s.Items*float64(s.Needed-1), 1e-9)
		assert.GreaterOrEqual(t, float64(s.Megabytes)*megabyte, s.SlabBytes*1.25)
	}
	assert.Greater(t, before, 10)

	// Two replicas need three servers, whatever they hold.
	report, err := Run(t.Context(), Config{Rules: rules, Features: Amounts{"": 10}, Events: Amounts{"": 10}})
	require.NoError(t, err)
	assert.Equal(t, 3, report.Servers.Needed)

	// A counter of a whole event is on one server: with more of them it is no lighter.
	whole := Config{
		Rules:    rulesOf(t, "events: {hit: {limits: [{per: [], rate: 1000000000/d}]}}"),
		Features: Amounts{"": 1}, Events: Amounts{"": 1e11}, Replicas: 1,
	}
	_, err = Run(t.Context(), whole)
	assert.ErrorContains(t, err, "no number of servers is enough")
	byCPU := Config{Rules: rules, Features: Amounts{"": 1e6}, Events: Amounts{"": 1e11}, Server: Server{Memory: 1 << 40}}
	report, err = Run(t.Context(), byCPU)
	require.NoError(t, err)
	assert.Greater(t, report.Servers.ByCPU, report.Servers.ByMemory)
}

// Which number is meant is said by the nearest name.
func TestAmountsOfEvents(t *testing.T) {
	rules := rulesOf(t, "events: {a: {limits: [{per: ip, rate: 5/d}]}, b: {limits: [{per: ip, rate: 5/d}, {per: user, rate: 5/d}, {per: [ip, user], rate: 5/d}]}}")
	report, err := Run(t.Context(), Config{
		Rules: rules, Features: Amounts{"": 10, "b/ip": 20, "user": 30}, Events: Amounts{"": 100, "b/": 200},
	})
	require.NoError(t, err)
	found := map[string]float64{}
	for _, e := range report.Events {
		for _, c := range e.Counters {
			found[e.Name+" "+c.Per] = c.FeaturesADay
		}
	}
	assert.Equal(t, map[string]float64{"a ip": 10, "b ip": 20, "b user": 30, "b ip+user": 30}, found)
	assert.InEpsilon(t, 2, report.Events[1].Total.Average.Hits/report.Events[0].Total.Average.Hits, 1e-9)
}
