package compare

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// The judge finds what a second one finds that sums each window of all admissions anew.
func TestTheJudgeIsJust(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for step, features := range map[int64]int{second: 1, 1: 3} {
		for range 30 {
			l := limit{1 + rng.Int64N(6), (1 + rng.Int64N(20)) * second}
			j := judge{limit: l, features: map[string]*exactlog.Log{}}
			var want Row
			logs := make([][]moment, features)
			names := []string{"a", "b", "c"}
			for _, m := range hitsOf(rng, l, step) {
				who, admitted := rng.IntN(features), rng.IntN(3) > 0
				fits := textbookLog(l, logs[who], m.at, m.cost)
				switch {
				case admitted:
					logs[who] = append(logs[who], m)
					want.Admitted++
					if !fits {
						want.WrongAdmissions++
					}
				default:
					want.Denied++
					if fits {
						want.WrongDenials++
					}
				}
				j.see(names[who], m.at, m.cost, admitted)
			}
			for _, log := range logs {
				for _, end := range log {
					held := costWhere(log, func(at int64) bool { return at > end.at-l.window && at <= end.at })
					want.MostInAWindow = max(want.MostInAWindow, held)
				}
			}
			require.Equal(t, want, j.row)
			assert.Positive(t, want.WrongAdmissions+want.WrongDenials)
		}
	}
}
