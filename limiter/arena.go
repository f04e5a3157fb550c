package limiter

// arena hands out values that stay where they are, and takes them all back at once
// to hand them out again.
type arena[T any] struct {
	all  []*T
	used int
}

// next returns a value as it was left.
func (a *arena[T]) next() *T {
	if a.used == len(a.all) {
		a.all = append(a.all, new(T))
	}
	a.used++
	return a.all[a.used-1]
}

func (a *arena[T]) handedOut() []*T { return a.all[:a.used] }

func (a *arena[T]) reset() { a.used = 0 }
