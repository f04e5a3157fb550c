package hierarchy_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain has the garbage collector run seldom: each seed of a simulation allocates caches of
// half a megabyte, and the live heap is small.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}
