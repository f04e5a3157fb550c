package repair

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"sync/atomic"
	"time"

	"github.com/coocood/freecache"
)

// Counter is a counter that this process has used, as its engine keeps it.
type Counter struct {
	ID               string
	Finest, Coarsest uint8         // levels of its buckets; the finer one above the coarser one: it has none
	Retention        time.Duration // for how long it is remembered
}

func (k Counter) hasBuckets() bool { return k.Finest <= k.Coarsest }

// logOf returns a counter of which no more than its log is known.
func (c *Config) logOf(id string) Counter {
	return Counter{ID: id, Finest: 1, Retention: c.Retention()}
}

// census is the list of counters that this process knows. It is bounded in bytes, and
// forgets the ones unused for longer than their buckets live and a day.
type census struct {
	entries *freecache.Cache
	now     func() time.Time
	seed    maphash.Seed
	recent  [1 << 14]atomic.Uint64 // what was noted within the hour, by its hash
	longest atomic.Int64           // the longest that an entry is kept, in seconds
	evicted atomic.Int64           // entries that had to go, when that was looked at last
	until   atomic.Int64           // the Unix second until which counters may be missing for that
	passes  atomic.Uint32          // how often knownBefore was asked
}

// newCensus returns a list of at most so many bytes, which it takes at once.
func newCensus(maxBytes int, now func() time.Time) *census {
	return &census{entries: freecache.NewCacheCustomTimer(maxBytes, secondsOf(now)), now: now, seed: maphash.MakeSeed()}
}

// secondsOf is a clock as freecache wants it.
type secondsOf func() time.Time

func (s secondsOf) Now() uint32 { return uint32(s().Unix()) }

const (
	day  = 86_400
	hour = 3_600
	// keyHash is how many bytes of an entry's key are a hash.
	keyHash = 8
)

// key returns the key of a counter's entry: a hash with this process's own seed, then the
// counter's ID. freecache finds its places by a hash that is the same in every process: a caller
// could choose features whose places are one, and the table grows with its fullest place.
func (c *census) key(id string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, maphash.String(c.seed, id)), id...)
}

// note adds a counter to the list, or has it stay there. It reports whether it is new. A
// counter that is noted again within the hour costs next to nothing.
func (c *census) note(k Counter, now time.Time) (isNew bool) {
	hash := maphash.String(c.seed, k.ID)
	// A counter that is kept otherwise since a reload is another one here.
	mark := hash ^ uint64(now.Unix()/hour)<<32 ^ uint64(k.Retention)<<8 ^ uint64(k.Coarsest)<<4 ^ uint64(k.Finest)
	recent := &c.recent[hash%uint64(len(c.recent))]
	if recent.Load() == mark {
		return false
	}
	before, pass, found := c.lookup(k.ID)
	if found {
		k.Finest, k.Coarsest = min(k.Finest, before.Finest), max(k.Coarsest, before.Coarsest)
		k.Retention = max(k.Retention, before.Retention)
	}
	keep := ceilSeconds(k.Retention) + day + hour
	for longest := c.longest.Load(); longest < keep && !c.longest.CompareAndSwap(longest, keep); {
		longest = c.longest.Load()
	}
	if c.entries.Set(c.key(k.ID), k.encode(pass), int(keep)) != nil {
		c.overflow(now) // its name is too long
		return false
	}
	if evicted := c.entries.EvacuateCount(); c.evicted.Swap(evicted) != evicted {
		c.overflow(now)
	}
	recent.Store(mark)
	return !found
}

func (c *census) overflow(now time.Time) { c.until.Store(now.Unix() + c.longest.Load()) }

// overflowed reports whether counters may be missing that were not forgotten for being
// out of use.
func (c *census) overflowed() bool { return c.now().Unix() < c.until.Load() }

func (c *census) len() int { return int(c.entries.EntryCount()) }

// find returns the counter of that ID.
func (c *census) find(id string) (Counter, bool) {
	k, _, found := c.lookup(id)
	return k, found
}

// lookup returns the counter of that ID, and the pass in which it was noted first; where it
// is not there, the pass of now.
func (c *census) lookup(id string) (k Counter, pass uint32, found bool) {
	value, err := c.entries.Get(c.key(id))
	if err != nil {
		return Counter{}, c.passes.Load(), false
	}
	k, pass = decodeCounter(id, value)
	return k, pass, true
}

// knownBefore begins a pass: it returns the counters that were noted before it, in no order,
// however many are noted while they are gone through.
func (c *census) knownBefore() iter.Seq[Counter] {
	pass := c.passes.Add(1)
	return func(yield func(Counter) bool) {
		for all := c.entries.NewIterator(); ; {
			entry := all.Next()
			if entry == nil {
				return
			}
			k, noted := decodeCounter(string(entry.Key[keyHash:]), entry.Value)
			if noted < pass && !yield(k) {
				return
			}
		}
	}
}

// encode packs the counter, which is remembered for whole seconds, and the pass in which
// it was noted first.
func (k Counter) encode(pass uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{k.Finest, k.Coarsest}, uint32(ceilSeconds(k.Retention)))
	return binary.LittleEndian.AppendUint32(b, pass)
}

func decodeCounter(id string, b []byte) (k Counter, pass uint32) {
	seconds := time.Duration(binary.LittleEndian.Uint32(b[2:]))
	return Counter{id, b[0], b[1], seconds * time.Second}, binary.LittleEndian.Uint32(b[6:])
}
