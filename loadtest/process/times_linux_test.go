package process

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimesOf(t *testing.T) {
	got, err := timesOf("cpu  100 20 30 4000 500 6 7 80 90 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	require.NoError(t, err)
	assert.Equal(t, Times{Busy: 1630 * time.Millisecond, Stolen: 800 * time.Millisecond, Total: 47430 * time.Millisecond}, got)
	for _, text := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		_, err := timesOf(text)
		assert.Error(t, err, "%q", text)
	}
}
