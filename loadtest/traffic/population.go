package traffic

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"

	"github.com/counterd/counterd/events"
)

// MaxPopulation is the largest population of a number: as many as there are addresses in 10.0.0.0/8.
const MaxPopulation = 1 << 24

// Population draws the features of one of a set, in a map of its own. One goroutine calls it.
type Population func() events.Features

// numbered is numbered features of a kind, of which pick chooses one; of the kind ip they are
// addresses.
func numbered(kind string, pick func() uint64) Population {
	return func() events.Features {
		i := pick()
		if kind == events.KindIP {
			return events.Features{kind: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)}
		}
		return events.Features{kind: fmt.Sprintf("user-%06d", i)}
	}
}

// NewUniform returns a population of n, 1 to MaxPopulation, each as often as any other.
func NewUniform(kind string, n int, rng *rand.Rand) Population {
	return numbered(kind, func() uint64 { return rng.Uint64N(uint64(n)) })
}

// NewZipf returns a population of n, 1 to MaxPopulation, the k-th in proportion to
// 1/k^s, s above 1.
func NewZipf(kind string, n int, s float64, rng *rand.Rand) Population {
	return numbered(kind, rand.NewZipf(rng, s, 1, uint64(n)-1).Uint64)
}

// Together returns a population of several kinds at once, drawn one by one from a population of
// each.
func Together(populations ...Population) Population {
	return func() events.Features {
		all := events.Features{}
		for _, one := range populations {
			maps.Copy(all, one())
		}
		return all
	}
}

// CheckPopulation finds what is wrong with a population of n of a kind, and with the s of Zipf's
// law where that is not 0.
func CheckPopulation(kind string, n int, s float64) error {
	switch err := (events.Features{kind: "10.0.0.0"}).Validate(); {
	case err != nil:
		return fmt.Errorf("-kind: %w", err)
	case n < 1 || n > MaxPopulation:
		return fmt.Errorf("-population is 1 to %d, not %d", MaxPopulation, n)
	case s != 0 && !(s > 1 && !math.IsInf(s, 1)):
		return fmt.Errorf("-zipf is above 1, not %v", s)
	}
	return nil
}
