package limiter

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

const (
	// denialLife is how long a denial is cached at the most, from the beginning of the
	// round trip that showed it, where the clock stops or is set back.
	denialLife   = time.Second
	denialShards = 64
	// maxDenying bounds the counters whose denials are cached, in each of the
	// shards. Beyond it the expired ones are dropped, and if that does not help, all.
	maxDenying = 1 << 10
	// maxDenials bounds the denials of one counter, by hits of different costs and
	// limits. Beyond it that of the highest cost is dropped: the others have hits of its cost probe, too.
	maxDenials = 16
)

// denialCache knows which counters denied. It gives a denial again without a round trip as long
// as that is true as far as this process can know, and until this process changes the counter. An
// engine whose waits are whole seconds denies for the second of the denial: in the next one the
// windows are others. An engine with finer waits denies until one of them is over. After that a hit
// has to probe for room before it adds: a flood of denied hits, each with transient adds, would else
// keep all hits out.
type denialCache struct {
	caches  bool // else nothing is in it
	changes *engine.Changes
	seed    maphash.Seed
	shards  [denialShards]denialShard
}

type denialShard struct {
	mu      sync.RWMutex
	denying map[string][]*cachedDenial // by the counter's ID; the lists are not changed, but replaced
}

func newDenialCache(caches bool, changes *engine.Changes) *denialCache {
	return &denialCache{caches: caches, changes: changes, seed: maphash.MakeSeed()}
}

func (d *denialCache) shardOf(counter string) *denialShard {
	return &d.shards[maphash.String(d.seed, counter)%denialShards]
}

// of returns the denials of the counter.
func (d *denialCache) of(counter string) []*cachedDenial {
	shard := d.shardOf(counter)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.denying[counter]
}

// mayDeny reports whether denials of one of the hit's counters are cached.
func (d *denialCache) mayDeny(r *request) bool {
	return slices.ContainsFunc(r.applied, func(a events.Applied) bool { return len(d.of(a.ID)) > 0 })
}

// cacheKey is what a denial of a counter depends on: its limits and the cost.
type cacheKey struct {
	limits uint64 // a hash
	cost   int64
}

// cachedDenial is how each limit of a counter answered. It is not changed once it is in the
// list.
type cachedDenial struct {
	key     cacheKey
	stamp   int64 // the second that it is of; 0: it holds beyond it, until a limit has room
	until   time.Time
	touched uint32        // the changes that it knows of
	limits  []cachedLimit // in the order of the hit's uses of the counter
}

// isOf reports whether the denial holds at the moment.
func (d *cachedDenial) isOf(moment engine.Moment) bool {
	return (d.stamp == moment.Stamp || d.stamp == 0) && moment.Now.Before(d.until)
}

// cachedLimit is how a limit answered when its counter denied.
type cachedLimit struct {
	outcome engine.Outcome
	count   int64
	exact   bool
	reset   time.Duration
	mayFit  bool
	young   bool
	since   time.Time // when the reset began, if not with the second
}

// isExact reports whether the count is still that of the window. A denial that holds until its wait
// is over holds in windows that have moved since: they may hold less.
func (c *cachedLimit) isExact() bool { return c.exact && c.since.IsZero() }

// resetAt returns what is left of the reset.
func (c *cachedLimit) resetAt(now time.Time) time.Duration {
	if c.since.IsZero() || c.reset == 0 || c.reset == events.Never {
		return c.reset
	}
	return max(c.reset-now.Sub(c.since), 1)
}

// recallHit finds whether the hit may add at once. One that never fits looks only, and so does one
// whose denial is cached, or was and no look has found room since.
func (d *denialCache) recallHit(h *hit, moment engine.Moment) {
	for i := range h.limits {
		if u := &h.limits[i]; u.enforced() && h.costOn(u.counter) > u.window.ceiling {
			h.path = looking
		}
	}
	for _, c := range h.counters {
		on := limitsOn{h, c}
		if !on.isEnforced() {
			continue
		}
		found, mustProbe := d.recall(c, on.key, moment)
		if found != nil || mustProbe {
			h.path = looking
		}
		if found != nil {
			on.recall(found)
		}
	}
}

