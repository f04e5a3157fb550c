package hierarchy

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// denialLife is how long a denial is remembered, from the beginning of the
	// trip that showed it.
	denialLife = time.Second
	// maxDenials bounds the memory of denials, in each of its shards. Beyond it those
	// whose time is over are forgotten, and if that does not help, all.
	maxDenials   = 1 << 10
	denialShards = 64
)

// denials remembers which counters denied. While a denial is remembered it is given
// again without asking; after that, one has to look for room before adding: a
// flood of denied hits, each in place for a moment, would else keep everybody
// out.
type denials struct {
	seed   maphash.Seed
	shards [denialShards]denialShard
}

type denialShard struct {
	mu   sync.RWMutex
	list map[denialKey]*denial
}

func newDenials() *denials { return &denials{seed: maphash.MakeSeed()} }

func (d *denials) shardOf(key denialKey) *denialShard {
	return &d.shards[maphash.String(d.seed, key.counter)%denialShards]
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
	hash := uint64(14695981039346656037) // FNV-1a, by words
	for _, check := range c.checks {
		hash = (hash ^ uint64(check.limit.Window)) * 1099511628211
		hash = (hash ^ uint64(check.ceiling)) * 1099511628211
	}
	return denialKey{c.id, hash, cost}
}

// recall returns the denial that is remembered now, or nil; wary is true where one
// was and no room has been seen since.
func (d *denials) recall(key denialKey, now time.Time) (remembered *denial, wary bool) {
	shard := d.shardOf(key)
	shard.mu.RLock()
	found := shard.list[key]
	shard.mu.RUnlock()
	if found == nil || now.Before(found.until) {
		return found, false
	}
	return nil, true
}

func (d *denials) remember(key denialKey, found *denial, now time.Time) {
	shard := d.shardOf(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.list == nil {
		shard.list = map[denialKey]*denial{}
	}
	if len(shard.list) >= maxDenials {
		for key, old := range shard.list {
			if !now.Before(old.until) {
				delete(shard.list, key)
			}
		}
		if len(shard.list) >= maxDenials {
			clear(shard.list)
		}
	}
	shard.list[key] = found
}

func (d *denials) forget(key denialKey) {
	shard := d.shardOf(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.list, key)
}

func (d *denials) forgetAll() {
	for i := range d.shards {
		d.shards[i].mu.Lock()
		clear(d.shards[i].list)
		d.shards[i].mu.Unlock()
	}
}
