package hierarchy

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
	"time"
)

const (
	// denialLife is how long a denial is remembered, from the beginning of the
	// trip that showed it.
	denialLife = time.Second
	// maxDenials bounds the memory of denials. Beyond it those whose time is over
	// are forgotten, and if that does not help, all.
	maxDenials = 1 << 16
)

// denials remembers which counters denied. While a denial is remembered it is given
// again without asking; after that, one has to look for room before adding: a
// flood of denied hits, each in place for a moment, would else keep everybody
// out.
type denials struct {
	mu   sync.Mutex
	list map[denialKey]*denial
}

// denialKey is what a denial depends on: the counter, its limits, the cost.
type denialKey struct {
	counter string
	limits  uint64 // a hash
	cost    int64
}

// denial is what is remembered of a counter: how each of its limits stood. It is
// not changed once it is in the list.
type denial struct {
	until  time.Time
	limits []stood // in the order of the claim's checks
}

// stood is how a limit stood when its counter denied.
type stood struct {
	fits  bool
	count int64
	exact bool
	from  int64 // first Unix second in which the hit fits, where it did not; 0: never
}

// wait returns how long after the second the hit fits.
func (s stood) wait(second int64) Wait {
	if s.from == 0 {
		return Never
	}
	return Wait(max(s.from-second, 1))
}

// keyOf returns the key of a denial of such a cost by the claim.
func keyOf(c *claim, cost int64) denialKey {
	hash := fnv.New64a()
	for _, check := range c.checks {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:8], uint64(check.limit.Window))
		binary.LittleEndian.PutUint64(b[8:], uint64(check.ceiling))
		hash.Write(b[:])
	}
	return denialKey{c.id, hash.Sum64(), cost}
}

// recall returns the denial that is remembered now, or nil; wary is true where one
// was and no room has been seen since.
func (d *denials) recall(key denialKey, now time.Time) (remembered *denial, wary bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.list[key]
	if found == nil || now.Before(found.until) {
		return found, false
	}
	return nil, true
}

func (d *denials) remember(key denialKey, found *denial, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list == nil {
		d.list = map[denialKey]*denial{}
	}
	if len(d.list) >= maxDenials {
		for key, old := range d.list {
			if !now.Before(old.until) {
				delete(d.list, key)
			}
		}
		if len(d.list) >= maxDenials {
			clear(d.list)
		}
	}
	d.list[key] = found
}

func (d *denials) forget(key denialKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.list, key)
}
