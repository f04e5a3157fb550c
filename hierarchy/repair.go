package hierarchy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/engine"

	"github.com/counterd/counterd/store"
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
	m       *Repairer
	counter known
	servers []string
	began   int64            // Unix second
	gaps    uint64           // of the store, then
	levels  [Levels][]*entry // buckets that are not good everywhere yet
	raised  int              // buckets, once for each replica
	lists   bool             // it is its turn to list buckets
	held    int64            // entries for which there is room
}

// entry is a bucket under repair.
type entry struct {
	bucket Bucket
	looks  []look     // the last one at each replica
	good   replicaSet // where it is
	doubt  replicaSet // where a child was raised: it may have missed the same
	short  []deficit  // of the rollup, for each replica; nil: no look so far
}

// look is what a bucket was found to be on one replica.
type look struct {
	value   int64
	version uint64
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
	// lookBuckets is the most buckets of one look.
	lookBuckets = 250
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
	errFewReplicas = errors.New("hierarchy: fewer than two replicas of a counter are up")
	errUnsettled   = errors.New("hierarchy: a counter was too busy to be repaired")
)

func (m *Repairer) newRepair(k known) *repair {
	return &repair{m: m, counter: k, servers: m.store.ServersUp(k.id), began: m.now().Unix(), gaps: m.store.Gaps()}
}

// takeTurn waits until the repair may list buckets. A repair that waits for that holds
// nothing: else all could wait for each other.
func (g *repair) takeTurn(ctx context.Context) error {
	if g.lists {
		return nil
	}
	g.release()
	err := g.m.listing.Acquire(ctx, 1)
	g.lists = err == nil
	return err
}

// reserve waits until there is room for the listed entries, and lets others list then.
// Before that there is none, and lists of busy counters are long.
func (g *repair) reserve(ctx context.Context) error {
	want := min(max(int64(g.left()), leastEntries), repairerEntries)
	if err := g.m.room.Acquire(ctx, want); err != nil {
		return err
	}
	g.release()
	g.held = want
	return nil
}

// release gives back what the repair holds.
func (g *repair) release() {
	if g.lists {
		g.m.listing.Release(1)
	}
	g.m.room.Release(g.held)
	g.lists, g.held = false, 0
}

// run repairs the counter's buckets within the row of the coarsest level; in two halves
// where they are too many to be held at once. Without an error every one is good on every
// replica.
func (g *repair) run(ctx context.Context, row BucketRange) error {
	g.levels = [Levels][]*entry{}
	if err := g.takeTurn(ctx); err != nil {
		return err
	}
	whole, err := g.list(ctx, row)
	if err != nil {
		return err
	}
	if !whole {
		middle := row.First + int64(row.Len())/2
		if err := g.run(ctx, BucketRange{row.Level, row.First, middle - 1}); err != nil {
			return err
		}
		return g.run(ctx, BucketRange{row.Level, middle, row.Last})
	}
	if g.left() == 0 {
		return nil
	}
	if err := g.reserve(ctx); err != nil {
		return err
	}
	for pass := 0; g.left() > 0; pass++ {
		if pass == repairPasses {
			return errUnsettled
		}
		if err := g.m.rest(ctx, g.m.quiet); err != nil {
			return err
		}
		var waiting map[int64]bool
		for l := g.counter.finest; l <= g.counter.coarsest; l++ {
			if err := g.pass(ctx, l, waiting); err != nil {
				return err
			}
			waiting = g.waiting(l)
		}
	}
	return nil
}

// alive returns the seconds whose buckets of the level may be there. Later buckets cannot
// have been added to when the repair began.
func (g *repair) alive(l Level) Window {
	grace := engine.CeilSeconds(g.m.grace)
	return Window{g.began - engine.CeilSeconds(g.counter.retention) - 2*grace - 1 - 2*l.Seconds(), g.began + 2*grace}
}

func (g *repair) left() int {
	n := 0
	for _, entries := range g.levels {
		n += len(entries)
	}
	return n
}

