package replay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuestionsOf(t *testing.T) {
	const day, now = 86400, 1_000_000
	assert.Equal(t, []question{
		{window: day, at: now, now: true},
		{window: 3600, at: now - day + windowMargin + 3600},
		{window: 3600, at: now - 5 - (now-5-(now-day+windowMargin+3600))/2},
		{window: 3600, at: now - 5},
	}, questionsOf([]int64{3600, day}, day, now-5, now, 2, nil), "evenly, the oldest first; a day as of now")

	assert.Equal(t, []question{{window: 60, at: now}}, questionsOf([]int64{60, 60}, day, now, now, 0, nil), "no past moments")

	assert.Equal(t, []question{{window: day - 5, at: now, now: true}},
		questionsOf([]int64{day - 5}, day, now, now, 3, nil), "nearly the retention")
}

func TestNear(t *testing.T) {
	seconds := []int64{100, 110, 200}
	for name, c := range map[string]struct{ at, earliest, behind, want int64 }{
		"on an event":               {105, 50, 0, 100},
		"just on it":                {110, 50, 0, 110},
		"on the one behind":         {105, 102, 0, 110},
		"just before one":           {105, 50, -1, 99},
		"a window's length behind":  {160, 50, 59, 159},
		"none early enough":         {60, 50, 0, 100},
		"none early or late enough": {190, 180, 60, 190},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, near(c.at, c.earliest, 199, c.behind, seconds))
		})
	}
	assert.EqualValues(t, 7, near(7, 1, 9, 0, nil))
}

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

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		from, to, window, step, earliest, latest int64
		want                                     bool
	}{
		"exact":                 {941, 1000, 60, 1, 1000, 1000, true},
		"begins early":          {940, 1000, 60, 1, 1000, 1000, false},
		"begins late":           {942, 1000, 60, 1, 1000, 1000, false},
		"shifted":               {942, 1001, 60, 1, 1000, 1000, false},
		"now, a second later":   {942, 1001, 60, 1, 1000, 1001, true},
		"now, too late":         {943, 1002, 60, 1, 1000, 1001, false},
		"minutes":               {900, 1019, 60, 60, 1000, 1000, true},
		"minutes, aligned":      {960, 1019, 60, 60, 1019, 1019, true},
		"minutes, not rounded":  {941, 1000, 60, 60, 1000, 1000, false},
		"minutes, one too many": {840, 1019, 60, 60, 1000, 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, answers(c.from, c.to, c.window, c.step, c.earliest, c.latest))
		})
	}
}
