// Package denied keeps the history of denied hits: each feature whose limit denied has a counter of them, of its own.
//
// Decisions only add to a map in memory, those of a cached denial too. Once a second what was gathered is written to the
// store, one increment for each counter.
package denied

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// MinRetention is the shortest time for which denied hits are remembered, which the levels minute, hour and day need.
	MinRetention = 24 * time.Hour
	// MaxCounters is the most counters that are gathered and not written yet.
	MaxCounters = 1 << 16
	// MaxBytes is the most bytes of their events and features.
	MaxBytes = 16 << 20
	// CloseTimeout is how long Close goes on to write.
	CloseTimeout = 2 * time.Second

	// prefix of the events of the counters: no event of the rules has a slash in its name.
	prefix = "denied/"
	period = time.Second
	// early is how long before a second its hits may come: a timer may fire early by the clock, and nothing is to be
	// written twice in a second.
	early = 10 * time.Millisecond
	// shards are as many as there are calls of the store at once.
	shards = 64
)

// errClosed is the error of increments that Close gives up.
var errClosed = errors.New("denied: closed before all denied hits were written")

// CounterOf returns the counter of the denied hits of an event's feature. It has no limits, the precision minute, and the
// event's retention, or MinRetention if that is longer.
func CounterOf(event *events.Event, feature events.Feature) events.Counter {
	return events.Counter{
		Event: prefix + event.Name, Feature: feature,
		Retention: max(MinRetention, event.Remembered()), Precision: events.Minute,
	}
}

// Config sets up a History. Rules and Counters are needed.
type Config struct {
	Rules func() *events.Rules // in force: denied hits of other events are not counted
	// Counters is a [counting.Counters] whose first engine keeps buckets.
	//
	// [counting.Counters]: https://pkg.go.dev/github.com/counterd/counterd/counting#Counters
	Counters interface {
		Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error)
	}
	Clock func() time.Time // nil: time.Now
	// OnStoreError gets the error of each increment that failed. It is called concurrently. nil: it is not called.
	OnStoreError func(error)
}

// History counts denied hits. It is safe for concurrent use.
//
// It gathers at most MaxCounters counters, of MaxBytes in all: what is being written is among them. Hits beyond are
// dropped, and counted as such. So it takes 32 MB at the most, and 8 MB if MaxCounters users of usual length are denied
// in a second.
type History struct {
	config   Config
	seed     maphash.Seed
	shards   [shards]shard
	counters atomic.Int64 // gathered and not written yet
	bytes    atomic.Int64 // of these
	dropped  atomic.Int64
	failed   atomic.Int64
	wake     chan struct{} // something is gathered
	stop     context.CancelFunc
	done     chan struct{}
}

// shard has the counters of some hashes.
type shard struct {
	mu   sync.Mutex
	hits map[key]int64
	_    [64]byte // no cache line is of two
}

// key is the counter of an event's feature.
type key struct {
	event   string
	feature events.Feature
}

// size returns the bytes of the key.
func (k key) size() (bytes int64) {
	bytes = int64(len(k.event))
	for kind, value := range k.feature.All() {
		bytes += int64(len(kind) + len(value))
	}
	return bytes
}

// Start returns a History that writes until Close.
func Start(config Config) *History {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.OnStoreError == nil {
		config.OnStoreError = func(error) {}
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &History{config: config, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go h.run(ctx)
	return h
}

// Close writes what is gathered, for at most CloseTimeout and the end of the calls that are under way then; what is left
// counts as failed. Decisions that come later are not written.
func (h *History) Close() {
	h.stop()
	<-h.done
}

// Lost is how many denied hits the history lacks.
type Lost struct {
	Full  int64 // there were too many counters
	Store int64 // their increment failed: the store may have counted some of them
}

// Lost returns how many denied hits the history lacks.
func (h *History) Lost() Lost { return Lost{h.dropped.Load(), h.failed.Load()} }

// OnDecision counts a denied hit, whatever its cost, once for each feature with a limit that denies it, for a
// [limiter.Config]. Limits of the event as a whole have the zero Feature. Checks, and hits that are denied because the
// store does not answer, are not counted.
func (h *History) OnDecision(_ context.Context, hit limiter.Hit, d *events.Decision, call limiter.Call) {
	if d.Allowed || d.Unavailable || call != limiter.CallHit || hit.Event == nil {
		return
	}
	if _, err := h.config.Rules().Event(hit.Event.Name); err != nil {
		return // its history cannot be asked for
	}
	for i := range d.Limits {
		if state := &d.Limits[i]; state.Vetoes() && !deniedBefore(d.Limits[:i], state.Feature) {
			h.add(key{hit.Event.Name, state.Feature})
		}
	}
}

// deniedBefore reports whether one of the limits denies the feature.
func deniedBefore(limits []events.LimitState, feature events.Feature) bool {
	for i := range limits {
		if limits[i].Vetoes() && limits[i].Feature == feature {
			return true
		}
	}
	return false
}

// add counts a hit.
func (h *History) add(k key) {
	s := &h.shards[maphash.Comparable(h.seed, k)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, found := s.hits[k]; found {
		s.hits[k] = n + 1
		return
	}
	if !h.reserve(k.size()) {
		h.dropped.Add(1)
		return
	}
	if s.hits == nil {
		s.hits = map[key]int64{}
	}
	s.hits[k] = 1
	select {
	case h.wake <- struct{}{}:
	default: // it is to wake already
	}
}

// reserve takes room for a counter, if there is any.
func (h *History) reserve(size int64) bool {
	counters, bytes := h.counters.Add(1), h.bytes.Add(size)
	if counters <= MaxCounters && bytes <= MaxBytes {
		return true
	}
	h.release(size)
	return false
}

// release gives the room of a counter back.
func (h *History) release(size int64) {
	h.counters.Add(-1)
	h.bytes.Add(-size)
}

// run writes at each whole second what was gathered in the one before, until the context ends, and then what is left.
func (h *History) run(ctx context.Context) {
	defer close(h.done)
	writing, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(CloseTimeout, func() { cancel(errClosed) }) })()
	for ctx.Err() == nil {
		select {
		case <-h.wake:
		case <-ctx.Done():
		}
		now := h.config.Clock()
		second := now.Add(early).Truncate(period)
		select {
		case <-time.After(second.Add(period).Sub(now)):
		case <-ctx.Done():
		}
		h.write(writing, second)
	}
	h.write(writing, h.config.Clock().Truncate(period)) // what came while the last one was under way
}

// write writes what is gathered as of that second: one call after the other for each shard.
func (h *History) write(ctx context.Context, second time.Time) {
	rules := h.config.Rules()
	var writers sync.WaitGroup
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		hits := s.hits
		s.hits = nil
		s.mu.Unlock()
		if len(hits) == 0 {
			continue
		}
		writers.Go(func() {
			for k, n := range hits {
				if event, err := rules.Event(k.event); err == nil {
					h.increment(ctx, n, second, CounterOf(event, k.feature))
				}
				delete(hits, k)
				h.release(k.size())
			}
		})
	}
	writers.Wait()
}

// increment adds n hits to a counter. An increment that fails may have counted: it is not repeated.
func (h *History) increment(ctx context.Context, n int64, second time.Time, counter events.Counter) {
	for ; n > 0; n -= engine.MaxBy {
		by := min(n, engine.MaxBy)
		err := context.Cause(ctx)
		if err == nil {
			_, err = h.config.Counters.Increment(ctx, by, second, counter)
		}
		if err != nil {
			h.failed.Add(by)
			h.config.OnStoreError(err)
		}
	}
}
