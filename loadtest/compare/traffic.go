package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/traffic"
)

const second = int64(time.Second)

// MaxHits is the most hits of one traffic. Each takes 24 bytes, and 16 in the judge's log.
const MaxHits = 50_000_000

// Traffic is hits in the order of their times.
type Traffic struct {
	Name      string
	Malformed int // lines of a log that could not be read

	kind     string
	features []string
	hits     []hit
	places   map[string]int // of the features
}

type hit struct {
	at      int64 // nanoseconds since 1970
	feature int   // its place in the features
	cost    int64
}

// Hits returns how many there are.
func (t *Traffic) Hits() int { return len(t.hits) }

// Features returns by how many features they are.
func (t *Traffic) Features() int { return len(t.features) }

// Zipf says which hits are drawn, of a cost of 1. All are needed but Seed.
type Zipf struct {
	Features int           // to draw from
	S        float64       // of Zipf's law, above 1
	Rate     float64       // hits a second, that come independently of one another
	Duration time.Duration // of the traffic, in its own time
	Seed     uint64
}

// Defaults of a Zipf.
const (
	DefaultFeatures = 10_000
	DefaultS        = 1.1
	DefaultRate     = 30
	DefaultDuration = 3 * time.Hour
)

// zipfKind is the kind of the features that are drawn.
const zipfKind = "user"

// opening is the moment at which drawn traffic begins: no window begins there.
var opening = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// Check finds what is wrong with it.
func (z Zipf) Check() error {
	faults := []error{traffic.CheckPopulation(zipfKind, z.Features, z.S)}
	if !(z.Rate > 0 && z.Duration > 0 && z.Rate*z.Duration.Seconds() <= MaxHits) {
		faults = append(faults, fmt.Errorf("compare: a rate and a duration are wanted that make 1 to %d hits", MaxHits))
	}
	return errors.Join(faults...)
}

// Draw draws the hits. They come as a Poisson process does, from a moment on at which no
// window begins.
func (z Zipf) Draw(ctx context.Context) (*Traffic, error) {
	if err := z.Check(); err != nil {
		return nil, err
	}
	population := traffic.NewZipf(zipfKind, z.Features, z.S, rand.New(rand.NewPCG(z.Seed, 0)))
	t := &Traffic{kind: zipfKind, places: map[string]int{}, Name: fmt.Sprintf("%s features by Zipf's law (s=%g), %g hits a second for %s",
		columns.Grouped(int64(z.Features)), z.S, z.Rate, events.FormatDuration(z.Duration))}
	when := rand.New(rand.NewPCG(z.Seed, 1))
	for after := time.Duration(0); ; {
		after += time.Duration(when.ExpFloat64() / z.Rate * float64(time.Second))
		if after >= z.Duration || ctx.Err() != nil {
			break
		}
		t.add(opening.Add(after), population()[zipfKind], 1)
	}
	return t.finish(ctx)
}

// FromLog returns the hits of a log, one for each line that has a feature of the kind.
func FromLog(ctx context.Context, name, kind string, log *accesslog.Log) (*Traffic, error) {
	if len(log.Events) > MaxHits {
		return nil, fmt.Errorf("compare: the log has more than %d lines", MaxHits)
	}
	t := &Traffic{kind: kind, Name: name, Malformed: log.Malformed, places: map[string]int{}}
	// counterd counts IPv6 addresses by their network, and so do all then.
	counted := eventOf(events.Limit{}, kind, events.Second)
	first := map[string]string{}
	var applied []events.Applied
	for _, e := range log.Events {
		features := log.Actors[e.Actor]
		if features[kind] == "" {
			continue
		}
		var err error
		if applied, err = counted.Apply(applied[:0], features); err != nil {
			return nil, err
		}
		feature, known := first[applied[0].ID]
		if !known {
			feature = features[kind]
			first[applied[0].ID] = feature
		}
		if e.Micros <= 0 {
			return nil, errors.New("compare: the log has a time before 1970")
		}
		t.add(e.Time(), feature, 1)
	}
	return t.finish(ctx)
}

func (t *Traffic) add(at time.Time, feature string, cost int64) {
	place, known := t.places[feature]
	if !known {
		place = len(t.features)
		t.places[feature] = place
		t.features = append(t.features, feature)
	}
	t.hits = append(t.hits, hit{at.UnixNano(), place, cost})
}

// finish puts the hits into the order of their times; those of one time stay in theirs.
func (t *Traffic) finish(ctx context.Context) (*Traffic, error) {
	slices.SortStableFunc(t.hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	if ctx.Err() == nil && len(t.hits) == 0 {
		return nil, errors.New("compare: there is no hit to compare with")
	}
	t.places = nil
	return t, ctx.Err()
}
