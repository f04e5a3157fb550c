package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/replication"
	"github.com/counterd/counterd/store"
)

const (
	// claimEvery is how often a process asks whether there is something to copy.
	claimEvery = time.Second
	// progressEvery is how often it says how far it is, which keeps its claim.
	progressEvery = 3 * time.Second
	// A batch is so many items, and so many batches wait at the most for their items to be quiet.
	batchItems = 100
	maxBatches = 500
	// maxListed bounds the items that are listed at a time.
	maxListed = 1 << 20
	// firstWait is how long to wait after a round trip without an answer, longer each time.
	firstWait = 200 * time.Millisecond
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
func (r *Repairer) copyTo(ctx context.Context, copying *replication.Copying) error {
	began := time.Now()
	if err := keepClaim(ctx, copying, nil, func(ctx context.Context) error { return rest(ctx, r.config.pause()) }); err != nil {
		return err
	}
	for {
		source, err := copying.Next(ctx)
		if source == nil || err != nil {
			return err
		}
		c := &copier{Repairer: r, copying: copying, source: source, parts: source.Parts(maxListed), busy: map[string]Counter{}, logs: map[string]bool{}}
		if r.config.OnCopyStart != nil {
			r.config.OnCopyStart(copying.Target(), source.Name())
		}
		if err := keepClaim(ctx, copying, c.percent, c.run); err != nil {
			return fmt.Errorf("from %s to %s: %w", source.Name(), copying.Target(), err)
		}
		if err := copying.Done(ctx, source); err != nil {
			return err
		}
		if r.config.OnCopyEnd != nil {
			r.config.OnCopyEnd(Copy{copying.Target(), source.Name(), int(c.items.Load()), int(c.raised.Load()), time.Since(began)})
		}
	}
}

// keepClaim keeps the claim while something is done, and ends that if the claim is lost. percent
// returns how far that is; nil: it has not begun.
func keepClaim(ctx context.Context, copying *replication.Copying, percent func() int, do func(context.Context) error) error {
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
				done := 0
				if percent != nil {
					done = percent()
				}
				if err := copying.Progress(ctx, done); err != nil {
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
	copying *replication.Copying
	source  *replication.Source

	items, raised atomic.Int64
	parts         int          // of the counters, one after the other
	part          atomic.Int64 // which it is
	listed, done  atomic.Int64 // items of the part
	mu            sync.Mutex
	busy          map[string]Counter // counters with an item that was never quiet
	logs          map[string]bool
	bytes         []copied
}

// copied is an item on its way.
type copied struct {
	counter  string // an alias
	item     uint64
	expires  int64
	from, to look
	tries    int
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
	}
	return c.repairBusy(ctx)
}

// percent returns how much of the source was copied.
func (c *copier) percent() int {
	return int(100*c.part.Load()+100*c.done.Load()/max(c.listed.Load(), 1)) / c.parts
}

// runPart copies the items of one part.
func (c *copier) runPart(ctx context.Context, part int) error {
	all, err := c.list(ctx, part)
	if err != nil {
		return err
	}
	c.listed.Store(int64(len(all)))
	c.done.Store(0)
	c.toCopy.Add(int64(len(all)))
	defer func() { c.toCopy.Add(c.done.Load() - int64(len(all))) }()
	tasks, ctx := errgroup.WithContext(ctx)
	listed, quiet := make(chan []copied), make(chan waiting, maxBatches)
	tasks.Go(func() error {
		defer close(listed)
		return send(ctx, all, listed)
	})
	var looking sync.WaitGroup
	looking.Add(atOnce)
	for range atOnce {
		tasks.Go(func() error {
			defer looking.Done()
			for items := range listed {
				if err := c.lookFirst(ctx, items, quiet); err != nil {
					return err
				}
			}
			return nil
		})
	}
	tasks.Go(func() error { looking.Wait(); close(quiet); return nil })
	for range atOnce {
		tasks.Go(func() error {
			for batch := range quiet {
				if err := c.lookAgain(ctx, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return tasks.Wait()
}

// list returns the items of counters of the part that both servers should have.
func (c *copier) list(ctx context.Context, part int) (all []replication.Key, err error) {
	err = c.copying.Keys(ctx, c.source, part, c.parts, func(key replication.Key) error {
		switch c.config.KindOf(key.Item) {
		case Log:
			c.logs[key.Alias()] = true
		case Bytes:
			c.bytes = append(c.bytes, copied{counter: key.Alias(), item: key.Item, expires: key.Expires})
		default:
			all = append(all, key)
		}
		return nil
	})
	return all, err
}

// send sends items in batches.
func send(ctx context.Context, all []replication.Key, to chan<- []copied) error {
	for keys := range slices.Chunk(all, batchItems) {
		batch := make([]copied, len(keys))
		for i, key := range keys {
			batch[i] = copied{counter: key.Alias(), item: key.Item, expires: key.Expires}
			if i > 0 && key.Hash == keys[i-1].Hash {
				batch[i].counter = batch[i-1].counter
			}
		}
		select {
		case to <- batch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lookFirst looks at items on both servers.
func (c *copier) lookFirst(ctx context.Context, items []copied, then chan<- waiting) error {
	c.items.Add(int64(len(items)))
	if err := c.lookAt(ctx, items, func(i int, from, to look) { items[i].from, items[i].to = from, to }); err != nil {
		return err
	}
	select {
	case then <- waiting{items, time.Now().Add(c.config.quiet())}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookAgain looks at them again when their time has come, and raises on the target what was quiet.
func (c *copier) lookAgain(ctx context.Context, batch waiting) error {
	all := len(batch.items)
	for len(batch.items) > 0 {
		if err := rest(ctx, time.Until(batch.due)); err != nil {
			return err
		}
		var raises, again []copied
		err := c.lookAt(ctx, batch.items, func(i int, from, to look) {
			k := batch.items[i]
			quiet := store.SameVersion(k.from.version, from.version) && store.SameVersion(k.to.version, to.version)
			k.from, k.to = from, to
			switch k.tries++; {
			case from.version == 0: // it has expired, or was reset
			case quiet && to.version != 0 && to.value >= from.value:
			case quiet || c.broken.hasty:
				raises = append(raises, k)
			case k.tries < copyTries:
				again = append(again, k)
			default:
				c.leave(k)
			}
		})
		if err == nil {
			err = c.raiseAll(ctx, raises)
		}
		if err != nil {
			return err
		}
		batch = waiting{again, time.Now().Add(c.config.quiet())}
	}
	c.done.Add(int64(all))
	return nil
}

// leave notes that the counter of an item is repaired as a whole: it is never quiet.
func (c *copier) leave(k copied) {
	retention := time.Duration(max(k.expires-c.config.Layout.Expires(k.item, 0), 0)) * time.Second
	level := store.ItemLevel(k.item)
	c.mu.Lock()
	defer c.mu.Unlock()
	b, found := c.busy[k.counter]
	if !found {
		b = Counter{ID: k.counter, Finest: level, Coarsest: level}
	}
	b.Coarsest, b.Retention = max(b.Coarsest, level), max(b.Retention, retention)
	c.busy[k.counter] = b
}

// repairBusy repairs the logs, and the counters that were never quiet, each as a whole.
func (c *copier) repairBusy(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(atOnce)
	for id := range c.logs {
		tasks.Go(func() error {
			g := c.begin(Counter{ID: id, Retention: c.config.Retention()})
			err := repairLog(ctx, g)
			c.note(g)
			return err
		})
	}
	for _, k := range c.bytes {
		tasks.Go(func() error { return c.copyBytes(ctx, k) })
	}
	for _, counter := range c.busy {
		tasks.Go(func() error {
			var err error
			if counter.Finest, err = c.finest(ctx, counter); err != nil {
				return err
			}
			g := c.begin(counter)
			defer g.release()
			err = g.run(ctx)
			c.note(g)
			return err
		})
	}
	return tasks.Wait()
}

func (c *copier) note(g *repair) {
	c.raised.Add(int64(g.raised))
	c.Repairer.raised.Add(int64(g.raised))
}

// copyBytes creates an item on the target that is written once.
func (c *copier) copyBytes(ctx context.Context, k copied) error {
	read := &store.Op{Counter: k.counter, Server: c.source.Name(), Data: true, Reads: []store.Read{{Item: k.item}}}
	if err := c.do(ctx, []*store.Op{read}, 1); err != nil || read.Reads[0].Version == 0 {
		return err
	}
	return c.do(ctx, []*store.Op{{
		Counter: k.counter, Server: c.copying.Target(), Data: true,
		Writes: []store.Write{{Kind: store.Create, Item: k.item, Data: read.Reads[0].Data, Expires: k.expires}},
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

// lookAt looks at items on both servers, and calls look for each.
func (c *copier) lookAt(ctx context.Context, items []copied, look func(i int, from, to look)) error {
	var ops []*store.Op
	for start := 0; start < len(items); { // items of a counter that are next to each other are one op
		end := start + 1
		for end < len(items) && items[end].counter == items[start].counter {
			end++
		}
		for _, server := range []string{c.source.Name(), c.copying.Target()} {
			op := &store.Op{Counter: items[start].counter, Server: server, Versions: true}
			for _, k := range items[start:end] {
				op.Reads = append(op.Reads, store.Read{Item: k.item})
			}
			ops = append(ops, op)
		}
		start = end
	}
	if err := c.do(ctx, ops, len(items)); err != nil {
		return err
	}
	i := 0
	for n := 0; n < len(ops); n += 2 {
		from, to := ops[n], ops[n+1]
		for k := range from.Reads {
			look(i, lookOf(from.Reads[k]), lookOf(to.Reads[k]))
			i++
		}
	}
	return nil
}

func lookOf(r store.Read) look { return look{r.Value, r.Version} }

// raiseAll sets items on the target to what they are on the source, unless they have changed since
// the look: then their trip has reached both, or there is a hint.
func (c *copier) raiseAll(ctx context.Context, items []copied) error {
	now := c.config.Clock().Unix()
	items = slices.DeleteFunc(items, func(k copied) bool { return k.expires <= now })
	var ops []*store.Op
	for _, k := range items {
		write := store.Write{Kind: store.Swap, Item: k.item, Version: k.to.version, By: max(k.from.value, k.to.value), Expires: k.expires}
		if k.to.version == 0 {
			write.Kind = store.Create
		}
		ops = append(ops, &store.Op{Counter: k.counter, Server: c.copying.Target(), Writes: []store.Write{write}})
	}
	if err := c.do(ctx, ops, 0); err != nil {
		return err
	}
	for i, op := range ops {
		if op.Writes[0].Result == 0 {
			c.leave(items[i])
			continue
		}
		c.raised.Add(1)
		c.Repairer.raised.Add(1)
	}
	return nil
}

// do makes round trips, and those again that fail: a server may be busy for a moment.
func (c *copier) do(ctx context.Context, ops []*store.Op, looks int) error {
	for try := 1; len(ops) > 0; try++ {
		if looks > 0 {
			if err := c.store.rate.WaitN(ctx, looks); err != nil {
				return err
			}
		}
		c.store.Do(ctx, ops...)
		ops = slices.DeleteFunc(slices.Clone(ops), func(op *store.Op) bool { return op.Err == nil })
		if len(ops) == 0 {
			return nil
		}
		if try == copyTries {
			return ops[0].Err
		}
		if err := rest(ctx, time.Duration(try)*firstWait); err != nil {
			return err
		}
	}
	return nil
}
