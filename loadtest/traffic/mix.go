package traffic

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of call.
type Kind string

// The kinds of calls.
const (
	Hit       Kind = "hit"
	Check     Kind = "check"
	Increment Kind = "increment"
	Count     Kind = "count"
	Batch     Kind = "batch"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Hit, Check, Increment, Count, Batch} }

// MaxWeight is the largest weight of one choice.
const MaxWeight = 1_000_000

// Mix is the weight of each kind of call. Nil: hits alone.
type Mix map[Kind]int

// Costs is the weight of each cost. Nil: 1 alone.
type Costs map[int64]int

// MaxCost is the largest cost of a hit.
const MaxCost = 1_000_000

// ParseMix reads weights by kind, as in hit=80,check=20.
func ParseMix(s string) (Mix, error) {
	return parseWeights(s, func(name string) (Kind, error) {
		if kind := Kind(name); slices.Contains(Kinds(), kind) {
			return kind, nil
		}
		return "", fmt.Errorf("a call is hit, check, increment, count or batch, not %q", name)
	})
}

// ParseCosts reads weights by cost, as in 1=90,5=10.
func ParseCosts(s string) (Costs, error) {
	return parseWeights(s, func(name string) (int64, error) {
		cost, err := strconv.ParseInt(name, 10, 64)
		if err != nil || cost < 1 || cost > MaxCost {
			return 0, fmt.Errorf("a cost is 1 to %d, not %q", MaxCost, name)
		}
		return cost, nil
	})
}

// parseWeights reads name=weight,... A name alone weighs 1.
func parseWeights[K comparable](s string, parse func(string) (K, error)) (map[K]int, error) {
	weights := map[K]int{}
	for part := range strings.SplitSeq(s, ",") {
		name, number, weighed := strings.Cut(strings.TrimSpace(part), "=")
		key, err := parse(name)
		if err != nil {
			return nil, err
		}
		weight := 1
		if weighed {
			if weight, err = strconv.Atoi(number); err != nil {
				return nil, fmt.Errorf("the weight of %s is a number, not %q", name, number)
			}
		}
		if _, twice := weights[key]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		weights[key] = weight
	}
	return weights, checkWeights(weights)
}

func checkWeights[K comparable](weights map[K]int) error {
	sum := 0
	for key, weight := range weights {
		if weight < 0 || weight > MaxWeight {
			return fmt.Errorf("a weight is 0 to %d, not the %d of %v", MaxWeight, weight, key)
		}
		sum += weight
	}
	if sum == 0 {
		return fmt.Errorf("no weight is above 0")
	}
	return nil
}

// choice chooses among few, by weights.
type choice[K cmp.Ordered] struct {
	keys    []K
	weights map[K]int
	sum     int
}

func newChoice[K cmp.Ordered](weights map[K]int) choice[K] {
	c := choice[K]{keys: slices.Sorted(maps.Keys(weights)), weights: weights}
	for _, weight := range weights {
		c.sum += weight
	}
	return c
}

func (c choice[K]) draw(rng *rand.Rand) K {
	i := 0
	for left := rng.IntN(c.sum); left >= c.weights[c.keys[i]]; i++ {
		left -= c.weights[c.keys[i]]
	}
	return c.keys[i]
}
