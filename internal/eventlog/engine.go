package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Algorithm is what the rules call the windows that this engine counts. It counts token buckets, too.
const Algorithm = events.SlidingLog

// The items of a counter: the log of its hits, and that of its leases.
var (
	logItem    = store.Item(store.OtherLevels, 2)
	leasesItem = store.Item(store.OtherLevels, 3)
)

// Item returns the number of the item with the log of a counter's hits.
func Item() uint64 { return logItem }

// LeasesItem returns the number of the item with the log of a counter's leases.
func LeasesItem() uint64 { return leasesItem }

// Engine keeps counters as logs. It is safe for concurrent use.
type Engine struct {
	base     engine.Base
	now      func() time.Time
	grace    grace
	process  uint32
	sequence atomic.Uint64
	places   places
	// replicated: the store keeps several replicas of a counter, which order hits differently.
	replicated bool
	algorithm  string // of the limits whose counters it keeps
	item       uint64 // of each counter
}

// NewLeases returns an engine of leases on the base of another one: each hit is a lease, a hit that ends
// by itself, or is released. A window as long as a lease holds the leases that there are.
func NewLeases(base engine.Base) (*Engine, error) {
	e, err := New(base)
	if err == nil {
		e.algorithm, e.item = events.Concurrency, leasesItem
	}
	return e, err
}

// New returns an engine on the base of another one. Processes that share a store need the same
// grace. An engine on a store of this process alone has a base without OnUse.
func New(base engine.Base) (*Engine, error) {
	can := base.Store.Capabilities()
	switch {
	case !can.Writes.Has(store.Append):
		return nil, fmt.Errorf("eventlog: %w: the store has no appends", store.ErrUnsupported)
	case base.Grace <= 0:
		return nil, errors.New("eventlog: the base has no grace")
	}
	e := &Engine{base: base, now: base.Clock, grace: grace(base.Grace.Milliseconds()), process: rand.Uint32(), replicated: can.Replicated(), algorithm: Algorithm, item: logItem}
	if e.now == nil {
		e.now = time.Now
	}
	return e, nil
}

// Base returns what the engine shares with others.
func (e *Engine) Base() engine.Base { return e.base }

// Keeps reports whether the algorithm is one of logs: that of leases, or one of the others.
func (e *Engine) Keeps(name string) bool {
	return events.AlgorithmInLog(name) && e.leases() == (name == events.Concurrency)
}

// leases reports whether the hits are leases.
func (e *Engine) leases() bool { return e.item == leasesItem }

// identity returns an identity for an entry. Where the sequence begins anew the process goes by another number:
// entries with an end keep their identity for hours.
func (e *Engine) identity() journal.ID {
	const spread = 0x85EBCA6B // odd: no number comes twice
	n := e.sequence.Add(1)
	return journal.NewID(e.process^uint32(n>>journal.SequenceBits)*spread, n)
}

// grace is the allowance for clock skew and late round trips, in milliseconds.
type grace int64

func (g grace) duration() time.Duration { return time.Duration(g) * time.Millisecond }

// young is for how long, in milliseconds, an entry keeps its identity. A writer looks for it, and
// voids it, within half the grace each, by a clock that is off by a quarter at most.
func (g grace) young() int64 { return 2 * int64(g) }

// undecided is for how long, in milliseconds, another counter may take to deny a hit. If it takes
// longer, or the clock of its process is as far behind, hits that rest on it are denied for good.
func (g grace) undecided() int64 { return int64(g) / 8 }

// ttl returns for how many seconds the log lives that holds windows of that length.
func (g grace) ttl(window time.Duration) int64 {
	return engine.CeilSeconds(window+time.Duration(g.young()+int64(g))*time.Millisecond) + 1
}

// Life returns for how long a log lives that was written now, if its longest window is that long and
// its hits are frequent: it lives for longer where they are rare, up to twice as long as they need it.
func Life(window, allowance time.Duration) time.Duration {
	ttl := grace(allowance.Milliseconds()).ttl(window) * second
	spare, _ := journal.Spare(ttl, 0)
	return time.Duration(ttl+spare) * time.Millisecond
}

// placeBits is how many bits of a hash say which place a log has.
const placeBits = 14

// places are of logs. Some share a place: it costs one of them a round trip now and then.
type places [1 << placeBits]noted

// noted is what an engine notes of a log.
type noted struct {
	size   atomic.Uint32 // when it was read last
	isBusy atomic.Bool   // a rewrite or repair is under way for which no hit waits
}

// unreadable is the size of a log that cannot be read: it is not to be appended to.
const unreadable = 1 << 30

func (p *places) of(id string) *noted { return &p[store.HashOf(id)%(1<<placeBits)] }
