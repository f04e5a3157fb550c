package events_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Each row keeps to what engines take for granted.
func TestSecondsAround(t *testing.T) {
	for _, name := range events.AlgorithmNames() {
		a, known := events.AlgorithmByName(name)
		require.True(t, known)
		if a.Around == nil {
			continue // it does not count by windows
		}
		for _, length := range []int64{1, 2, 7, 10, 60} {
			slides := true
			for second := -3 * length; second < 3*length; second++ {
				first, last := a.Around(second, length, nil)
				slides = slides && second-first == length-1
				require.LessOrEqual(t, first, second, name)
				require.GreaterOrEqual(t, last, second, name)
				require.Less(t, second-first, length, name)
				require.Less(t, last-second, length, name)
				for other := second - 2*length; other < second+2*length; other++ {
					f, l := a.Around(other, length, nil)
					require.Equal(t, first <= other && other <= last, f <= second && second <= l, "%s: %d and %d", name, second, other)
				}
			}
			require.Equal(t, slides, events.Windows{Algorithm: a, Length: length}.Slides(), "%s, %d", name, length)
		}
	}
}
