package traffic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/loadtest/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// near holds a count against a share of n: within five standard deviations.
func near(t *testing.T, n int, share float64, got int, of any) {
	t.Helper()
	want := float64(n) * share
	assert.InDelta(t, want, got, 5*math.Sqrt(want*(1-share))+1e-9, "%v", of)
}

func draws(population traffic.Population, kind string, n int) map[string]int {
	got := map[string]int{}
	for range n {
		got[population()[kind]]++
	}
	return got
}

// The head of Zipf's law is what its formula says.
func TestZipf(t *testing.T) {
	const n, members, s = 200_000, 1000, 1.2
	got := draws(traffic.NewZipf("user", members, s, seeded(1)), "user", n)
	var whole float64
	for k := 1; k <= members; k++ {
		whole += math.Pow(float64(k), -s)
	}
	for k := 1; k <= 20; k++ {
		near(t, n, math.Pow(float64(k), -s)/whole, got[fmt.Sprintf("user-%06d", k-1)], k)
	}
	assert.NotContains(t, got, "user-001000")
}

func TestMix(t *testing.T) {
	const n = 100_000
	mix, err := traffic.ParseMix("hit=70, check=20,increment=6,count=4,batch=0")
	require.NoError(t, err)
	costs, err := traffic.ParseCosts("1=3,5=1")
	require.NoError(t, err)
	rng := seeded(1)
	source, err := traffic.New(traffic.Config{Event: "e", Population: traffic.NewUniform("ip", 10, rng), Mix: mix, Costs: costs, Window: time.Hour, Rand: rng})
	require.NoError(t, err)
	kinds, byCost, costly := map[traffic.Kind]int{}, map[int64]int{}, 0
	for range n {
		call := source.Next()
		kinds[call.Kind]++
		assert.Equal(t, "e", call.Event)
		assert.Len(t, call.Features, 1)
		if call.Kind == traffic.Count {
			assert.Equal(t, time.Hour, call.Window)
			assert.Zero(t, call.Cost)
			continue
		}
		costly++
		byCost[call.Cost]++
	}
	for kind, share := range map[traffic.Kind]float64{traffic.Hit: 0.7, traffic.Check: 0.2, traffic.Increment: 0.06, traffic.Count: 0.04, traffic.Batch: 0} {
		near(t, n, share, kinds[kind], kind)
	}
	near(t, costly, 0.75, byCost[1], "cost 1")
	assert.Len(t, byCost, 2)
}

func TestSameSeedSameCalls(t *testing.T) {
	calls := func(seed uint64) (list []traffic.Call) {
		rng := seeded(seed)
		source, err := traffic.New(traffic.Config{
			Event: "e", Population: traffic.NewZipf("user", 1000, 1.1, rng), Rand: rng, BatchSize: 3,
			Mix:   traffic.Mix{traffic.Hit: 1, traffic.Check: 1, traffic.Increment: 1, traffic.Count: 1, traffic.Batch: 1},
			Costs: traffic.Costs{1: 1, 2: 1, 3: 1},
		})
		require.NoError(t, err)
		for range 1000 {
			list = append(list, source.Next())
		}
		return list
	}
	assert.Equal(t, calls(7), calls(7))
	assert.NotEqual(t, calls(7), calls(8))
}
