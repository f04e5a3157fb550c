package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/counterd/counterd/events"
)

// crowd is who does an event, numbered: the i-th has, of each kind, the value i modulo how
// many there are of it.
type crowd struct {
	actors float64
	kinds  []string
	sizes  []float64
}

// crowdOf returns the crowd that does the event.
func crowdOf(config Config, event *events.Event) crowd {
	c := crowd{kinds: event.Kinds(), actors: 1}
	for _, kind := range c.kinds {
		size, _ := config.featuresOf(event.Name, []string{kind})
		c.sizes = append(c.sizes, math.Round(size))
		c.actors = max(c.actors, c.sizes[len(c.sizes)-1])
	}
	for _, counter := range countersOf(event) {
		if counter.whole() {
			continue
		}
		// So many of kinds together that there are as many actors.
		size, _ := config.featuresOf(event.Name, counter.kinds)
		c.actors = max(c.actors, math.Round(size))
	}
	return c
}

// scaled returns that part of the crowd.
func (c crowd) scaled(part float64) crowd {
	c.actors = max(math.Round(c.actors*part), 1)
	c.sizes = slices.Clone(c.sizes)
	for i := range c.sizes {
		c.sizes[i] = max(math.Round(c.sizes[i]*part), 1)
	}
	return c
}

// together returns how many there are of those kinds together: as many as it takes until
// all of them are at their first value again, or as there are actors.
func (c crowd) together(kinds []string) float64 {
	multiple := 1.
	for i, kind := range c.kinds {
		if slices.Contains(kinds, kind) {
			multiple *= c.sizes[i] / gcd(multiple, c.sizes[i])
		}
	}
	return min(multiple, c.actors)
}

func gcd(a, b float64) float64 {
	for b != 0 {
		a, b = b, math.Mod(a, b)
	}
	return a
}

// features returns the features of the i-th.
func (c crowd) features(into events.Features, i int) {
	for k, kind := range c.kinds {
		value := i % int(c.sizes[k])
		if kind == events.KindIP {
			into[kind] = fmt.Sprintf("10.%d.%d.%d", value>>16&255, value>>8&255, value&255)
		} else {
			into[kind] = fmt.Sprintf("%s-%06d", kind, value)
		}
	}
}
