package hierarchy

import (
	"testing"

	"github.com/counterd/counterd/internal/testkit/mutant"
)

// What each part of the algorithm is for: without it a simulation finds a fault.
func TestSimulationsFindMutants(t *testing.T) {
	mutant.Test(t, []mutant.Mutant{
		{
			Name: "no look ahead", File: "session.go", Test: "TestNoWindowHoldsMore", Seed: 68,
			Old: "ahead := max(engine.CeilSeconds(s.counters.grace), s.moment.Latest-s.stamp)",
			New: "ahead := s.moment.Latest - s.stamp",
		},
		{
			Name: "no look ahead of a clock that was set back", File: "session.go", Test: "TestNoWindowHoldsMoreAfterAClockWasSetBack", Seed: 288,
			Old: "ahead := max(engine.CeilSeconds(s.counters.grace), s.moment.Latest-s.stamp)",
			New: "ahead := engine.CeilSeconds(s.counters.grace)",
		},
		{
			Name: "a rank level by the second", File: "bucket.go", Test: "TestNoWindowHoldsMore", Seed: 975,
			Old: "s.edge.First, ahead = ",
			New: "if !w.Algorithm.Tiles && now%2 == 0 && s.top > finest {\ns.top--\n}\ns.edge.First, ahead = ",
		},
		{
			Name: "a rank level that straddles turns", File: "bucket.go", Test: "TestNoFixedWindowHoldsMore", Seed: 461,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles && now < 0 {",
		},
		{
			Name: "a calendar that straddles turns", File: "bucket.go", Test: "TestNoCalendarWindowHoldsMore", Seed: 290,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles && now < 0 {",
		},
		{
			Name: "a cover by the second", File: "bucket.go", Test: "TestNoFixedWindowHoldsMore", Seed: 1485,
			Old: "if w.Algorithm.Tiles {",
			New: "if w.Algorithm.Tiles {\nif now%2 == 0 && s.top > finest && (last-first)/(s.top-1).Seconds() <= 400 {\ns.top--\n}",
		},
		{
			Name: "the edge of a window is empty", File: "session.go", Test: "TestNoWindowHoldsMore",
			Old: "l.lo -= w.value(Bucket{l.span.rank, l.span.tiles[0].First})",
			New: "l.lo -= w.value(Bucket{l.span.rank, l.span.tiles[0].First})\nl.hi = l.lo",
		},
		{
			Name: "caches buckets that are not closed", File: "session.go", Test: "TestNoWindowHoldsMore", Seed: 272,
			Old: "moment.Stamp-openSeconds(c.grace)",
			New: "moment.Stamp",
		},
		{
			Name: "trusts slow round trips", File: "../internal/limiter/request.go", Test: "TestNoWindowHoldsMore", Seed: 1172,
			Old: "if elapsed := now.Sub(m.Now); elapsed > grace/2 {",
			New: "if grace *= 1000; now.Sub(m.Now) > grace/2 {",
		},
		{
			Name: "hits of a batch do not count for later ones", File: "../internal/limiter/decide.go", Test: "TestNoWindowHoldsMore",
			Old: "u.ahead = u.counter.taken",
			New: "u.ahead = 0",
		},
		{
			Name: "admitted hits are rolled back, too", File: "session.go", Test: "TestNoWindowHoldsMore",
			Old: "over := s.added - stays(s.hits)",
			New: "over := s.added",
		},
		{
			Name: "a rollback forgets one of the cost", File: "session.go", Test: "TestCalm",
			Old: "over := s.added - stays(s.hits)",
			New: "over := max(s.added-stays(s.hits)-1, 0)",
		},
		{
			Name: "a search ends at hours", File: "search.go", Test: "TestCalm",
			Old: "if q.found.Level == q.of.finest ||",
			New: "if q.found.Level <= Hour ||",
		},
		{
			Name: "a full limit denies one too early", File: "session.go", Test: "TestCalm",
			Old: "count := l.hi + ahead\n",
			New: "count := l.hi + ahead + 1\n",
		},
	})
}
