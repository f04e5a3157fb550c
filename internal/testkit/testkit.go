// Package testkit decides how much the tests do. By default they are done in minutes, and need
// no program but memcached: simulations go through a share of their seeds, and tests that need
// a browser, a proxy or a tool of others are left out. With COUNTERD_TEST=all, as make test-all
// sets it, no test is left out, and a test whose program is missing fails; simulations go through
// a twentieth of their seeds. COUNTERD_TEST=seeds, by hand, has them go through all: an hour.
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

// Long leaves a test out that takes a minute, and whose subject shorter tests have too, except
// where everything is tested.
func Long(tb testing.TB) {
	tb.Helper()
	if !All() {
		tb.Skipf("%s=all runs it, which make test-all sets", Variable)
	}
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

// Program returns the path of a program that only tests of everything need: the first of the
// names that is found. Without COUNTERD_TEST=all the test is skipped; with it the test fails
// where the program is missing, and hint says how to install it.
func Program(tb testing.TB, hint string, names ...string) string {
	tb.Helper()
	if !All() {
		tb.Skipf("%s=all runs it, which make test-all sets: it needs %s", Variable, names[0])
	}
	return Tool(tb, hint, names...)
}

// Tool is as Program, of a program that most machines have: the test runs where it is found,
// whatever is to be tested.
func Tool(tb testing.TB, hint string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		for _, folder := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
			if path, err := exec.LookPath(folder + name); err == nil {
				return path
			}
		}
	}
	if !All() {
		tb.Skipf("it needs %s: %s", names[0], hint)
	}
	tb.Fatalf("this test needs %s: %s", names[0], hint)
	return ""
}
