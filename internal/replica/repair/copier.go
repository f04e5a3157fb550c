package repair

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
)

const (
	// claimEvery is how often a process asks whether there is something to copy.
	claimEvery = time.Second
	// progressEvery is how often it says how far it is, which keeps its claim.
	progressEvery = 3 * time.Second
	// tripLooks is how many looks a round trip to two servers counts as, beside those at its items:
	// hits wait for it.
	tripLooks = 4
	// A batch is so many items, and so many batches wait at the most for their items to be quiet.
	batchItems = maxLook / (1 + tripLooks)
	maxBatches = 500
	// maxListed bounds the items that are listed at a time.
	maxListed = 1 << 20
	// A round trip that fails is made again, longer and longer after the last one: a server may
	// be busy, or away for a moment.
	firstWait, lastWait = 100 * time.Millisecond, 10 * time.Second
	// busyAtOnce are counters that are repaired at a time, most of which wait to be quiet.
	busyAtOnce = 64
	// copyTries is how often an item is looked at that is never quiet before its counter is
	// repaired as a whole.
	copyTries = 3
)

// copyWhatIsDue copies to servers what they lack, as far as no other process does.
func (r *Repairer) copyWhatIsDue(ctx context.Context) {
	for rest(ctx, claimEvery) == nil {
		copying, err := r.store.Claim(ctx)
		if copying != nil {
			r.toCopy.Store(1)
			err = errors.Join(r.copyTo(ctx, copying), copying.Release(context.WithoutCancel(ctx)))
			r.toCopy.Store(0)
		}
		if err != nil && ctx.Err() == nil && r.config.OnError != nil {
			r.config.OnError(fmt.Errorf("repair: what a server has lost is copied to it later: %w", err))
		}
	}
}

// copyTo copies to a server what it lacks, from one server after the other.
func (r *Repairer) copyTo(ctx context.Context, copying *replica.Copying) error {
	if err := keepClaim(ctx, copying, func() int { return 0 }, func(ctx context.Context) error { return rest(ctx, r.config.pause()) }); err != nil {
		return err
	}
	for {
		began := time.Now()
		source, err := copying.Next(ctx)
		if source == nil || err != nil {
			return err
		}
		c := &copier{Repairer: r, gaps: r.store.Gaps(), copying: copying, source: source, parts: source.Parts(maxListed), busy: map[store.Hash]Counter{}, logs: map[string]bool{}, written: map[replica.Key]bool{}}
		if r.config.OnCopyStart != nil {
			r.config.OnCopyStart(copying.Target(), source.Name())
		}
		if err := keepClaim(ctx, copying, c.percent, c.run); err != nil {
			return fmt.Errorf("from %s to %s: %w", source.Name(), copying.Target(), err)
		}
		if err := persist(ctx, func() error { return copying.Done(ctx, source) }); err != nil {
			return err
		}
		if r.config.OnCopyEnd != nil {
			r.config.OnCopyEnd(Copy{copying.Target(), source.Name(), int(c.items.Load()), int(c.raised.Load()), time.Since(began)})
		}
	}
}

// keepClaim keeps the claim while something is done, and ends that if the claim is lost. percent
// returns how far that is.
func keepClaim(ctx context.Context, copying *replica.Copying, percent func() int, do func(context.Context) error) error {
	tasks, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	tasks.Go(func() error {
		defer close(done)
		return do(ctx)
	})
	tasks.Go(func() error {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := copying.Progress(ctx, percent()); errors.Is(err, replica.ErrOvertaken) {
					return err
				}
			case <-done:
				return nil
			}
		}
	})
	return tasks.Wait()
}

// Copy is what was copied from one server to another.
type Copy struct {
	To, From string
	Items    int // looked at
	Raised   int // of those, and logs
	Took     time.Duration
}

// copier copies to a server from another one what both should have. An item is copied as by a
// peer repair: once it is found with the same version on both servers, longer apart than
// anything is under way.
type copier struct {
	*Repairer
	gaps    uint64 // of the store, as it began
	copying *replica.Copying
	source  *replica.Source

	items, raised atomic.Int64
	parts         int                    // of the counters, one after the other
	part          atomic.Int64           // which it is
	listed, done  atomic.Int64           // items of the part
	busy          map[store.Hash]Counter // counters with an item that was never quiet
	logs          map[string]bool
	written       map[replica.Key]bool // items of bytes
}

// copied is an item on its way.
type copied struct {
	replica.Key
	counter  string // its alias
	from, to look
}

