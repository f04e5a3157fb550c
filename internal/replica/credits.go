package replica

import (
	"slices"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// credits are adds that a server acknowledged after their round trip was given up, and before
// the hint of their hit came. The hint is smaller by that much. Adds that are rolled back get no
// hint, so credits end by themselves.
type credits struct {
	life         time.Duration // at least; twice as long at most
	most         int
	turn         time.Time // when the newer become the older
	newer, older map[creditKey]int64
}

// creditKey says which adds a credit is of: the adds of a counter are known by their items.
type creditKey struct {
	server      Server
	hash        store.Hash
	first, last uint64
	adds        int
}

func creditKeyOf(server Server, h store.Hash, adds []store.Write) creditKey {
	return creditKey{server, h, adds[0].Item, adds[len(adds)-1].Item, len(adds)}
}

// age ends the credits that are too old.
func (c *credits) age(now time.Time) {
	switch {
	case now.Before(c.turn):
		return
	case now.Before(c.turn.Add(c.life)):
		c.older = c.newer
	default:
		c.older = nil
	}
	c.newer, c.turn = nil, now.Add(c.life)
}

// keep notes a credit. One that is too many is dropped: the server then counts twice.
func (c *credits) keep(now time.Time, server Server, h store.Hash, adds []store.Write) {
	c.age(now)
	if len(c.newer) >= c.most {
		return
	}
	if c.newer == nil {
		c.newer = map[creditKey]int64{}
	}
	c.newer[creditKeyOf(server, h, adds)] += adds[0].By
}

// use returns what the credits leave of the adds, nil for nothing, and takes that much from
// them. All adds are of the same amount.
func (c *credits) use(now time.Time, server Server, h store.Hash, adds []store.Write) []store.Write {
	c.age(now)
	key, by := creditKeyOf(server, h, adds), adds[0].By
	for _, of := range []map[creditKey]int64{c.older, c.newer} {
		used := min(of[key], by)
		if used <= 0 {
			continue
		}
		by -= used
		if of[key] -= used; of[key] == 0 {
			delete(of, key)
		}
	}
	switch by {
	case 0:
		return nil
	case adds[0].By:
		return adds
	}
	adds = slices.Clone(adds)
	for i := range adds {
		adds[i].By = by
	}
	return adds
}

// drop ends the credits of a counter: what they were of may be deleted.
func (c *credits) drop(h store.Hash) {
	for _, of := range []map[creditKey]int64{c.older, c.newer} {
		for key := range of {
			if key.hash == h {
				delete(of, key)
			}
		}
	}
}
