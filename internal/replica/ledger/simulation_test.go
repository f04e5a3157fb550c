package ledger

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/testkit/mutant"
	"github.com/counterd/counterd/internal/testkit/simulate"
)

// The simulation: two to six servers and one to six processes, one to three replicas. Commands interleave one by one in
// virtual time, while servers and processes fail. The rules are the ones of this package. The rest of a process, looks,
// round trips, hints and copies, is in the tests until package replica has it.
//
// The promises that are held against it:
//
//	P1  Every count is marked incomplete if its window begins before the lowest number of the replicas that answered.
//	    A loss that breaks no connection is marked 1.3 s later. While faults overlap, this holds for writes 2.5 s old.
//	P2  A process calls a server complete only if it holds every acknowledged write that is three seconds old.
//	P3  If each server fails, leaves or joins only after one process called all servers complete, no count is too low.
//	P4  After any faults all numbers are 0 again, and all processes agree within two looks.
//	P5  A replica with a raised number does not decide a hit while a replica with number 0 may still answer it.
//	P6  If nothing fails, each replica holds what was acknowledged, and not one more.

func TestOneFaultAtATimeLosesNothing(t *testing.T)     { simulateSeeds(t, "turn", 250) }
func TestOverlappingFaultsAreMarked(t *testing.T)      { simulateSeeds(t, "storm", 200) }
func TestDebtsAreInherited(t *testing.T)               { simulateSeeds(t, "heirs", 250) }
func TestCopiesDuringChangesMissNothing(t *testing.T)  { simulateSeeds(t, "copies", 200) }
func TestCopiesOfBusyCountersMissNothing(t *testing.T) { simulateSeeds(t, "busy", 100) }
func TestReplicasAreExactWithoutFaults(t *testing.T)   { simulateSeeds(t, "calm", 200) }

// simulateSeeds runs the seeds of a mode. If a seed fails, the log has the last events of its trace.
func simulateSeeds(t *testing.T, mode string, seeds uint64) {
	var sum tally
	for seed := range mutant.Seeds(t, simulate.Seeds(seeds)) {
		w := newWorld(seed, mode)
		w.simulate()
		sum.add(w.tally)
		if !assert.Empty(t, w.fault, "seed %d", seed) {
			w = newWorld(seed, mode)
			w.tracing = true
			w.simulate()
			t.Log(strings.Join(w.traceLog[max(0, len(w.traceLog)-40):], "\n"))
		}
	}
	t.Logf("%+v", sum)
}

func (s *tally) add(o tally) {
	s.hits += o.hits
	s.faults += o.faults
	s.repairs += o.repairs
	s.copies += o.copies
	s.rolledUp += o.rolledUp
	s.marked += o.marked
	s.unrecorded += o.unrecorded
	s.tooHigh += o.tooHigh
	s.items += o.items
}
