package repair

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// A repair makes the replicas of one counter equal. A bucket is good on a replica when it
// holds all adds that were ever acknowledged there or on another replica, but for the
// replica's hints and adds on their way. Once it is good it stays so: later adds reach the
// replica, or become a hint. So each bucket is looked at until it is good everywhere, the
// finer ones first, and a bucket that begins after the repair has is good already.
//
// There are two ways to know that a bucket is good, or to make it so. docs/design.md has
// the reasons.
//
//   - Peer repair, from the other replicas. Two looks further apart than any operation
//     takes find the same version on every replica: nothing is under way, and the largest
//     value is all there is.
//   - Rollup repair, from its children on the same replica, once these are good. An
//     operation adds to the children first; a rollback subtracts from them last. So if the
//     bucket does not change from before its children are read until after, they hold what
//     it holds, what it has missed, and what is under way.
type repair struct {
	arithmetic
	copies
	turn
	config  *Config // with all defaults
	broken  sabotage
	counter Counter
	began   int64    // Unix second
	gaps    uint64   // of the store, then
	levels  underWay // buckets that are not good everywhere yet
	raised  int      // buckets, once for each replica
}

// underWay are the entries of each level, in order.
type underWay [][]*entry

// entry is a bucket under repair.
type entry struct {
	bucket
	looks []look     // the last one at each replica
	good  replicaSet // where it is
	doubt replicaSet // where a child was raised: it may have missed the same
	short []deficit  // of the rollup, for each replica; nil: no look so far
}

// deficit is by how much less than its children a bucket was seen to hold.
type deficit struct {
	looks int
	since time.Time // of the first
	least int64
}

// replicaSet is a set of replicas, by their place in the list.
type replicaSet uint64

func (s replicaSet) has(i int) bool { return s>>i&1 != 0 }

func (s *replicaSet) add(i int) { *s |= 1 << i }

const (
	// maxLook is the most buckets of one look.
	maxLook = 250
	// deficitLooks is how many looks have to agree, in the end, on what a bucket lacks:
	// each sees what is under way too, and the least of them is the nearest.
	deficitLooks = 6
	// raiseTries bounds the looks at one busy bucket before others have their turn.
	raiseTries = 60
	// maxEntries is the most buckets of one counter that are under repair at once: a day
	// has fewer.
	maxEntries = 100_000
	// repairPasses bounds the passes over a counter before others have their turn.
	repairPasses = 24
)

var (
	errFewReplicas = errors.New("fewer than two of its replicas are up")
	errUnsettled   = errors.New("it was too busy")
)

// logLooks is what a look at a log counts as: it is as large as so many buckets.
const logLooks = 4

// repairLog repairs the log of the counter. It takes one look, and no quiet: entries have identities,
// and may be written again.
func repairLog(ctx context.Context, g *repair) error {
	if g.config.RepairLog == nil {
		return nil
	}
	if len(g.servers) < 2 {
		return errFewReplicas
	}
	if err := g.rate.WaitN(ctx, logLooks*len(g.servers)); err != nil {
		return err
	}
	if err := g.looking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.looking.Release(1)
	changed, err := g.config.RepairLog(ctx, g.counter.ID, g.counter.Retention)
	g.raised += changed
	return err
}

// run repairs all buckets of the counter. Without an error every one is good on every replica.
func (g *repair) run(ctx context.Context) error {
	if len(g.servers) < 2 {
		return errFewReplicas
	}
	return g.runWithin(ctx, g.within(g.counter.Coarsest, g.alive(g.counter.Coarsest)))
}

// runWithin repairs the counter's buckets within the row of the coarsest level; in two halves
// where they are too many to be held at once.
func (g *repair) runWithin(ctx context.Context, row buckets) error {
	g.levels = make(underWay, g.counter.Coarsest+1)
	if err := g.toList(ctx); err != nil {
		return err
	}
	whole, err := g.list(ctx, row)
	if err != nil {
		return err
	}
	if !whole {
		middle := row.first + int64(row.len())/2
		if err := g.runWithin(ctx, buckets{row.level, row.first, middle - 1}); err != nil {
			return err
		}
		return g.runWithin(ctx, buckets{row.level, middle, row.last})
	}
	if g.levels.left() == 0 {
		return nil
	}
	if err := g.toHold(ctx, g.levels.left()); err != nil {
		return err
	}
	for pass := 0; g.levels.left() > 0; pass++ {
		if pass == repairPasses {
			return errUnsettled
		}
		if err := rest(ctx, g.config.quiet()); err != nil {
			return err
		}
		var waiting map[int64]bool
		for l := g.counter.Finest; l <= g.counter.Coarsest; l++ {
			if err := g.pass(ctx, l, waiting); err != nil {
				return err
			}
			if l < g.counter.Coarsest {
				waiting = g.levels.parents(g.arithmetic, l)
			}
		}
	}
	return nil
}

