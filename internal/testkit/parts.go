package testkit

import (
	"fmt"
	"sync"
	"testing"
)

// InParts runs the seeds of a simulation in parts side by side, each from a first one on, and
// takes in what they come to, one after the other.
func InParts[O any](t *testing.T, seeds uint64, run func(t *testing.T, first, n uint64) O, takeIn func(O)) {
	t.Helper()
	const parts = 4
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for part := range uint64(parts) {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				o := run(t, part*1_000_000, max(seeds/parts, 1))
				mu.Lock()
				defer mu.Unlock()
				takeIn(o)
			})
		}
	})
}
