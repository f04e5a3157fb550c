package storetest

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// Items is what a server has, of each counter. It is not safe for concurrent use.
type Items struct {
	Now func() time.Time
	Of  map[string]map[uint64]Item // by the counter's ID
	// Prolongs: it keeps an item for as long as the last add wants. Memcached keeps it for as
	// long as the first one did.
	Prolongs bool
}

// Item is the count of one item, and the Unix second from which on it is gone.
type Item struct{ Value, Expires int64 }

// NewItems returns a server that has nothing.
func NewItems(now func() time.Time) Items {
	return Items{Now: now, Of: map[string]map[uint64]Item{}}
}

// Add adds to an item, and returns the sum.
func (s *Items) Add(counter string, item uint64, by, expires int64) int64 {
	if s.Of[counter] == nil {
		s.Of[counter] = map[uint64]Item{}
	}
	it, found := s.Of[counter][item]
	if !found || it.Expires <= s.Now().Unix() {
		it = Item{Expires: expires}
	}
	it.Value += by
	if s.Prolongs {
		it.Expires = max(it.Expires, expires)
	}
	s.Of[counter][item] = it
	return it.Value
}

// Subtract subtracts from an item that is there, to zero at the least.
func (s *Items) Subtract(counter string, item uint64, by int64) {
	if it, found := s.Of[counter][item]; found {
		it.Value = max(it.Value-by, 0)
		s.Of[counter][item] = it
	}
}

// Remove removes an item.
func (s *Items) Remove(counter string, item uint64) { delete(s.Of[counter], item) }

// Read returns what an item holds.
func (s *Items) Read(counter string, item uint64) int64 {
	if it := s.Of[counter][item]; it.Expires > s.Now().Unix() {
		return it.Value
	}
	return 0
}

// Solo is a store that one test has for itself. It counts what it is asked.
type Solo struct {
	Items
	Trips int // round trips of adds and reads
	Reads int // items that these read
	// RolledBack: a rollback came. Decided is how many reads there were before it.
	RolledBack bool
	Decided    int
	Delay      time.Duration // before each command
	Before     func() error  // is called before each command; nil: it is not

	mu sync.Mutex
}

// NewSolo returns a store that has nothing.
func NewSolo(now func() time.Time) *Solo { return &Solo{Items: NewItems(now)} }

// Copied returns a store that holds the same.
func (s *Solo) Copied(now func() time.Time) *Solo {
	c := NewSolo(now)
	for counter, items := range s.Of {
		c.Of[counter] = maps.Clone(items)
	}
	return c
}

// Sum returns what the counter holds at a level.
func (s *Solo) Sum(counter string, level uint8) (sum int64) {
	for item, it := range s.Of[counter] {
		if store.ItemLevel(item) == level {
			sum += it.Value
		}
	}
	return sum
}

// Capabilities returns none.
func (s *Solo) Capabilities() store.Capabilities { return store.Capabilities{} }

// Do makes the round trips, each command of them by itself.
func (s *Solo) Do(_ context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) { op.Err = s.do(op) })
}

func (s *Solo) command(run func()) error {
	if s.Delay > 0 {
		time.Sleep(s.Delay)
	}
	if s.Before != nil {
		if err := s.Before(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run()
	return nil
}

func (s *Solo) do(op *store.Op) error {
	switch op.Kind() {
	case store.Subtract:
		return s.rollBack(op)
	case store.Delete:
		return s.remove(op)
	}
	s.mu.Lock()
	s.Trips++
	s.Reads += len(op.Reads)
	s.mu.Unlock()
	for i := range op.Writes {
		op.Receipt = store.Acknowledged(i)
		w := &op.Writes[i]
		if err := s.command(func() { w.Result = s.Add(op.Counter, w.Item, w.By, w.Expires) }); err != nil {
			return err
		}
	}
	op.Receipt = store.Acknowledged(len(op.Writes))
	if len(op.Reads) == 0 {
		return nil
	}
	return s.command(func() {
		for i := range op.Reads {
			op.Reads[i].Value = s.Read(op.Counter, op.Reads[i].Item)
		}
	})
}

func (s *Solo) rollBack(op *store.Op) error {
	s.mu.Lock()
	if !s.RolledBack {
		s.RolledBack, s.Decided = true, s.Reads
	}
	s.mu.Unlock()
	for _, w := range op.Writes[len(op.Writes)-op.Receipt.On(0):] {
		if err := s.command(func() { s.Subtract(op.Counter, w.Item, w.By) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Solo) remove(op *store.Op) error {
	for _, w := range op.Writes {
		if err := s.command(func() { s.Remove(op.Counter, w.Item) }); err != nil {
			return err
		}
	}
	return nil
}
