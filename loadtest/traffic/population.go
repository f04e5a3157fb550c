package traffic

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"

	"github.com/counterd/counterd/events"
)

// MaxPopulation is the largest population of a number: as many as there are addresses in 10.0.0.0/8.
const MaxPopulation = 1 << 24

// Population is a set of features. One goroutine draws from it.
type Population interface {
	// Draw returns the features of one of them, in a map of its own.
	Draw() events.Features
}

// population is numbered features of a kind, of which pick chooses one.
type population struct {
	kind string
	pick func() uint64
}

// Draw returns the chosen one: of the kind ip an address.
func (c population) Draw() events.Features {
	i := c.pick()
	if c.kind == events.KindIP {
		return events.Features{c.kind: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)}
	}
	return events.Features{c.kind: fmt.Sprintf("user-%06d", i)}
}

// NewUniform returns a population of n, 1 to MaxPopulation, each as often as any other.
func NewUniform(kind string, n int, rng *rand.Rand) Population {
	return population{kind, func() uint64 { return rng.Uint64N(uint64(n)) }}
}

// NewZipf returns a population of n, 1 to MaxPopulation, the k-th in proportion to
// 1/k^s, s above 1.
func NewZipf(kind string, n int, s float64, rng *rand.Rand) Population {
	return population{kind, rand.NewZipf(rng, s, 1, uint64(n)-1).Uint64}
}

// CheckPopulation finds what is wrong with a population of n of a kind, and with the s of Zipf's
// law where that is not 0.
func CheckPopulation(kind string, n int, s float64) error {
	var faults []error
	if n < 1 || n > MaxPopulation {
		faults = append(faults, fmt.Errorf("traffic: a population has 1 to %d features, not %d", MaxPopulation, n))
	}
	if s != 0 && !(s > 1 && !math.IsInf(s, 1)) {
		faults = append(faults, fmt.Errorf("traffic: the s of Zipf's law is above 1, not %v", s))
	}
	if err := (events.Features{kind: "10.0.0.0"}).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("traffic: %w", err))
	}
	return errors.Join(faults...)
}

// together is several populations, each of a kind of its own.
type together []Population

// Together returns a population whose members are of several kinds at once, drawn one by one
// from a population of each.
func Together(populations ...Population) Population {
	if len(populations) == 1 {
		return populations[0]
	}
	return together(populations)
}

func (t together) Draw() events.Features {
	all := events.Features{}
	for _, one := range t {
		maps.Copy(all, one.Draw())
	}
	return all
}
