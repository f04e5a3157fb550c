// Package traffic makes the calls of a load test: their features and kinds, in which
// mix and at which costs. What it draws depends on its source of random numbers alone, so
// the same seed gives the same calls. Errors name the flag that is wrong.
//
// Most callers want [New], and then [Source.Next] for each call.
package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// Defaults of a Config, and the bound of a batch.
const (
	DefaultBatch  = 100
	MaxBatch      = 1000
	DefaultWindow = time.Minute
)

// Config says what calls there are. Event, Population and Rand are needed.
type Config struct {
	Event      string
	Population Population
	Mix        Mix
	Costs      Costs // of hits, checks and increments
	BatchSize  int   // hits of a batch, 1 to MaxBatch; 0: DefaultBatch
	// Window is what is counted, in whole seconds, at most the event's retention; 0: DefaultWindow.
	Window time.Duration
	Rand   *rand.Rand
}

// check returns the first fault of the config.
func (c Config) check() error {
	switch {
	case !events.ValidName(c.Event):
		return fmt.Errorf("-event: %q cannot be an event", c.Event)
	case c.Population == nil || c.Rand == nil:
		return errors.New("traffic: a population and a source of random numbers are needed")
	case c.BatchSize < 1 || c.BatchSize > MaxBatch:
		return fmt.Errorf("-batch is 1 to %d hits, not %d", MaxBatch, c.BatchSize)
	case c.Window < time.Second || c.Window > events.MaxWindow || c.Window%time.Second != 0:
		return fmt.Errorf("-window is 1s to %s in whole seconds, not %s", events.FormatDuration(events.MaxWindow), c.Window)
	}
	return errors.Join(checkWeights(c.Mix), checkWeights(c.Costs))
}

// Call is one call.
type Call struct {
	Kind     Kind
	Event    string
	Features events.Features // of all kinds but Batch
	Cost     int64           // of a hit and a check, and what an increment adds
	Window   time.Duration   // of a count
	Hits     []wire.BatchHit // of a Batch
}

// Source makes calls, from one goroutine.
type Source struct {
	config Config
	kinds  choice[Kind]
	costs  choice[int64]
}

// New returns a source of such calls.
func New(config Config) (*Source, error) {
	if config.Mix == nil {
		config.Mix = Mix{Hit: 1}
	}
	if config.Costs == nil {
		config.Costs = Costs{1: 1}
	}
	config.BatchSize = cmp.Or(config.BatchSize, DefaultBatch)
	config.Window = cmp.Or(config.Window, DefaultWindow)
	if err := config.check(); err != nil {
		return nil, err
	}
	return &Source{config, newChoice(config.Mix), newChoice(config.Costs)}, nil
}

// Next returns the next call. It shares no memory with those before.
func (s *Source) Next() Call {
	call := Call{Kind: s.kinds.draw(s.config.Rand), Event: s.config.Event}
	if call.Kind == Batch {
		call.Hits = make([]wire.BatchHit, s.config.BatchSize)
		for i := range call.Hits {
			call.Hits[i] = wire.BatchHit{Event: call.Event, Features: s.config.Population(), Cost: new(s.cost())}
		}
		return call
	}
	call.Features = s.config.Population()
	if call.Kind == Count {
		call.Window = s.config.Window
		return call
	}
	call.Cost = s.cost()
	return call
}

func (s *Source) cost() int64 { return s.costs.draw(s.config.Rand) }
