package memcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/counterd/counterd/memcache/copies"
)

// A server as package copies knows it: one of those that have a counter.

// Name returns the server's name.
func (s *server) Name() string { return s.name }

// Up reports whether it is worth asking.
func (s *server) Up() bool { return s.up() }

// Whole reports whether the server has forgotten nothing, as far as is known.
func (s *server) Whole() bool { return s.since() == 0 }

// Start begins a trip, as Fleet.Start does.
func (s *server) Start(ctx context.Context, deadline time.Time, counter copies.Counter, by int64, adds []uint64, expires []int64, reads []uint64, index int, ended chan<- int) copies.Exchange {
	e, err := s.fleet.beginOn(ctx, s, counterHash(counter.Hash), errand{Exchange, len(adds), len(reads)})
	e.deadline = instant(deadline)
	if err == nil && e.meta && (!e.auto || s.known.Load() == int32(Meta)) {
		m := &metaCopy{exchange: e, call: newCall(), by: by, adds: slices.Clone(adds)}
		m.call.trip(e.hash, s.pipes.tag(max(len(adds), 1)), by, adds, expires, reads, e.clock)
		m.call.done, m.call.index, m.call.afterwards = ended, index, m
		m.send(m.call)
		return m
	}
	c := &slowCopy{exchange: e, ended: ended, index: index, err: err}
	if err != nil {
		c.settle(unsent)
		return c
	}
	adds, expires, reads = slices.Clone(adds), slices.Clone(expires), slices.Clone(reads)
	c.values = make([]int64, len(adds)+len(reads))
	go func() {
		c.landed, c.err = e.trip(ctx, by, adds, expires, reads, c.values)
		e.note(c.err)
		c.at = instant(time.Now())
		if !c.settle(over) && c.err == nil && len(adds) > 0 {
			s.credit(e.hash, by, adds)
		}
	}()
	return c
}

// metaCopy is a trip on the meta path.
type metaCopy struct {
	exchange
	call *call
	by   int64
	adds []uint64
}

func (m *metaCopy) answeredLate(c *call) {
	// Of one that was answered in part only the rest is owed, and a credit would be taken
	// for that of another trip.
	if c.fault == nil && len(m.adds) > 0 && c.partly.Load() == 0 {
		m.server.credit(m.hash, m.by, m.adds)
	}
}

// credit notes that adds were acknowledged that nobody awaited any more.
func (s *server) credit(hash counterHash, by int64, adds []uint64) {
	s.fleet.set.Credit(s, copies.Hash(hash), by, adds)
}

func (m *metaCopy) GiveUp() { m.call.settle(late, errNoReply) }

func (m *metaCopy) End(values []int64) (landed int, err error) {
	landed, err = m.metaOutcome(m.call, m.by, m.adds, values)
	return landed, m.ended(err)
}

// slowCopy is a trip on the classic path, or to a server that has to be asked first how
// it speaks, in a goroutine of its own.
type slowCopy struct {
	exchange exchange
	ended    chan<- int
	index    int
	state    atomic.Int32

	// Of the goroutine, until it has settled.
	values []int64
	landed int
	err    error
	at     int64 // the instant of its end: End may be called much later
}

// The states of a slowCopy: it is under way, then one of these.
const (
	over = 1 + iota
	givenUp
	unsent // it could not begin, and that has been told
)

func (c *slowCopy) settle(state int32) (first bool) {
	first = c.state.CompareAndSwap(0, state)
	if first {
		c.ended <- c.index
	}
	return first
}

func (c *slowCopy) GiveUp() { c.settle(givenUp) }

func (c *slowCopy) End(values []int64) (landed int, err error) {
	switch c.state.Load() {
	case givenUp:
		err := c.exchange.server.wrap(errNoReply)
		c.exchange.tell(err)
		return 0, err
	case over:
		copy(values, c.values)
		c.exchange.over = c.at
		c.exchange.tell(c.err)
	}
	return c.landed, c.err
}

// RollBack subtracts from buckets.
func (s *server) RollBack(ctx context.Context, counter copies.Counter, by int64, buckets []uint64) error {
	return s.fleet.takeBack(ctx, s, counterHash(counter.Hash), by, buckets)
}

// Delete removes buckets.
func (s *server) Delete(ctx context.Context, counter copies.Counter, buckets []uint64) error {
	return s.fleet.delete(ctx, s, counterHash(counter.Hash), buckets)
}

// How one copy is compared with the others, and mended: see the Repairer of package hierarchy.

// errNoVersions is why copies on a server cannot be mended.
var errNoVersions = errors.New("the server keeps no versions of items: it runs with -C")

// Look reads buckets of one counter as one server has them, one after the other in
// their order, and the version of each: a number that changes with each change of the
// bucket, 0 where it is not there. The versions are Memcached's, for compare-and-swap. An
// item that holds no count is 0, with its version, where another server of the counter is
// whole: then the count of that one replaces it. Else nothing says what the count was, and the
// item is an error. A look is rare, so it takes the classic path whatever the server knows.
func (f *Fleet) Look(ctx context.Context, counter, server string, buckets []uint64, values []int64, versions []uint64) error {
	e, err := f.beginOnNamed(ctx, server, counter, errand{kind: Look, reads: len(buckets)})
	if err != nil {
		return err
	}
	err = e.classic(ctx, func(l *lane) error { return e.get(l, buckets, values, versions) })
	if errors.Is(err, errNoCount) && f.isWholeBeside(counter, server) {
		err = nil
	}
	return e.ended(err)
}

// isWholeBeside reports whether the counter has a copy on another server that is up and has
// forgotten nothing.
func (f *Fleet) isWholeBeside(counter, server string) bool {
	return slices.ContainsFunc(f.set.Of(copies.Hash(f.keyer.hash(counter))), func(s copies.Server) bool {
		return s.Name() != server && s.Up() && s.Whole()
	})
}

// Raise sets a bucket on one server to a value if it still has the version that Look
// found; where that is 0, if it is still not there. It reports whether it did. It is never
// repeated.
func (f *Fleet) Raise(ctx context.Context, counter, server string, bucket, version uint64, value, expires int64) (raised bool, err error) {
	e, err := f.beginOnNamed(ctx, server, counter, errand{kind: Raise, adds: 1})
	if err != nil {
		return false, err
	}
	item := &gomemcache.Item{
		Key:        e.hash.keys([]uint64{bucket})[0],
		Value:      strconv.AppendInt(nil, value, 10),
		Expiration: expiration(expires, e.clock),
		CasID:      version,
	}
	err = e.classic(ctx, func(l *lane) error {
		if version == 0 {
			return l.client.Add(item)
		}
		return l.client.CompareAndSwap(item)
	})
	e.note(err)
	raised = err == nil
	switch {
	case errors.Is(err, gomemcache.ErrNotStored), errors.Is(err, gomemcache.ErrCASConflict), errors.Is(err, gomemcache.ErrCacheMiss):
		err = nil // it has changed, or is there
	}
	e.tell(err)
	return raised, err
}

// beginOnNamed begins an exchange with the server of that name.
func (f *Fleet) beginOnNamed(ctx context.Context, name, counter string, do errand) (exchange, error) {
	for _, s := range f.set.Servers() {
		if s.Name() == name {
			return f.beginOn(ctx, s.(*server), f.keyer.hash(counter), do)
		}
	}
	return exchange{}, fmt.Errorf("memcache: server %s is not in the list any more", name)
}
