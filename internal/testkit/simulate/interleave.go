package simulate

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
)

// Interleave runs tasks step by step, each from one yield to the next, in an order that follows
// from the random numbers: so many in all, of which at most some are under way at once. While
// others are, the next one begins with that chance before a step. Between is called after each
// step.
func Interleave(rng *rand.Rand, all, atOnce int, chance float64, begin func() iter.Seq[struct{}], between func()) {
	type task struct {
		step func() (struct{}, bool)
		stop func()
	}
	var running []task
	for began := 0; began < all || len(running) > 0; {
		if began < all && len(running) < atOnce && (len(running) == 0 || rng.Float64() < chance) {
			step, stop := iter.Pull(begin())
			running = append(running, task{step, stop})
			began++
		}
		i := rng.IntN(len(running))
		if _, more := running[i].step(); !more {
			running[i].stop()
			running = slices.Delete(running, i, i+1)
		}
		between()
	}
}

// FindFault runs at most n seeds until one has the fault, and fails the test if none has. It begins
// with the seed first, which is known to find the fault, and goes on with 0 after the last one. The
// fault is what a simulation says of it; ok is false if it has none.
func FindFault(t *testing.T, first, n uint64, run func(seed uint64) (fault string, ok bool)) {
	t.Helper()
	for i := range n {
		seed := (first + i) % n
		if fault, ok := run(seed); ok {
			t.Logf("seed %d: %s", seed, fault)
			return
		}
	}
	t.Fatalf("no fault in %d seeds", n)
}
