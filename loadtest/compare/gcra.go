package compare

import "context"

// gcra is the generic cell rate algorithm, as virtual scheduling, of ITU-T I.371: it keeps
// one time, that at which the next hit would be due if all came evenly, and admits what is
// ahead of it by no more than a window. It is a token bucket without tokens.
type gcra struct {
	limit
	interval int64
	cells[int64]
}

// newGCRA rounds the interval up to a nanosecond, so that a window's hits are never due in
// less than it.
func newGCRA(l limit) *gcra {
	return &gcra{l, (l.window + l.n - 1) / l.n, newCells[int64]()}
}

func (g *gcra) decide(_ context.Context, feature string, now, cost int64) (bool, error) {
	state := g.read(feature)
	if cost > g.n {
		return false, nil
	}
	due := max(state, now) + g.interval*cost
	if due-now > g.interval*g.n {
		return false, nil
	}
	g.write(feature, due)
	return true, nil
}

func (g *gcra) items(feature string) (n, value int) { return g.numbers(feature, 1) }
