package hierarchy

import (
	"testing"

	"github.com/counterd/counterd/internal/testkit/mutant"
)

// What each part of the algorithm is for: without it a simulation finds a fault.
func TestSimulationsFindMutants(t *testing.T) {
	mutant.Test(t, []mutant.Mutant{
		{
			Name: "no look ahead", File: "counter.go", Test: "TestNoWindowHoldsMore", Seed: 68,
			Old: "ahead := max(at.Second+engine.CeilSeconds(e.base.Grace), at.Latest)",
			New: "ahead := at.Latest",
		},
		{
			Name: "no look ahead of a clock that was set back", File: "counter.go", Test: "TestNoWindowHoldsMoreAfterAClockWasSetBack", Seed: 288,
			Old: "ahead := max(at.Second+engine.CeilSeconds(e.base.Grace), at.Latest)",
			New: "ahead := at.Second + engine.CeilSeconds(e.base.Grace)",
		},
		{
			Name: "a rank level by the second", File: "view.go", Test: "TestNoWindowHoldsMore", Seed: 975,
			Old: "ahead = min(ahead, last)",
			New: "ahead = min(ahead, last)\nif !w.Algorithm.Tiles && second%2 == 0 && rank > finest {\nrank--\n}",
		},
		{
			Name: "a rank level that straddles turns", File: "view.go", Test: "TestNoFixedWindowHoldsMore", Seed: 461,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles && second < 0 {",
		},
		{
			Name: "a calendar that straddles turns", File: "view.go", Test: "TestNoCalendarWindowHoldsMore", Seed: 290,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles && second < 0 {",
		},
		{
			Name: "a cover by the second", File: "view.go", Test: "TestNoFixedWindowHoldsMore", Seed: 1485,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles {\nif second%2 == 0 && rank > finest && (last-first)/(rank-1).Seconds() <= 400 {\nrank--\n}",
		},
		{
			Name: "the edge of a window is empty", File: "view.go", Test: "TestNoWindowHoldsMore",
			Old: "return most - counts[v.first().ID()], most",
			New: "return most - counts[v.first().ID()], most - counts[v.first().ID()]",
		},
		{
			Name: "caches buckets that are not closed", File: "counter.go", Test: "TestNoWindowHoldsMore", Seed: 272,
			Old: "c.at.Second-openSeconds(c.engine.base.Grace)",
			New: "c.at.Second",
		},
		{
			Name: "trusts slow round trips", File: "../internal/limiter/clock.go", Test: "TestNoWindowHoldsMore", Seed: 1172,
			Old: "return now.Sub(at.Time) > c.grace/2 || elapsed > c.grace/2 ||",
			New: "return now.Sub(at.Time) > 500*c.grace || elapsed > 500*c.grace ||",
		},
		{
			Name: "hits of a batch do not count for later ones", File: "../internal/limiter/decide.go", Test: "TestNoWindowHoldsMore",
			Old: "a.count = a.limit.Count + t.Taken",
			New: "a.count = a.limit.Count",
		},
		{
			Name: "admitted hits are rolled back, too", File: "counter.go", Test: "TestNoWindowHoldsMore",
			Old: "c.op.RollBack(c.tally.ID, c.adds, c.receipt, added-kept)",
			New: "c.op.RollBack(c.tally.ID, c.adds, c.receipt, added)",
		},
		{
			Name: "a rollback forgets one of the cost", File: "counter.go", Test: "TestCalm",
			Old: "c.op.RollBack(c.tally.ID, c.adds, c.receipt, added-kept)",
			New: "c.op.RollBack(c.tally.ID, c.adds, c.receipt, added-kept-1)",
		},
		{
			Name: "a search ends at hours", File: "search.go", Test: "TestCalm",
			Old: "for !q.ended && q.found.Level > c.finest &&",
			New: "for !q.ended && q.found.Level > Hour &&",
		},
		{
			Name: "a full limit denies one too early", File: "../internal/limiter/decide.go", Test: "TestCalm",
			Old: "a.known && a.count+cost > limit.Ceiling:",
			New: "a.known && a.count+cost >= limit.Ceiling:",
		},
	})
}