// recall returns the denial that is cached for hits with that stamp, or nil; mustProbe is
// true where one was and no look has found room since.
func (d *denialCache) recall(c *counterState, key func() cacheKey, moment engine.Moment) (remembered *cachedDenial, mustProbe bool) {
	known := d.of(c.id)
	if len(known) == 0 {
		return nil, false
	}
	of := key()
	for _, found := range known {
		if found.key == of && found.isOf(moment) && found.touched == d.changes.Of(c.id).Load() {
			return found, false
		}
		mustProbe = mustProbe || found.key.denies(of)
	}
	return nil, mustProbe
}

// denies reports whether a hit of the other key has no room while one of this key has none.
func (k cacheKey) denies(other cacheKey) bool {
	return k.limits == other.limits && k.cost <= other.cost
}

// isFull reports whether a final denial of the second found the limit full.
func (d *denialCache) isFull(h *hit, u *limitEval, moment engine.Moment) bool {
	known := d.of(u.counter.id)
	if len(known) == 0 {
		return false
	}
	on := limitsOn{h, u.counter}
	key := on.key()
	for _, found := range known {
		if found.key == key {
			return found.isOf(moment) && found.limits[on.indexOf(u)].outcome == engine.Full
		}
	}
	return false
}

// rememberHit caches how the limits of the hit's counters were weighed, where they denied it.
func (d *denialCache) rememberHit(h *hit, moment engine.Moment) {
	if !d.caches || !h.isDenied() || h.retries {
		return
	}
	for _, c := range h.counters {
		on := limitsOn{h, c}
		if c.name.countAll || c.err != nil || on.isRecalled() {
			continue
		}
		if found, denies := on.denial(moment); denies {
			d.remember(c.id, found, moment.Now)
		}
	}
}

// remember keeps the denial, as of now.
func (d *denialCache) remember(counter string, found *cachedDenial, now time.Time) {
	shard := d.shardOf(counter)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.denying == nil {
		shard.denying = map[string][]*cachedDenial{}
	}
	others := without(shard.denying[counter], func(key cacheKey) bool { return key == found.key })
	if len(others) == maxDenials {
		most := slices.MaxFunc(others, func(a, b *cachedDenial) int { return cmp.Compare(a.key.cost, b.key.cost) })
		others = without(others, func(key cacheKey) bool { return key == most.key })
	}
	if len(shard.denying) >= maxDenying && len(others) == 0 {
		shard.forgetOver(now)
	}
	shard.denying[counter] = append(others, found)
}

// forgetOver makes room, with the shard locked.
func (s *denialShard) forgetOver(now time.Time) {
	for counter, list := range s.denying {
		if !slices.ContainsFunc(list, func(d *cachedDenial) bool { return now.Before(d.until) }) {
			delete(s.denying, counter)
		}
	}
	if len(s.denying) >= maxDenying {
		clear(s.denying)
	}
}

// without returns the list without the denials of such keys.
func without(list []*cachedDenial, is func(cacheKey) bool) []*cachedDenial {
	others := make([]*cachedDenial, 0, len(list)+1)
	for _, d := range list {
		if !is(d.key) {
			others = append(others, d)
		}
	}
	return others
}

// forget drops the denials that would deny a hit of the key, which has room.
func (d *denialCache) forget(counter string, key cacheKey) {
	shard := d.shardOf(counter)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if list := shard.denying[counter]; len(list) > 0 {
		if list = without(list, func(k cacheKey) bool { return k.denies(key) }); len(list) == 0 {
			delete(shard.denying, counter)
		} else {
			shard.denying[counter] = list
		}
	}
}

// limitsOn are the limits of a hit on one of its counters: what a cached denial of the counter
// is about.
type limitsOn struct {
	hit     *hit
	counter *counterState
}

