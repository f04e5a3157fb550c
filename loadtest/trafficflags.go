package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/traffic"
)

// trafficFlags are those of generated calls.
type trafficFlags struct {
	calls      traffic.Config
	kind       string
	population int
	zipf       float64
	mix, costs string
	seed       uint64

	source *traffic.Source // what parse makes of them
}

// names of the flags that add adds.
const generatedFlags = "kind population zipf mix costs seed"

func (f *trafficFlags) add(set *flag.FlagSet, calls string) {
	set.StringVar(&f.kind, "kind", "ip", "the `kind` of feature, or several, as ip,user")
	set.IntVar(&f.population, "population", 10_000, "`number` of different features of each kind")
	set.Float64Var(&f.zipf, "zipf", 0, "features by Zipf's law with this `s` above 1 (default evenly)")
	set.StringVar(&f.mix, "mix", "hit", "`weights` of calls: "+calls+", as in hit=80,check=20")
	set.StringVar(&f.costs, "costs", "1", "`weights` of costs, as in 1=90,5=10")
	set.Uint64Var(&f.seed, "seed", 0, "`number` that the calls depend on (default a random one)")
}

// kinds returns the kinds of features, in the order of -kind.
func (f *trafficFlags) kinds() []string { return strings.Split(f.kind, ",") }

// parse makes the source of the calls.
func (f *trafficFlags) parse() (err error) {
	f.seed = cmp.Or(f.seed, rand.Uint64())
	f.calls.Rand = rand.New(rand.NewPCG(f.seed, 0))
	var populations []traffic.Population
	for i, kind := range f.kinds() {
		if err := traffic.CheckPopulation(kind, f.population, f.zipf); err != nil {
			return err
		}
		if slices.Contains(f.kinds()[:i], kind) {
			return errors.New("-kind has one twice")
		}
		if f.zipf > 0 {
			populations = append(populations, traffic.NewZipf(kind, f.population, f.zipf, f.calls.Rand))
		} else {
			populations = append(populations, traffic.NewUniform(kind, f.population, f.calls.Rand))
		}
	}
	f.calls.Population = traffic.Together(populations...)
	if f.calls.Mix, err = traffic.ParseMix(f.mix); err != nil {
		return fmt.Errorf("-mix: %w", err)
	}
	if f.calls.Costs, err = traffic.ParseCosts(f.costs); err != nil {
		return fmt.Errorf("-costs: %w", err)
	}
	f.source, err = traffic.New(f.calls)
	return err
}

// overRLS refuses calls that Envoy's RateLimitService has not.
func (f *trafficFlags) overRLS() error {
	for kind := range f.calls.Mix {
		if kind != traffic.Hit && kind != traffic.Check {
			return fmt.Errorf("-mix: the rate limit service has hits and checks, no %s", kind)
		}
	}
	return nil
}

// says describes the calls for an event or a domain.
func (f *trafficFlags) says(of string) string {
	population := fmt.Sprintf("%d %s", f.population, f.kind)
	if f.zipf > 0 {
		population += fmt.Sprintf(" by Zipf's law, %v", f.zipf)
	}
	text := fmt.Sprintf("%s: %s; %s", of, f.mix, population)
	if f.costs != "1" {
		text += "; costs " + f.costs
	}
	if f.calls.Mix[traffic.Batch] > 0 {
		text += fmt.Sprintf("; batches of %d", f.calls.BatchSize)
	}
	return fmt.Sprintf("%s; seed %d", text, f.seed)
}
