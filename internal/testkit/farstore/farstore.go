// Package farstore is a store for bubbles of [testing/synctest]: messages to its servers take virtual time.
package farstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

// pause is the longest time between two commands of one round trip.
const pause = 10 * time.Microsecond

// Store keeps each counter on all of its servers, and is safe for concurrent use. On each server the commands of
// different round trips interleave.
type Store struct {
	servers []*memcache.Embedded
	oneWay  time.Duration
	trips   atomic.Int64
	later   sync.WaitGroup // work in the background

	mu  sync.Mutex
	rng *rand.Rand
}

// New returns a store without items. A message takes the time oneWay, more or less a fifth of it.
func New(seed uint64, servers int, oneWay time.Duration) *Store {
	s := &Store{oneWay: oneWay, rng: rand.New(rand.NewPCG(seed, 11))}
	for range servers {
		s.servers = append(s.servers, memcache.NewEmbedded(memcache.EmbeddedConfig{}))
	}
	return s
}

// Trips returns how often a round trip has begun.
func (s *Store) Trips() int64 { return s.trips.Load() }

// Wait waits for the work in the background.
func (s *Store) Wait() { s.later.Wait() }

// Server returns a store on one of the servers alone. Its round trips take no time and are not counted.
func (s *Store) Server(i int) store.Store { return s.servers[i] }

// Capabilities returns the capabilities of the store. It does not bound the work in the background.
func (s *Store) Capabilities() store.Capabilities {
	background := func(do func(context.Context)) { s.later.Go(func() { do(context.Background()) }) }
	can := store.Capabilities{Writes: s.servers[0].Capabilities().Writes, Background: background}
	if len(s.servers) > 1 {
		can.Replicas = len(s.servers)
	}
	return can
}

// Do makes the round trips. If a round trip ends after the deadline it fails, although the servers have executed it.
func (s *Store) Do(ctx context.Context, ops ...*store.Op) {
	seeds := make(map[*store.Op]uint64, len(ops)) // so that the times of goroutines do not depend on their order
	s.mu.Lock()
	for _, op := range ops {
		seeds[op] = s.rng.Uint64()
	}
	s.mu.Unlock()
	store.SideBySide(ops, func(op *store.Op) {
		op.Err = ctx.Err()
		if op.Err != nil {
			return
		}
		s.do(op, seeds[op])
		if deadline, ok := ctx.Deadline(); ok && time.Now().After(deadline) {
			op.Err, op.Receipt = context.DeadlineExceeded, store.Receipt{}
		}
	})
}

func (s *Store) do(op *store.Op, seed uint64) {
	s.trips.Add(1)
	parts := make([]store.Op, len(s.servers))
	asked := make([]*store.Op, 0, len(parts))
	for i := range parts {
		part := &parts[i]
		*part = store.Op{
			Counter: op.Counter, Server: strconv.Itoa(i), Data: op.Data,
			Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads),
		}
		for r := range part.Reads {
			part.Reads[r].Data = nil
		}
		if op.Kind() == store.Subtract {
			part.Writes = part.Writes[len(part.Writes)-op.Receipt.On(i):]
		}
		if op.Server == "" || op.Server == part.Server {
			asked = append(asked, part)
		}
	}
	store.SideBySide(asked, func(part *store.Op) { s.exchange(part, seed) })
	if op.Server != "" {
		copy(op.Writes, asked[0].Writes)
		copy(op.Reads, asked[0].Reads)
		op.Receipt, op.Err = asked[0].Receipt, asked[0].Err
		return
	}
	merge(op, parts)
}

// exchange makes a round trip to the server that op names: the writes in their order, and then the reads.
func (s *Store) exchange(op *store.Op, seed uint64) {
	server, _ := strconv.Atoi(op.Server)
	rng := rand.New(rand.NewPCG(seed, uint64(server)))
	way := func() { time.Sleep(time.Duration((0.8 + 0.4*rng.Float64()) * float64(s.oneWay))) }
	way()
	defer way()
	for i := range op.Writes {
		command := store.Op{Counter: op.Counter, Data: op.Data, Writes: op.Writes[i : i+1]}
		command.Receipt = store.Acknowledged(1) // a Subtract follows an acknowledged Add
		s.servers[server].Do(context.Background(), &command)
		op.Err = command.Err
		if op.Err != nil {
			return
		}
		op.Receipt = store.Acknowledged(i + 1)
		time.Sleep(time.Duration(rng.Int64N(int64(pause))))
	}
	if len(op.Reads) > 0 {
		command := store.Op{Counter: op.Counter, Data: op.Data, Reads: op.Reads}
		s.servers[server].Do(context.Background(), &command)
		op.Err = command.Err
	}
}

// merge sets the outcome of op from the parts, which are its outcomes on the servers. The largest count applies.
func merge(op *store.Op, parts []store.Op) {
	if kind := op.Kind(); kind == store.Subtract || kind == store.Hint {
		op.Err = parts[0].Err
		return
	}
	op.Receipt, op.Replicas = store.Receipt{}, nil
	if op.Data && len(parts) > 1 {
		op.Replicas = parts
	}
	for i := range parts {
		op.Err = parts[i].Err
		if op.Err != nil {
			return
		}
		op.Receipt.Acknowledged[i] = parts[i].Receipt.Acknowledged[0]
		if len(op.Writes) == 0 && len(parts) > 1 {
			op.Receipt.Acknowledged[i] = 1
		}
		for w := range op.Writes {
			op.Writes[w].Result = max(parts[i].Writes[w].Result, op.Writes[w].Result*min(int64(i), 1))
		}
		for r := range op.Reads {
			if read := parts[i].Reads[r]; i == 0 || read.Value > op.Reads[r].Value {
				op.Reads[r] = read
			}
		}
	}
}
