package backend

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/store/storetest"
)

// An embedded store that evicts counters because memory is full logs so, and how many.
func TestEvictionsAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := settings.Default()
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	backend, err := Open(t.Context(), s, Config{})
	require.NoError(t, err)
	fill := func(n int) {
		name := strings.Repeat("x", 1<<20) // few of these take much memory
		for i := range n {
			_, err := storetest.Trip(t.Context(), backend, fmt.Sprint(i, name), 1, []uint64{1}, []int64{time.Now().Unix() + 3600}, nil, make([]int64, 1))
			require.NoError(t, err)
		}
	}
	fill(100)
	assert.NotContains(t, log.String(), "full")
	fill(400)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Regexp(t, `evicted=[1-9]`, log.String())
	assert.LessOrEqual(t, strings.Count(log.String(), "full"), 10, "once a second")
}
