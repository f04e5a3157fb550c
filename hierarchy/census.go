package hierarchy

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/engine"

	"github.com/coocood/freecache"

	"github.com/counterd/counterd/events"
)

// known is a counter that this process has used, as the store knows it.
type known struct {
	id               string
	finest, coarsest Level
	retention        time.Duration
}

func knownOf(id string, counter events.Counter) known {
	finest, coarsest := levels(counter)
	return known{id, finest, coarsest, retention(counter)}
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
	censusDay  = 86_400
	censusHour = 3_600
)

// note adds a counter to the list, or has it stay there. It reports whether it is new. A
// counter that is noted again within the hour costs next to nothing.
func (c *census) note(id string, counter events.Counter, now time.Time) (isNew bool) {
	hash := maphash.String(c.seed, id)
	// A counter that is kept otherwise since a reload is another one here.
	mark := hash ^ uint64(now.Unix()/censusHour)<<32 ^ uint64(counter.Retention)<<2 ^ uint64(counter.Precision)
	recent := &c.recent[hash%uint64(len(c.recent))]
	if recent.Load() == mark {
		return false
	}
	k := knownOf(id, counter)
	before, pass, found := c.lookup(id)
	if found {
		k.finest, k.coarsest = min(k.finest, before.finest), max(k.coarsest, before.coarsest)
		k.retention = max(k.retention, before.retention)
	}
	keep := engine.CeilSeconds(k.retention) + censusDay + censusHour
	for longest := c.longest.Load(); longest < keep && !c.longest.CompareAndSwap(longest, keep); {
		longest = c.longest.Load()
	}
	if c.entries.Set(appendEntryKey(nil, c.seed, id), k.encode(pass), int(keep)) != nil {
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
func (c *census) find(id string) (known, bool) {
	k, _, found := c.lookup(id)
	return k, found
}

// lookup returns the counter of that ID, and the pass in which it was noted first; where it
// is not there, the pass of now.
func (c *census) lookup(id string) (k known, pass uint32, found bool) {
	value, err := c.entries.Get(appendEntryKey(nil, c.seed, id))
	if err != nil {
		return known{}, c.passes.Load(), false
	}
	k, pass = decodeKnown(id, value)
	return k, pass, true
}

// knownBefore begins a pass: it returns the counters that were noted before it, in no order,
// however many are noted while they are gone through.
func (c *census) knownBefore() iter.Seq[known] {
	pass := c.passes.Add(1)
	return func(yield func(known) bool) {
		for all := c.entries.NewIterator(); ; {
			entry := all.Next()
			if entry == nil {
				return
			}
			k, noted := decodeKnown(string(entry.Key[entryHash:]), entry.Value)
			if noted < pass && !yield(k) {
				return
			}
		}
	}
}

// encode packs the counter, which is remembered for whole seconds, and the pass in which
// it was noted first.
func (k known) encode(pass uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{byte(k.finest), byte(k.coarsest)}, uint32(engine.CeilSeconds(k.retention)))
	return binary.LittleEndian.AppendUint32(b, pass)
}

func decodeKnown(id string, b []byte) (k known, pass uint32) {
	seconds := time.Duration(binary.LittleEndian.Uint32(b[2:]))
	return known{id, Level(b[0]), Level(b[1]), seconds * time.Second}, binary.LittleEndian.Uint32(b[6:])
}