// list finds the buckets within the row that hold something on some replica, from the
// coarsest level down; of the finer levels the children of those. It reports whether it has
// come to the end: no more than maxEntries, unless the row is of one bucket.
func (g *repair) list(ctx context.Context, row BucketRange) (whole bool, err error) {
	some := bucketsWithin(row.Level, Window{Bucket{row.Level, row.First}.First(), Bucket{row.Level, row.Last}.Last()})
	for l := row.Level; ; l-- {
		if err := g.find(ctx, l, some); err != nil {
			return false, err
		}
		if l == g.counter.finest {
			return true, nil
		}
		alive := g.alive(l - 1)
		some = some[:0]
		for _, parent := range g.levels[l] {
			first, last := max(parent.bucket.First(), alive.First), min(parent.bucket.Last(), alive.Last)
			if first > last {
				continue
			}
			some = append(some, bucketsWithin(l-1, Window{first, last})...)
			if len(some) < lookBuckets {
				continue
			}
			if err := g.find(ctx, l-1, some); err != nil {
				return false, err
			}
			some = some[:0]
			if row.Len() > 1 && g.left() > maxEntries {
				return false, nil
			}
		}
	}
}

// find lists the buckets that hold something on some replica.
func (g *repair) find(ctx context.Context, l Level, buckets []Bucket) error {
	n := len(g.servers)
	for some := range slices.Chunk(buckets, lookBuckets) {
		looks, err := g.lookAtAll(ctx, some)
		if err != nil {
			return err
		}
		for i, bucket := range some {
			if of := looks[i*n : (i+1)*n]; !missingEverywhere(of) {
				g.levels[l] = append(g.levels[l], &entry{bucket: bucket, looks: slices.Clone(of)})
			}
		}
	}
	return nil
}

func missingEverywhere(looks []look) bool {
	return !slices.ContainsFunc(looks, func(k look) bool { return k.version != 0 })
}

// waiting returns which buckets of the next level, by their number, have children that are
// still under repair.
func (g *repair) waiting(l Level) map[int64]bool {
	if l == g.counter.coarsest {
		return nil
	}
	waiting := map[int64]bool{}
	for _, e := range g.levels[l] {
		waiting[BucketAt(l+1, e.bucket.First()).Number] = true
	}
	return waiting
}

// pass looks at the buckets of a level once more, and makes good what it can.
func (g *repair) pass(ctx context.Context, l Level, waiting map[int64]bool) error {
	entries := g.levels[l]
	left := entries[:0]
	for some := range slices.Chunk(entries, lookBuckets) {
		buckets := make([]Bucket, len(some))
		for i, e := range some {
			buckets[i] = e.bucket
		}
		looks, err := g.lookAtAll(ctx, buckets)
		if err != nil {
			return err
		}
		for i, e := range some {
			of := looks[i*len(g.servers) : (i+1)*len(g.servers)]
			if missingEverywhere(of) {
				continue // it has expired, or was reset
			}
			quiet := slices.EqualFunc(of, e.looks, func(a, b look) bool { return a.version == b.version })
			copy(e.looks, of)
			if err := g.repairBucket(ctx, e, quiet || g.m.broken.hasty, waiting[e.bucket.Number]); err != nil {
				return err
			}
			// One whose children are not good may have to be looked at again when they are.
			if e.good != g.everywhere() || e.doubt != 0 || waiting[e.bucket.Number] {
				left = append(left, e)
			}
		}
	}
	clear(entries[len(left):])
	g.levels[l] = left
	return nil
}

func (g *repair) everywhere() replicaSet { return 1<<len(g.servers) - 1 }

