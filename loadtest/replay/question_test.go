package replay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever edge of its windows a server has wrong, by a second, one of the
// default questions shows it, if events are far enough from the ends of the log.
func TestQuestionsTouchEveryEdge(t *testing.T) {
	const day, end = 86400, 1_000_000
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		seconds := []int64{end}
		for range 1 + random.IntN(20) {
			seconds = append(seconds, end-day/2+random.Int64N(60))
		}
		slices.Sort(seconds)
		for _, window := range []int64{1, 60, 900, 3600, 21600} {
			events := func(at int64) bool { return slices.Contains(seconds, at) }
			var first, before, last, behind bool
			for _, q := range questionsOf([]int64{window}, day, end, end+3, pastMoments, seconds) {
				first = first || events(q.begins())
				before = before || events(q.begins()-1)
				last = last || events(q.at)
				behind = behind || events(q.at+1)
			}
			require.True(t, first && before && last && behind, "%d %v", window, seconds)
		}
	}
}
