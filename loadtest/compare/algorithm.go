package compare

import "context"

// algorithm is a way of limiting. It is not safe for concurrent use.
type algorithm interface {
	// decide reports whether it admits a hit of that cost, 1 or more, by a feature, in
	// nanoseconds since 1970. Times do not go back.
	decide(ctx context.Context, feature string, now, cost int64) (admitted bool, err error)
	// items returns how many items would keep the feature's state in Memcached since it was
	// last decided on, and the bytes of the value of each.
	items(feature string) (n, value int)
	// asked returns what was asked of the store so far.
	asked() asked
}

// asked is what was asked of a store.
type asked struct {
	trips, reads, writes int64
}

// cells keep the states of a reference implementation, by feature, and count what is asked
// of them. In them everything is found that it remembers.
type cells[S any] struct {
	states map[string]S
	count  asked
}

func newCells[S any]() cells[S] { return cells[S]{states: map[string]S{}} }

// read returns the state of a feature; the zero one where there is none.
func (c *cells[S]) read(feature string) S {
	c.count.trips++
	c.count.reads++
	return c.states[feature]
}

func (c *cells[S]) write(feature string, state S) {
	c.count.trips++
	c.count.writes++
	c.states[feature] = state
}

func (c *cells[S]) asked() asked { return c.count }

// numbers returns the one item of so many numbers that keeps a feature's state, if it has one.
func (c *cells[S]) numbers(feature string, count int) (n, value int) {
	if _, found := c.states[feature]; !found {
		return 0, 0
	}
	return 1, 8 * count
}