// alive returns the seconds whose buckets of the level may be there. Later buckets cannot
// have been added to when the repair began.
func (g *repair) alive(l uint8) span {
	grace := ceilSeconds(g.config.Grace)
	return span{max(g.began-ceilSeconds(g.counter.Retention)-2*grace-1-2*g.Seconds(l), 0), g.began + 2*grace}
}

func (levels underWay) left() int {
	n := 0
	for _, entries := range levels {
		n += len(entries)
	}
	return n
}

// list finds the buckets within the row that hold something on some replica, from the
// coarsest level down; of the finer levels the children of those. It reports whether it has
// come to the end: no more than maxEntries, unless the row is of one bucket.
func (g *repair) list(ctx context.Context, row buckets) (whole bool, err error) {
	some := row.appendAll(nil)
	for l := row.level; ; l-- {
		if err := g.find(ctx, some); err != nil {
			return false, err
		}
		if l == g.counter.Finest {
			return true, nil
		}
		alive := g.alive(l - 1)
		some = some[:0]
		for _, parent := range g.levels[l] {
			in := g.spanOf(buckets{l, parent.number, parent.number})
			in.first, in.last = max(in.first, alive.first), min(in.last, alive.last)
			if in.first > in.last {
				continue
			}
			some = g.within(l-1, in).appendAll(some)
			if len(some) < maxLook {
				continue
			}
			if err := g.find(ctx, some); err != nil {
				return false, err
			}
			some = some[:0]
			if row.len() > 1 && g.levels.left() > maxEntries {
				return false, nil
			}
		}
	}
}

// find lists those of the buckets that hold something on some replica.
func (g *repair) find(ctx context.Context, buckets []bucket) error {
	n := len(g.servers)
	items := make([]uint64, 0, maxLook)
	for some := range slices.Chunk(buckets, maxLook) {
		items = items[:0]
		for _, b := range some {
			items = append(items, b.item())
		}
		looks, err := g.lookAtAll(ctx, items)
		if err != nil {
			return err
		}
		for i, b := range some {
			if of := looks[i*n : (i+1)*n]; !missingEverywhere(of) {
				g.levels[b.level] = append(g.levels[b.level], &entry{bucket: b, looks: slices.Clone(of)})
			}
		}
	}
	return nil
}

func missingEverywhere(looks []look) bool {
	return !slices.ContainsFunc(looks, func(k look) bool { return k.version != 0 })
}

// parents returns the buckets of the next level, by their number, that have children which are
// still under repair.
func (levels underWay) parents(a arithmetic, l uint8) map[int64]bool {
	parents := map[int64]bool{}
	for _, e := range levels[l] {
		parents[a.parent(e.bucket).number] = true
	}
	return parents
}

// pass looks at the buckets of a level once more, and makes good what it can.
func (g *repair) pass(ctx context.Context, l uint8, waiting map[int64]bool) error {
	entries := g.levels[l]
	left := entries[:0]
	everywhere := replicaSet(1)<<len(g.servers) - 1
	for some := range slices.Chunk(entries, maxLook) {
		items := make([]uint64, len(some))
		for i, e := range some {
			items[i] = e.item()
		}
		looks, err := g.lookAtAll(ctx, items)
		if err != nil {
			return err
		}
		for i, e := range some {
			of := looks[i*len(g.servers) : (i+1)*len(g.servers)]
			if missingEverywhere(of) {
				continue // it has expired, or was reset
			}
			quiet := slices.EqualFunc(of, e.looks, func(a, b look) bool { return store.SameVersion(a.version, b.version) })
			copy(e.looks, of)
			if err := g.repairBucket(ctx, e, quiet || g.broken.hasty, waiting[e.number]); err != nil {
				return err
			}
			// One whose children are not good may have to be looked at again when they are.
			if e.good != everywhere || e.doubt != 0 || waiting[e.number] {
				left = append(left, e)
			}
		}
	}
	clear(entries[len(left):])
	g.levels[l] = left
	return nil
}

// repairBucket makes a bucket good where it can.
func (g *repair) repairBucket(ctx context.Context, e *entry, quiet, waiting bool) error {
	if quiet {
		if err := g.fromPeers(ctx, e); err != nil {
			return err
		}
	}
	if e.level == g.counter.Finest || !g.childrenLive(e) {
		e.doubt = 0
		return nil
	}
	if waiting {
		return nil
	}
	for i := range g.servers {
		if e.good.has(i) && !e.doubt.has(i) {
			continue
		}
		if err := g.fromChildren(ctx, e, i); err != nil {
			return err
		}
	}
	return nil
}

// childrenLive reports whether all of the bucket's children can still be there.
func (g *repair) childrenLive(e *entry) bool {
	first := bucket{e.level - 1, g.children(e.bucket).first}
	return g.Expires(first.item(), g.counter.Retention) > g.config.Clock().Unix()+2
}

