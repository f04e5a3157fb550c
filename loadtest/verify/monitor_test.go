package verify

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/fleet"
)

// Slow calls are believed where most loads have one.
func TestSlowLoads(t *testing.T) {
	const good, bad = time.Second, 3 * time.Second
	for _, c := range []struct {
		slowest []time.Duration
		wrong   bool
	}{
		{slowest: []time.Duration{good, good, good}},
		{slowest: []time.Duration{bad}},
		{slowest: []time.Duration{bad, good, good}},
		{slowest: []time.Duration{bad, bad}, wrong: true},
		{slowest: []time.Duration{bad, good, bad}, wrong: true},
	} {
		s := &Soak{fleet: &fleet.Fleet{}, Longest: 2 * time.Second}
		for _, slowest := range c.slowest {
			s.loaded(slowest)
		}
		assert.Equal(t, c.wrong, len(s.wrong()) > 0, "%v", c.slowest)
	}
}

// Memory that stays behind is found in a run that was not interrupted.
func TestWhatStaysBehind(t *testing.T) {
	s := &Soak{fleet: &fleet.Fleet{Processes: make([]*child.Child, 2)}}
	for _, samples := range [][][]int64{{{3 << 20, 7}, {1 << 20, 7}, {2 << 20, 7}}, {{4, 7}}, {{1, 7}, {20 << 20, 7}, {20 << 20, 7}}} {
		require.Empty(t, s.wrong(), "it is not over")
		s.samples = samples
		s.loaded(0)
	}
	wrong := s.wrong()
	require.Len(t, wrong, 1)
	require.ErrorContains(t, wrong[0], "process 0: the live heap grew")
	assert.Equal(t, [][]int64{{2 << 20, 7}, {4, 7}, {20 << 20, 7}}, s.Heap, "the medians of each load")
}

// A process that has more goroutines than in the beginning is named.
func TestGoroutinesThatStay(t *testing.T) {
	goroutines := 0
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "go_goroutines %d\ngo_memstats_next_gc_bytes 8e6\ngo_gc_gogc_percent 100\n", goroutines)
	}))
	defer process.Close()
	s := &Soak{servers: 3, fleet: &fleet.Fleet{Processes: []*child.Child{{Addr: process.Listener.Addr().String()}}}}
	_, _, err := s.measure()
	require.ErrorContains(t, err, "lacks goroutines")
	goroutines = 10
	require.NoError(t, s.begin(t.Context()))
	goroutines = 16
	require.NoError(t, s.settled())
	goroutines = 17
	require.ErrorContains(t, s.settled(), "process 0 has 17 goroutines, and had 10")
	assert.Equal(t, []int{17}, s.GoroutinesAfter)
}

// The report says what an interrupt left out.
func TestTheRowsOfASoak(t *testing.T) {
	var text bytes.Buffer
	soak := &Soak{GoroutinesBefore: []int{22, 22}}
	soak.rows(func(name, format string, args ...any) { fmt.Fprintf(&text, name+": "+format+"\n", args...) })
	assert.Contains(t, text.String(), "[22 22] before, not compared in the end")
}
