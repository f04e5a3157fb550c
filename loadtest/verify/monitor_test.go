package verify

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/fleet"
)

// A process that has more goroutines or memory than before is named.
func TestWhatStaysBehind(t *testing.T) {
	var goroutines int
	var heap int64
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "go_goroutines %d\ngo_memstats_next_gc_bytes %d\ngo_gc_gogc_percent 100\n", goroutines, 2*heap)
	}))
	defer process.Close()
	s := &Soak{fleet: &fleet.Fleet{Processes: []fleet.Process{{Admin: process.Listener.Addr().String()}}}}
	_, err := s.measure()
	require.ErrorContains(t, err, "lacks goroutines")
	s.Before = []Usage{{10, 4 << 20}}
	for _, c := range []struct {
		goroutines int
		heap       int64
		wrong      string
	}{
		{16, 13 << 20, ""}, {17, 13 << 20, "process 0 has 17 goroutines, and had 10"}, {16, 13<<20 + 1, "process 0: the live heap grew from"},
	} {
		goroutines, heap = c.goroutines, c.heap
		err := s.settled(6)
		if assert.Equal(t, c.wrong == "", err == nil, "%v", c); err != nil {
			require.ErrorContains(t, err, c.wrong)
		}
		assert.Equal(t, []Usage{{c.goroutines, c.heap}}, s.After)
	}
}