// waiting are items that were looked at, and are looked at again then.
type waiting struct {
	items []copied
	due   time.Time
}

func (c *copier) run(ctx context.Context) error {
	for part := range c.parts {
		c.part.Store(int64(part))
		if err := c.runPart(ctx, part); err != nil {
			return err
		}
		if err := c.repairBusy(ctx); err != nil {
			return err
		}
	}
	return nil
}

// percent returns how much of the source was copied.
func (c *copier) percent() int {
	return int(100*c.part.Load()+100*c.done.Load()/max(c.listed.Load(), 1)) / c.parts
}

// runPart copies the items of one part.
func (c *copier) runPart(ctx context.Context, part int) error {
	var left []replica.Key
	err := persist(ctx, func() (err error) { // the server may list for another client
		left, err = c.list(ctx, part)
		return err
	})
	c.listed.Store(int64(len(left)))
	c.done.Store(0)
	c.toCopy.Add(int64(len(left)))
	defer func() { c.toCopy.Add(c.done.Load() - c.listed.Load()) }()
	for try := 0; err == nil && len(left) > 0 && try < copyTries; try++ {
		left, err = c.pass(ctx, left)
	}
	for _, key := range left {
		if c.config.KindOf(key.Item) == Bucket { // any other count is changed on both servers
			c.leave(key)
		}
	}
	return err
}

