package traffic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of call.
type Kind uint8

// The kinds of calls.
const (
	Hit Kind = iota
	Check
	Increment
	Count
	Batch
)

var kindNames = [...]string{"hit", "check", "increment", "count", "batch"}

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Hit, Check, Increment, Count, Batch} }

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

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
		if i := slices.Index(kindNames[:], name); i >= 0 {
			return Kind(i), nil
		}
		return 0, fmt.Errorf("a call is one of %s, not %q", strings.Join(kindNames[:], ", "), name)
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
type choice[K ~int64 | ~uint8] struct {
	keys    []K
	weights map[K]int
	sum     int
}

func newChoice[K ~int64 | ~uint8](weights map[K]int) choice[K] {
	c := choice[K]{weights: weights}
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		if weights[key] > 0 {
			c.keys, c.sum = append(c.keys, key), c.sum+weights[key]
		}
	}
	return c
}

func (c choice[K]) draw(rng *rand.Rand) K {
	left := 0
	if len(c.keys) > 1 {
		left = rng.IntN(c.sum)
	}
	i := 0
	for ; left >= c.weights[c.keys[i]]; i++ {
		left -= c.weights[c.keys[i]]
	}
	return c.keys[i]
}
