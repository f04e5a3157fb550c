package bench

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// sampled is how many counters a row looks at to see that its work was done.
const sampled = 50

// verifySome compares what some of the counters hold with what was added to them,
// by address. That nothing was added at all is an error too.
func verifySome(added []atomic.Int64, countOf func(i int) (int64, error)) error {
	var used []int
	for i := range added {
		if added[i].Load() > 0 {
			used = append(used, i)
		}
	}
	if len(used) == 0 {
		return errors.New("no counter was added to")
	}
	for n := range min(sampled, len(used)) {
		i := used[n*len(used)/min(sampled, len(used))]
		count, err := countOf(i)
		if err != nil {
			return err
		}
		if want := added[i].Load(); count != want {
			return fmt.Errorf("the counter of %s holds %d, and %d were added", address(i), count, want)
		}
	}
	return nil
}