// pass looks at items twice, and raises those on the target that were quiet. It returns the others.
func (c *copier) pass(ctx context.Context, keys []replica.Key) (left []replica.Key, err error) {
	tasks, ctx := errgroup.WithContext(ctx)
	seen := make(chan waiting, maxBatches)
	tasks.Go(func() error {
		defer close(seen)
		for some := range slices.Chunk(keys, batchItems) {
			items := make([]copied, len(some))
			for i, key := range some {
				items[i] = copied{Key: key}
				if i > 0 && key.Hash == some[i-1].Hash {
					items[i].counter = items[i-1].counter
				} else {
					items[i].counter = key.Alias()
				}
			}
			if err := c.lookAt(ctx, items, func(i int, from, to look) { items[i].from, items[i].to = from, to }); err != nil {
				return err
			}
			select {
			case seen <- waiting{items, time.Now().Add(c.config.quiet())}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	tasks.Go(func() error {
		for batch := range seen {
			if err := rest(ctx, time.Until(batch.due)); err != nil {
				return err
			}
			busy, err := c.lookAgain(ctx, batch.items)
			if err != nil {
				return err
			}
			left = append(left, busy...)
			done := int64(len(batch.items) - len(busy))
			c.done.Add(done)
			c.toCopy.Add(-done)
		}
		return nil
	})
	err = tasks.Wait()
	return left, err
}

// list returns the items of counters of the part that both servers should have, in order of the counters.
func (c *copier) list(ctx context.Context, part int) (all []replica.Key, err error) {
	err = c.copying.Keys(ctx, c.source, part, c.parts, func(key replica.Key) error {
		switch c.config.KindOf(key.Item) {
		case Log:
			c.logs[key.Alias()] = true
		case Bytes:
			c.written[key] = true
		case Foreign:
		default:
			all = append(all, key)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b replica.Key) int {
		return cmp.Or(bytes.Compare(a.Hash[:], b.Hash[:]), cmp.Compare(a.Item, b.Item))
	})
	return all, err
}

// lookAgain looks at items for the second time, and raises on the target what was quiet. It returns the
// others.
func (c *copier) lookAgain(ctx context.Context, items []copied) (busy []replica.Key, err error) {
	var raises []copied
	err = c.lookAt(ctx, items, func(i int, from, to look) {
		k := items[i]
		quiet := store.SameVersion(k.from.version, from.version) && store.SameVersion(k.to.version, to.version)
		k.from, k.to = from, to
		switch {
		case from.version == 0: // it has expired, or was reset
		case quiet && to.version != 0 && to.value >= from.value:
		case quiet || c.broken.hasty:
			raises = append(raises, k)
		default:
			busy = append(busy, k.Key)
		}
	})
	c.items.Add(int64(len(items)))
	if err != nil {
		return nil, err
	}
	unraised, err := c.raiseAll(ctx, raises)
	return append(busy, unraised...), err
}

// leave notes that the counter of an item is repaired as a whole: it is never quiet.
func (c *copier) leave(key replica.Key) {
	retention := time.Duration(max(key.Expires-c.config.Layout.Expires(key.Item, 0), 0)) * time.Second
	level := store.ItemLevel(key.Item)
	b, found := c.busy[key.Hash]
	if !found {
		b = Counter{ID: key.Alias(), Finest: level, Coarsest: level}
	}
	b.Coarsest, b.Retention = max(b.Coarsest, level), max(b.Retention, retention)
	c.busy[key.Hash] = b
}

// repairBusy repairs the logs, and the counters that were never quiet, each as a whole, and those again
// that fail.
func (c *copier) repairBusy(ctx context.Context) error {
	return persist(ctx, func() error {
		tasks, ctx := errgroup.WithContext(ctx)
		tasks.SetLimit(busyAtOnce)
		var mu sync.Mutex
		var fault error
		each := func(repair func() error, repaired func()) {
			tasks.Go(func() error {
				err := repair()
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					repaired()
				} else {
					fault = err
				}
				return ctx.Err()
			})
		}
		for id := range maps.Clone(c.logs) {
			each(func() error { return c.repairLog(ctx, id) }, func() { delete(c.logs, id) })
		}
		for key := range maps.Clone(c.written) {
			each(func() error { return c.copyBytes(ctx, key) }, func() { delete(c.written, key) })
		}
		for hash, counter := range maps.Clone(c.busy) {
			each(func() error { return c.repairCounter(ctx, counter) }, func() { delete(c.busy, hash) })
		}
		return cmp.Or(tasks.Wait(), fault)
	})
}

// repairLog repairs the log of a counter.
func (c *copier) repairLog(ctx context.Context, id string) error {
	g, err := c.whole(c.config.logOf(id))
	if err == nil {
		err = repairLog(ctx, g)
		c.note(g)
	}
	return err
}

// repairCounter repairs the buckets of a counter.
func (c *copier) repairCounter(ctx context.Context, counter Counter) (err error) {
	if counter.Finest, err = c.finest(ctx, counter); err != nil {
		return passOver(err)
	}
	g, err := c.whole(counter)
	if err != nil {
		return err
	}
	defer g.release()
	err = g.run(ctx)
	c.note(g)
	return passOver(err)
}

// passOver makes none of the error of a counter with an item into which another client has written: it fails
// on both servers.
func passOver(err error) error {
	if errors.Is(err, store.ErrNoCount) {
		return nil
	}
	return err
}

// whole begins the repair of a counter as a whole, on both servers at least.
func (c *copier) whole(counter Counter) (*repair, error) {
	g := c.begin(counter)
	if !slices.Contains(g.servers, c.source.Name()) || !slices.Contains(g.servers, c.copying.Target()) {
		g.release()
		return nil, errFewReplicas
	}
	return g, nil
}

func (c *copier) note(g *repair) {
	c.raised.Add(int64(g.raised))
	c.Repairer.raised.Add(int64(g.raised))
}

// copyBytes creates an item on the target that is written once.
func (c *copier) copyBytes(ctx context.Context, key replica.Key) error {
	read := &store.Op{Counter: key.Alias(), Server: c.source.Name(), Data: true, Reads: []store.Read{{Item: key.Item}}}
	if err := c.do(ctx, []*store.Op{read}, 1+tripLooks); err != nil || read.Reads[0].Version == 0 {
		return err
	}
	return c.do(ctx, []*store.Op{{
		Counter: key.Alias(), Server: c.copying.Target(), Data: true,
		Writes: []store.Write{{Kind: store.Create, Item: key.Item, Data: read.Reads[0].Data, Expires: key.Expires}},
	}}, 0)
}

// finest returns the finest level of the counter's buckets: what is in the bucket of now is in
// the finer ones, too.
func (c *copier) finest(ctx context.Context, counter Counter) (uint8, error) {
	a := arithmetic{c.config.Layout}
	at := copies{c.store, counter.ID, []string{c.source.Name()}}
	in := a.at(counter.Finest, c.config.Clock().Unix())
	for in.level > 0 {
		children := a.children(in)
		looks, err := at.lookAt(ctx, 0, children.appendItems(nil))
		if err != nil {
			return 0, err
		}
		last := -1
		for i, k := range looks {
			if k.value > 0 {
				last = i
			}
		}
		if last < 0 {
			break
		}
		in = bucket{children.level, children.first + int64(last)}
	}
	return in.level, nil
}

// lookAt looks at items on both servers, those of one counter in one round trip, and calls tell for each.
func (c *copier) lookAt(ctx context.Context, items []copied, tell func(i int, from, to look)) error {
	var ops []*store.Op
	var firsts []int // items of the counters
	for i, k := range items {
		if i > 0 && k.Hash == items[i-1].Hash {
			for _, op := range ops[len(ops)-2:] {
				op.Reads = append(op.Reads, store.Read{Item: k.Item})
			}
			continue
		}
		firsts = append(firsts, i)
		for _, server := range []string{c.source.Name(), c.copying.Target()} {
			ops = append(ops, &store.Op{Counter: k.counter, Server: server, Versions: true, Reads: []store.Read{{Item: k.Item}}})
		}
	}
	if err := c.do(ctx, ops, len(items)+tripLooks*len(firsts)); err != nil {
		return err
	}
	for n, first := range firsts {
		from, to := ops[2*n], ops[2*n+1]
		odd := errors.Join(from.Err, to.Err) != nil     // another client has written there
		if reads := len(from.Reads); odd && reads > 1 { // into one of them
			for i := first; i < first+reads; i++ {
				if err := c.lookAt(ctx, items[i:i+1], func(_ int, from, to look) { tell(i, from, to) }); err != nil {
					return err
				}
			}
			continue
		}
		for i := range from.Reads {
			if odd {
				from.Reads[i].Version = 0
			}
			tell(first+i, lookOf(from.Reads[i]), lookOf(to.Reads[i]))
		}
	}
	return nil
}

func lookOf(r store.Read) look { return look{r.Value, r.Version} }

// raiseAll sets items on the target to what they are on the source, unless they have changed since
// the look: those it returns.
func (c *copier) raiseAll(ctx context.Context, items []copied) (changed []replica.Key, err error) {
	now := c.config.Clock().Unix()
	items = slices.DeleteFunc(items, func(k copied) bool { return k.Expires <= now })
	var ops []*store.Op
	for _, k := range items {
		write := store.Write{Kind: store.Swap, Item: k.Item, Version: k.to.version, By: max(k.from.value, k.to.value), Expires: k.Expires}
		if k.to.version == 0 {
			write.Kind = store.Create
		}
		ops = append(ops, &store.Op{Counter: k.counter, Server: c.copying.Target(), Writes: []store.Write{write}})
	}
	if err := c.do(ctx, ops, 0); err != nil {
		return nil, err
	}
	var created []copied
	for i, op := range ops {
		if op.Writes[0].Result == 0 {
			changed = append(changed, items[i].Key)
			continue
		}
		if items[i].to.version == 0 {
			created = append(created, items[i])
		}
		c.raised.Add(1)
		c.Repairer.raised.Add(1)
	}
	return changed, c.undoResets(ctx, created)
}

// undoResets deletes created items that have gone from the source meanwhile: a reset has come. If a
// server has lost something it is none: rather one item too many than too few.
func (c *copier) undoResets(ctx context.Context, created []copied) error {
	var deletes []*store.Op
	err := c.lookAt(ctx, created, func(i int, from, _ look) {
		if from.version == 0 {
			deletes = append(deletes, &store.Op{Counter: created[i].counter, Writes: []store.Write{{Kind: store.Delete, Item: created[i].Item}}})
		}
	})
	if err != nil || len(deletes) == 0 {
		return err
	}
	// What a server has dropped is none either.
	if err := c.copying.Look(ctx, c.source); err != nil || c.store.Gaps() != c.gaps {
		return err
	}
	return c.do(ctx, deletes, 0)
}

// do makes round trips, and those again that fail.
func (c *copier) do(ctx context.Context, ops []*store.Op, looks int) error {
	return persist(ctx, func() error {
		if len(ops) == 0 {
			return nil
		}
		if err := c.store.rate.WaitN(ctx, looks); err != nil {
			return err
		}
		if err := c.store.looking.Acquire(ctx, atOnce/2); err != nil {
			return err
		}
		c.store.Do(ctx, ops...)
		c.store.looking.Release(atOnce / 2)
		ops = slices.DeleteFunc(slices.Clone(ops), func(op *store.Op) bool {
			return op.Err == nil || errors.Is(op.Err, store.ErrNoCount) || errors.Is(op.Err, store.ErrNoData)
		})
		if len(ops) > 0 {
			return ops[0].Err
		}
		return nil
	})
}

// persist does something until that is no error, the copying has ended, or it has waited for
// too long.
func persist(ctx context.Context, do func() error) error {
	for wait := firstWait; ; wait *= 2 {
		err := do()
		if err == nil || errors.Is(err, replica.ErrOvertaken) || wait > lastWait {
			return err
		}
		if rest(ctx, wait) != nil {
			return err
		}
	}
}