// all yields the limits in the order of the rules.
func (on limitsOn) all() iter.Seq[*limitEval] {
	return func(yield func(*limitEval) bool) {
		for i := range on.hit.limits {
			if u := &on.hit.limits[i]; u.counter == on.counter && !yield(u) {
				return
			}
		}
	}
}

// key returns the key of a denial of the hit by the counter. Other hits of the batch may have
// other limits on it, of another generation of rules, which the key leaves out.
func (on limitsOn) key() cacheKey {
	hash := uint64(14695981039346656037) ^ uint64(on.counter.name.engine) // FNV-1a, by words
	for u := range on.all() {
		hash = (hash ^ uint64(u.window.limit.Window)) * 1099511628211
		hash = (hash ^ uint64(u.window.limit.Burst*u.window.limit.N)) * 1099511628211
		hash = (hash ^ uint64(u.window.ceiling)) * 1099511628211
		hash = (hash ^ uint64(u.window.limit.Since)) * 1099511628211 // whether it is incomplete
		hash = (hash ^ xxhash.Sum64String(u.window.limit.Algorithm)) * 1099511628211
		if zone := u.window.limit.Calendar; zone != nil {
			hash = (hash ^ xxhash.Sum64String(zone.String())) * 1099511628211
		}
	}
	return cacheKey{hash, on.hit.costOn(on.counter)}
}

// counts reports whether none of the limits takes the hit away from the counter.
func (on limitsOn) counts() bool {
	for u := range on.all() {
		if !u.rule.Shadow && u.listing != events.Allowed && !on.counter.name.countAll {
			return false
		}
	}
	return true
}

// isEnforced reports whether one of the limits can deny the hit.
func (on limitsOn) isEnforced() bool {
	for u := range on.all() {
		if u.enforced() {
			return true
		}
	}
	return false
}

// isFull reports whether one of the limits that can deny the hit has no room for it.
func (on limitsOn) isFull() bool {
	for u := range on.all() {
		if u.enforced() && !u.fits() {
			return true
		}
	}
	return false
}

// isRecalled reports whether a cached denial decided the limits.
func (on limitsOn) isRecalled() bool {
	for u := range on.all() {
		if u.cached != nil {
			return true
		}
	}
	return false
}

// recall has the limits weighed as the cached denial found them.
func (on limitsOn) recall(found *cachedDenial) {
	next := 0
	for u := range on.all() {
		u.cached = &found.limits[next]
		next++
	}
}

// indexOf returns which of the limits it is.
func (on limitsOn) indexOf(of *limitEval) (index int) {
	for u := range on.all() {
		if u == of {
			break
		}
		index++
	}
	return index
}

// denial returns what to cache of the limits, and whether one denies.
func (on limitsOn) denial(moment engine.Moment) (found *cachedDenial, denies bool) {
	found = &cachedDenial{
		key: on.key(), stamp: moment.Stamp, until: on.counter.began.Add(denialLife), touched: on.counter.touched,
		limits: make([]cachedLimit, 0, len(on.hit.limits)),
	}
	var since time.Time
	if on.counter.engine.Tick() < time.Second {
		found.stamp, since = 0, moment.Now.Add(-time.Duration(moment.Now.UnixNano())%time.Millisecond) // from which the waits of logs count
	}
	final := false
	for u := range on.all() {
		final = final || u.denies() && u.outcome == engine.Full
		s := cachedLimit{outcome: u.outcome, count: u.count, exact: u.exact, reset: u.own, mayFit: u.mayFit, young: u.isYoung(), since: since}
		if !u.fits() && u.allows { // let through, so nothing searched its reset
			s.reset = u.leaves()
		}
		if frees := since.Add(s.reset); !since.IsZero() && s.reset > 0 && frees.Before(found.until) {
			found.until = frees
		}
		found.limits = append(found.limits, s)
		denies = denies || u.denies()
	}
	if !final || on.counter.engine.Tick() == 0 { // another counter may have denied the hit for good
		found.until = moment.Now // it makes the hits that follow look, no more
	}
	return found, denies
}
