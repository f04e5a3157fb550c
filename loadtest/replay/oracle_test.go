package replay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowOracle goes through every event for every sum.
type slowOracle []struct {
	counter uint32
	second  int64
}

func (o slowOracle) sum(counter uint32, first, last int64) (n int64) {
	for _, e := range o {
		if e.counter == counter && e.second >= first && e.second <= last {
			n++
		}
	}
	return n
}

func TestOracle(t *testing.T) {
	const counters = 5
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		slow := make(slowOracle, random.IntN(40))
		for i := range slow {
			slow[i].counter, slow[i].second = random.Uint32N(counters), random.Int64N(30)-5
		}
		inOrder := slices.Clone(slow)
		slices.SortFunc(inOrder, func(a, b struct {
			counter uint32
			second  int64
		}) int {
			return int(a.second - b.second)
		})
		fast := newOracle(counters)
		for _, e := range inOrder {
			fast.add([]uint32{e.counter}, e.second)
		}
		for range 100 {
			counter, first := random.Uint32N(counters), random.Int64N(40)-10
			last := first + random.Int64N(30) - 1
			require.Equal(t, slow.sum(counter, first, last), fast.sum(counter, first, last),
				"%v: counter %d from %d to %d", slow, counter, first, last)
		}
	}
}

func TestOracleCounters(t *testing.T) {
	o := newOracle(4)
	o.add([]uint32{1}, 7)
	o.add([]uint32{1, 2}, 8)
	o.doubt([]uint32{2, 3})
	sure, unsure := o.counters()
	assert.Equal(t, 1, sure)
	assert.Equal(t, 2, unsure)
}
