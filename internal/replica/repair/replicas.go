package repair

import (
	"context"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
)

// Replicas is a Store whose replicas of a counter can be compared and repaired one by one: it
// reads with versions, creates and swaps items on a named server.
type Replicas interface {
	store.Store
	// ServersUp returns the names of those servers that have the counter and are up.
	ServersUp(counter string) []string
	// Differing returns counters whose replicas were seen to differ since the last call.
	Differing() []string
	// Missed returns counters with a log of which a replica that is up did not acknowledge a
	// write, each once; Settle says that one of them is repaired.
	Missed() []string
	Settle(counter string)
	// Gaps returns a number that grows whenever a server may have missed something.
	Gaps() uint64
	// Claim claims the copying to a server of what it lacks; nil: there is nothing to copy now.
	Claim(context.Context) (*replica.Copying, error)
	// Unlisted reports whether a server does not list its keys. Nothing can be copied from it:
	// then the counters that this process has used are compared.
	Unlisted() bool
}

// paced bounds what all repairs together ask of the replicas.
type paced struct {
	Replicas
	rate    *rate.Limiter // of looks
	looking *semaphore.Weighted
}

// look is what an item was found to be on one replica.
type look struct {
	value   int64
	version uint64 // 0: it is not there
}

// copies are the replicas of one counter that are up.
type copies struct {
	*paced
	counter string
	servers []string
}

func (p *paced) of(counter string) copies { return copies{p, counter, p.ServersUp(counter)} }

// lookAtAll looks at items on all replicas. Looks at one item are next to each other.
func (c copies) lookAtAll(ctx context.Context, items []uint64) ([]look, error) {
	n := len(c.servers)
	looks := make([]look, n*len(items))
	for at := range c.servers {
		of, err := c.lookAt(ctx, at, items)
		if err != nil {
			return nil, err
		}
		for i, k := range of {
			looks[i*n+at] = k
		}
	}
	return looks, nil
}

// lookAt looks at items on one replica, at most maxLook, in their order.
func (c copies) lookAt(ctx context.Context, at int, items []uint64) ([]look, error) {
	op := store.Op{Counter: c.counter, Server: c.servers[at], Reads: make([]store.Read, len(items)), Versions: true}
	for i, item := range items {
		op.Reads[i].Item = item
	}
	if err := c.rate.WaitN(ctx, len(items)); err != nil {
		return nil, err
	}
	if err := c.looking.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.looking.Release(1)
	c.Do(ctx, &op)
	if op.Err != nil {
		return nil, op.Err
	}
	looks := make([]look, len(items))
	for i := range looks {
		looks[i] = look{op.Reads[i].Value, op.Reads[i].Version}
	}
	return looks, nil
}

// raise sets an item on one replica, unless it has changed since that look.
func (c copies) raise(ctx context.Context, at int, item uint64, from look, value, expires int64) (raised bool, err error) {
	if err := c.looking.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer c.looking.Release(1)
	write := store.Write{Kind: store.Swap, Item: item, Version: from.version, By: value, Expires: expires}
	if from.version == 0 {
		write.Kind = store.Create
	}
	op := store.Op{Counter: c.counter, Server: c.servers[at], Writes: []store.Write{write}}
	c.Do(ctx, &op)
	return op.Err == nil && op.Writes[0].Result != 0, op.Err
}

// remove deletes an item from all replicas.
func (c copies) remove(ctx context.Context, item uint64) error {
	op := store.Op{Counter: c.counter, Writes: []store.Write{{Kind: store.Delete, Item: item}}}
	c.Do(ctx, &op)
	return op.Err
}