// fromPeers raises a quiet bucket to the largest of its values. A change since the look has
// changed the version, and the raise fails.
func (g *repair) fromPeers(ctx context.Context, e *entry) error {
	source := 0
	for i, k := range e.looks {
		if k.value > e.looks[source].value {
			source = i
		}
	}
	for i, k := range e.looks {
		if k.value == e.looks[source].value && k.version != 0 {
			e.good.add(i)
			continue
		}
		raised, err := g.raise(ctx, e, i, k, e.looks[source].value)
		if err != nil {
			return err
		}
		if !raised {
			continue
		}
		e.good.add(i)
		if k.version == 0 {
			if err := g.undoReset(ctx, e, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromChildren raises a bucket of one replica by what it lacks of its children there.
func (g *repair) fromChildren(ctx context.Context, e *entry, i int) error {
	if e.short == nil {
		e.short = make([]deficit, len(g.servers))
	}
	short := &e.short[i]
	for range raiseTries {
		before, lacks, err := g.lookAtChildren(ctx, e, i)
		if err != nil {
			return err
		}
		if short.looks > 0 {
			lacks = min(lacks, short.least)
		}
		if lacks > 0 && short.looks >= deficitLooks && g.config.Clock().Sub(short.since) >= g.config.quiet() {
			raised, err := g.raise(ctx, e, i, before, before.value+lacks)
			if err != nil {
				return err
			}
			if raised {
				e.good.add(i)
				e.doubt &^= 1 << i
				if before.version == 0 {
					return g.undoResetOfChildren(ctx, e, i)
				}
				return nil
			}
			continue // busy: it was changed in between
		}
		after, err := g.lookAt(ctx, i, []uint64{e.item()})
		if err != nil {
			return err
		}
		switch {
		case !store.SameVersion(after[0].version, before.version):
			continue
		case lacks <= 0:
			e.good.add(i)
			e.doubt &^= 1 << i
			return nil
		case short.looks == 0:
			short.since = g.config.Clock()
		case short.looks >= deficitLooks:
			return nil // till the next pass
		}
		short.looks++
		short.least = lacks
	}
	return nil
}

// lookAtChildren looks at a bucket of one replica and then at its children there. It
// returns the bucket, and by how much less it holds than they do.
func (g *repair) lookAtChildren(ctx context.Context, e *entry, i int) (before look, lacks int64, err error) {
	items := g.children(e.bucket).appendItems([]uint64{e.item()})
	if g.broken.childrenFirst {
		slices.Reverse(items)
	}
	looks, err := g.lookAt(ctx, i, items)
	if err != nil {
		return look{}, 0, err
	}
	if g.broken.childrenFirst {
		slices.Reverse(looks)
	}
	sum := int64(0)
	for _, k := range looks[1:] {
		sum += k.value
	}
	return looks[0], sum - looks[0].value, nil
}

// raise sets a bucket on one replica.
func (g *repair) raise(ctx context.Context, e *entry, i int, from look, value int64) (raised bool, err error) {
	expires := g.Expires(e.item(), g.counter.Retention)
	if expires <= g.config.Clock().Unix() {
		return false, nil
	}
	raised, err = g.copies.raise(ctx, i, e.item(), from, value, expires)
	if !raised || err != nil {
		return false, err
	}
	g.raised++
	// What it was raised for, its parent may have missed too.
	if e.level < g.counter.Coarsest {
		up := g.parent(e.bucket)
		at, found := slices.BinarySearchFunc(g.levels[up.level], up.number, func(e *entry, number int64) int { return int(e.number - number) })
		if found {
			g.levels[up.level][at].doubt.add(i)
		}
	}
	return true, nil
}

// undoReset deletes a bucket that was created on one replica if it has gone from all others
// meanwhile: a reset has come.
func (g *repair) undoReset(ctx context.Context, e *entry, created int) error {
	gone := true
	for i := range g.servers {
		if i == created || e.looks[i].version == 0 {
			continue
		}
		looks, err := g.lookAt(ctx, i, []uint64{e.item()})
		if err != nil {
			return err
		}
		gone = gone && looks[0].version == 0
	}
	return g.forget(ctx, e, gone)
}

// undoResetOfChildren does the same where its children have gone.
func (g *repair) undoResetOfChildren(ctx context.Context, e *entry, i int) error {
	now, lacks, err := g.lookAtChildren(ctx, e, i)
	if err != nil {
		return err
	}
	return g.forget(ctx, e, now.value+lacks == 0) // that is the sum
}

// forget deletes a bucket that has gone from its source. That a server which has just
// come back empty is no reset shows in the gaps; rather one bucket too many than too few.
func (g *repair) forget(ctx context.Context, e *entry, gone bool) error {
	if !gone || g.Gaps() != g.gaps {
		return nil
	}
	return g.remove(ctx, e.item())
}
