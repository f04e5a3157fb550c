package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/arrival"
)

// A slot is a second long, the last one until the last answer.
func TestTheLengthsOfSlots(t *testing.T) {
	for name, c := range map[string]struct {
		seen, elapsed time.Duration
		want          []float64
	}{
		"nothing follows":  {1500 * time.Millisecond, 10 * time.Second, []float64{1, 1}},
		"a little follows": {2001 * time.Millisecond, 2002 * time.Millisecond, []float64{1, 1, 0.002}},
		"much follows":     {2700 * time.Millisecond, 2701 * time.Millisecond, []float64{1, 1, 0.701}},
		"all is short":     {5 * time.Millisecond, 10 * time.Millisecond, []float64{0.01}},
	} {
		line := newTimeline()
		line.at(c.seen).answered++
		slots := line.report(arrival.Constant(1), 0, c.elapsed)
		require.Len(t, slots, len(c.want), name)
		var answered int64
		for i, s := range slots {
			assert.InDelta(t, c.want[i], s.Seconds, 1e-9, name)
			answered += s.Answered
		}
		assert.EqualValues(t, 1, answered, name)
	}
}
