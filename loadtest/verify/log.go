package verify

import (
	"sync"
	"time"
)

type kind uint8

const (
	hit kind = iota
	batch
	check
	increment
	late // an increment of the past
	count
	kinds
)

func (k kind) String() string {
	return [kinds]string{"hit", "batch", "check", "increment", "late", "count"}[k]
}

type outcome uint8

const (
	admitted outcome = iota // or acknowledged
	denied
	unknown // it may have been counted
	refused // nothing was done
)

// entry is one call, or one hit of a batch, as its client saw it. Times are nanoseconds
// since the run began.
type entry struct {
	sent, answered int64
	stamp          int64  // Unix seconds; 0: not told
	denies         uint64 // the limits that deny, by their bits
	incomplete     uint64 // limits with an incomplete state
	onError        uint64 // those decided by on_error
	inexact        uint64 // those with an upper bound for a count
	who            int32
	cost           int32
	retryAfter     int32 // seconds; never: -1
	client         uint16
	target         uint16
	kind           kind
	outcome        outcome
}

const never = -1

// look is an answer to a count, or a bucket of a history.
type look struct {
	sent, answered int64
	counter        int32
	client, target uint16
	bucket         bool
	from, to       int64 // Unix seconds
	count          int64
}

// log holds all answers. It takes entries up to a bound.
type log struct {
	width int // limits of a decision
	bound int

	mu      sync.Mutex
	entries []entry
	counts  []int64 // of each entry what its limits said, one behind the other
	looks   []look
	resets  []reset
	full    bool
}

func newLog(c *contract, bound int) *log { return &log{width: len(c.limits), bound: bound} }

// note adds an entry, with what its limits said; nil: it has none.
func (l *log) note(e entry, counts []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	l.counts = append(l.counts, counts...)
	l.counts = append(l.counts, make([]int64, l.width-len(counts))...)
	l.full = l.full || len(l.entries)+len(l.looks) >= l.bound
}

func (l *log) look(k look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, k)
	l.full = l.full || len(l.entries)+len(l.looks) >= l.bound
}

func (l *log) reset(r reset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets = append(l.resets, r)
}

// isFull reports whether it takes no more calls. Those under way are still noted.
func (l *log) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// countsOf returns what the limits of the i-th entry said.
func (l *log) countsOf(i int32) []int64 {
	return l.counts[int(i)*l.width : (int(i)+1)*l.width]
}

// EntryBytes is what an entry takes, without its counts.
const EntryBytes = 80

// bytes returns what the log takes.
func (l *log) bytes() int64 {
	return int64(cap(l.entries))*EntryBytes + int64(cap(l.counts))*8 + int64(cap(l.looks))*64
}

func nanoseconds(d time.Duration) int64 { return int64(d) }

// together returns how many of the first entries are of one call: of a batch all its hits.
func (l *log) together(entries []int32) int {
	first, n := l.entries[entries[0]], 1
	for first.kind == batch && n < len(entries) && l.entries[entries[n]].kind == batch && l.entries[entries[n]].sent == first.sent {
		n++
	}
	return n
}
