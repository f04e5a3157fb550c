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

func TestQuestionsLieWithinTheRetention(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		retention := 1 + random.Int64N(100_000)
		window := 1 + random.Int64N(retention)
		const end = 1_000_000
		now := end + random.Int64N(100)
		seconds := make([]int64, random.IntN(10))
		for i := range seconds {
			seconds[i] = end - random.Int64N(retention)
		}
		slices.Sort(seconds)
		moments := random.IntN(5)
		questions := questionsOf([]int64{window}, retention, end, now, moments, seconds)
		require.NotEmpty(t, questions)
		require.LessOrEqual(t, len(questions), moments+1)
		for _, q := range questions {
			require.Equal(t, window, q.window)
			if q.now {
				require.Len(t, questions, 1)
				continue
			}
			require.GreaterOrEqual(t, q.begins(), now-retention+margin(retention, windowMargin)+1)
			require.LessOrEqual(t, q.at, int64(end))
		}
	}
}
