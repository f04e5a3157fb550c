package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A server that restarts, runs flush_all or is full forgets, and says nothing. So each has
// one item without expiry, its marker, put there by the first process that finds none. As
// long as it is the same the server has forgotten nothing (but what a full one evicts,
// which it counts itself).

// MarkerItem is a connection to a server, on which its marker is read and written.
type MarkerItem interface {
	// Read returns the text of the item, and whether there is one.
	Read() (text string, found bool, err error)
	// Add writes the item unless there is one, and reports whether it did. It returns
	// ErrRefused for a server that takes no items.
	Add(text string) (added bool, err error)
	// Replace writes the item if there is one. It is no error if there is none.
	Replace(text string) error
}

// ErrRefused is the error of a MarkerItem whose server takes no items.
var ErrRefused = errors.New("replication: the server takes no items")

// marker is the item's content: when it was written, and what tells it from others.
type marker struct {
	second int64  // Unix, by the writer's clock
	random uint64 // below 1<<randomBits
	// afterLoss: the writer knew that the fleet had held counters before. So processes that
	// start later know of the loss even where every server has lost what it held.
	afterLoss bool
}

const (
	// randomBits are few enough for the item to fit Memcached's smallest chunk: a full
	// server keeps it and the counters in one order.
	randomBits = 36
	// lossMark begins a marker that was written after a loss. Versions that do not know it
	// read it as the sign of the second.
	lossMark = "+"
)

func newMarker(second int64, afterLoss bool) marker {
	return marker{second, rand.Uint64N(1 << randomBits), afterLoss}
}

func (m marker) String() string {
	if m.afterLoss {
		return fmt.Sprintf("%s%d %09x", lossMark, m.second, m.random)
	}
	return fmt.Sprintf("%d %010x", m.second, m.random)
}

// marked returns the marker as one after a loss.
func (m marker) marked() marker {
	m.afterLoss = true
	return m
}

// parseMarker returns the zero marker for what is none.
func parseMarker(text string) marker {
	second, random, _ := strings.Cut(text, " ")
	var m marker
	var faults [2]error
	m.afterLoss = strings.HasPrefix(second, lossMark)
	m.second, faults[0] = strconv.ParseInt(second, 10, 64)
	m.random, faults[1] = strconv.ParseUint(random, 16, 64)
	if faults[0] != nil || faults[1] != nil || m.second <= 0 {
		return marker{}
	}
	return m
}

// Barrier makes the first looks at the servers of a fleet read all markers before one of
// them writes a marker. If another server has an old marker, a server without one has lost
// its own.
type Barrier struct {
	missing atomic.Int64  // participants that have not arrived
	arrived chan struct{} // closed when all have
	maxWait time.Duration
}

// NewBarrier returns a barrier for n looks, which wait for each other so long at the most.
func NewBarrier(n int, maxWait time.Duration) *Barrier {
	b := &Barrier{arrived: make(chan struct{}), maxWait: maxWait}
	b.missing.Store(int64(n))
	return b
}

// Participant returns one of the n looks.
func (b *Barrier) Participant() *Participant {
	return &Participant{b, sync.OnceFunc(func() {
		if b.missing.Add(-1) == 0 {
			close(b.arrived)
		}
	})}
}

// Participant is one look at a server. Arrive says that it has read the marker, or cannot.
type Participant struct {
	barrier *Barrier
	Arrive  func()
}

// wait arrives, and waits for the other participants.
func (p *Participant) wait() {
	p.Arrive()
	timer := time.NewTimer(p.barrier.maxWait)
	defer timer.Stop()
	select {
	case <-p.barrier.arrived:
	case <-timer.C:
	}
}
