package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/limiter/engine"
)

func TestLevels(t *testing.T) {
	for level := engine.Second; level <= engine.Day; level++ {
		parsed, err := engine.ParseLevel(level.String())
		require.NoError(t, err)
		assert.Equal(t, level, parsed)
		for _, second := range []int64{-86401, -1, 0, 1, 59, 60, 3600, 1_800_000_000} {
			first := level.Of(second) * level.Seconds()
			assert.LessOrEqual(t, first, second)
			assert.Less(t, second-first, level.Seconds())
		}
	}
	assert.EqualValues(t, -1, engine.Minute.Of(-1), "before 1970 intervals do not meet at zero")
	_, err := engine.ParseLevel("week")
	require.ErrorContains(t, err, "second, minute, hour, day")
}
