// Package testkit decides how much the tests do. By default simulations run a fiftieth of their seeds. With
// COUNTERD_TEST=all, as make test-all sets it, they run a twentieth; with COUNTERD_TEST=seeds, set by hand, all of them,
// which takes an hour. Tests that take minutes, or need programs that make deps does not install, are in files with the
// build tag testall. A test whose program is missing fails.
package testkit

import (
	"iter"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/simulate"
)

// Variable is set to "all" where everything is to be tested, and to "seeds" with all seeds.
const Variable = simulate.Variable

// All reports whether everything is to be tested.
func All() bool { return simulate.All() }

// Thorough reports whether even what the race detector makes too slow is to be done.
func Thorough() bool { return All() && !bubble.RaceDetector }

// Seeds returns how many of a simulation's seeds a test goes through, at least one.
func Seeds(all uint64) uint64 { return simulate.Seeds(all) }

// Interleave runs tasks step by step: see [simulate.Interleave].
func Interleave(rng *rand.Rand, all, atOnce int, chance float64, begin func() iter.Seq[struct{}], between func()) {
	simulate.Interleave(rng, all, atOnce, chance, begin, between)
}

// FindFault runs seeds until one has the fault: see [simulate.FindFault].
func FindFault(t *testing.T, first, n uint64, run func(seed uint64) (fault string, ok bool)) {
	t.Helper()
	simulate.FindFault(t, first, n, run)
}

// Fifth returns all where everything is tested and the race detector is off, and else a fifth:
// of the counters that fill a store, of the seconds that a simulation lasts.
func Fifth(all int) int {
	if Thorough() {
		return all
	}
	return all / 5
}

// Times returns how often a test draws something by chance that one goroutine computes: as often
// as it wants, or a tenth under the race detector, which finds nothing there.
func Times(n int) int {
	if bubble.RaceDetector {
		return max(n/10, 1)
	}
	return n
}

// Lasting returns how long a test of real processes goes on: the whole time where everything
// is tested.
func Lasting(short, whole time.Duration) time.Duration {
	if All() {
		return whole
	}
	return short
}

// Tool returns the path of the first of the named programs that is installed. If none is, the test fails, and hint says
// how to install it.
func Tool(tb testing.TB, hint string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		for _, folder := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
			if path, err := exec.LookPath(folder + name); err == nil {
				return path
			}
		}
	}
	tb.Fatalf("this test needs %s: %s", names[0], hint)
	return ""
}