// repairBucket makes a bucket good where it can.
func (g *repair) repairBucket(ctx context.Context, e *entry, quiet, waiting bool) error {
	if quiet {
		if err := g.fromPeers(ctx, e); err != nil {
			return err
		}
	}
	if e.bucket.Level == g.counter.finest || !g.childrenLive(e) {
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
	first := BucketAt(e.bucket.Level-1, e.bucket.First())
	return first.Expires(g.counter.retention, g.m.grace) > g.m.now().Unix()+2
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
		if lacks > 0 && short.looks >= deficitLooks && g.m.now().Sub(short.since) >= g.m.quiet {
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
		after, err := g.lookAt(ctx, i, []Bucket{e.bucket})
		if err != nil {
			return err
		}
		switch {
		case after[0].version != before.version:
			continue
		case lacks <= 0:
			e.good.add(i)
			e.doubt &^= 1 << i
			return nil
		case short.looks == 0:
			short.since = g.m.now()
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
	children := bucketsWithin(e.bucket.Level-1, Window{e.bucket.First(), e.bucket.Last()})
	buckets := append([]Bucket{e.bucket}, children...)
	if g.m.broken.childrenFirst {
		slices.Reverse(buckets)
	}
	looks, err := g.lookAt(ctx, i, buckets)
	if err != nil {
		return look{}, 0, err
	}
	if g.m.broken.childrenFirst {
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
	expires := e.bucket.Expires(g.counter.retention, g.m.grace)
	if expires <= g.m.now().Unix() {
		return false, nil
	}
	if err := g.m.looking.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer g.m.looking.Release(1)
	write := store.Write{Kind: store.Swap, Item: e.bucket.ID(), Version: from.version, By: value, Expires: expires}
	if from.version == 0 {
		write.Kind = store.Create
	}
	op := store.Op{Counter: g.counter.id, Server: g.servers[i], Writes: []store.Write{write}}
	g.m.store.Do(ctx, &op)
	if op.Err != nil || op.Writes[0].Result == 0 {
		return false, op.Err
	}
	g.raised++
	// What it was raised for, its parent may have missed too.
	if up := e.bucket.Level + 1; up <= g.counter.coarsest {
		number := BucketAt(up, e.bucket.First()).Number
		at, found := slices.BinarySearchFunc(g.levels[up], number, func(e *entry, number int64) int { return int(e.bucket.Number - number) })
		if found {
			g.levels[up][at].doubt.add(i)
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
		looks, err := g.lookAt(ctx, i, []Bucket{e.bucket})
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
	if !gone || g.m.store.Gaps() != g.gaps {
		return nil
	}
	op := store.Op{Counter: g.counter.id, Writes: []store.Write{{Kind: store.Delete, Item: e.bucket.ID()}}}
	g.m.store.Do(ctx, &op)
	return op.Err
}

// lookAtAll looks at buckets on all replicas. Looks at one bucket are next to each other.
func (g *repair) lookAtAll(ctx context.Context, buckets []Bucket) ([]look, error) {
	n := len(g.servers)
	looks := make([]look, n*len(buckets))
	for i := range g.servers {
		of, err := g.lookAt(ctx, i, buckets)
		if err != nil {
			return nil, err
		}
		for b, k := range of {
			looks[b*n+i] = k
		}
	}
	return looks, nil
}

// lookAt looks at buckets on one replica, at most lookBuckets, in their order.
func (g *repair) lookAt(ctx context.Context, i int, buckets []Bucket) ([]look, error) {
	op := store.Op{Counter: g.counter.id, Server: g.servers[i], Reads: make([]store.Read, len(buckets)), Versions: true}
	for b, bucket := range buckets {
		op.Reads[b].Item = bucket.ID()
	}
	if err := g.m.rate.WaitN(ctx, len(buckets)); err != nil {
		return nil, err
	}
	if err := g.m.looking.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer g.m.looking.Release(1)
	g.m.store.Do(ctx, &op)
	if op.Err != nil {
		return nil, op.Err
	}
	looks := make([]look, len(buckets))
	for b := range looks {
		looks[b] = look{op.Reads[b].Value, op.Reads[b].Version}
	}
	return looks, nil
}
