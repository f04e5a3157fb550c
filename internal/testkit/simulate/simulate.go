// Package simulate is the part of testkit for simulations. It imports no package with rules, so that
// packages below the rules can use it. Package testkit has the same names.
package simulate

import (
	"os"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// Variable is set to "all" if everything is to be tested, with a twentieth of the seeds of simulations, and to
// "seeds" for all of the seeds.
const Variable = "COUNTERD_TEST"

// All reports whether everything is to be tested.
func All() bool { return os.Getenv(Variable) == "all" || Every() }

// Every reports whether all seeds are to be tested.
func Every() bool { return os.Getenv(Variable) == "seeds" }

// Share returns the divisor of the number of seeds. The race detector makes each seed ten to twenty
// times as slow, and finds nothing in the one goroutine of most simulations.
func Share() uint64 {
	switch {
	case bubble.RaceDetector:
		return 200
	case Every():
		return 1
	case All():
		return 20
	}
	return 50
}

// Seeds returns how many of a simulation's seeds a test goes through, at least one.
func Seeds(all uint64) uint64 { return max(all/Share(), 1) }
