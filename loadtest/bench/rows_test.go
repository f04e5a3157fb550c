//go:build testall

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/loadtest/process"
)

// builtCounterd builds counterd, as it is run, once for all tests.
var builtCounterd = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "counterd-bench-test-"); err != nil {
		return "", err
	}
	return builttest.Counterd(built)
})

// small is a config of all rows that takes seconds.
func small(t *testing.T) Config {
	t.Helper()
	t.Setenv(asNothing, "1")
	counterd, err := builtCounterd()
	require.NoError(t, err)
	return Config{
		Rounds: 2, Duration: 10 * time.Millisecond, Counterd: counterd, DoNothing: []string{os.Args[0]}, Peer: startPeer(t),
		sizes: sizes{addresses: 200, full: 20, denied: 20, counted: 2000, timeout: 10 * time.Second},
	}
}

// children returns the processes that this one has started.
func children(t *testing.T) string {
	t.Helper()
	if !process.Known {
		return ""
	}
	var list strings.Builder
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			list.Write(text)
		}
	}
	return list.String()
}

// Every row runs, finds its work done, and leaves nothing behind.
func TestAllRows(t *testing.T) {
	config := small(t)
	var progress steps
	config.Progress = &progress
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Empty(t, children(t))
	assert.Equal(t, progress.announced.Load(), progress.done.Load())

	var out bytes.Buffer
	require.NoError(t, report.WriteText(&out))
	require.Len(t, report.Rows, len(allRows()))
	for i, r := range allRows() {
		row := report.Rows[i]
		require.Equal(t, r.id, row.ID)
		assert.Contains(t, out.String(), "| "+r.id+" ")
		assert.Contains(t, out.String(), r.name)
		assert.Positive(t, row.Operations, r.id)
		assert.Positive(t, row.PerSecond.Least, r.id)
		assert.LessOrEqual(t, row.PerSecond.Least, row.PerSecond.Median, r.id)
		assert.LessOrEqual(t, row.PerSecond.Median, row.PerSecond.Most, r.id)
		assert.Len(t, row.Ratios, len(r.against), r.id)
		if process.Known {
			assert.Positive(t, row.Costs["client_cpu_us"], r.id)
		}
	}
	// What a row costs adds up to what it does.
	rowOf := func(id string) Row {
		return report.Rows[slices.IndexFunc(report.Rows, func(r Row) bool { return r.ID == id })]
	}
	of := func(id string) costs { return rowOf(id).Costs }
	// beside is what a few things that come once in a while make of each operation.
	beside := func(id string, few float64) float64 { return few / float64(rowOf(id).Operations) }
	assert.Equal(t, 1.0, of("A4")["trips"], "a caller shares no trips")
	for _, id := range []string{"A3", "A4", "A5", "A6"} {
		assert.LessOrEqual(t, of(id)["trips"], 1.0, id)
		// Memcached counts an add twice that makes its item longer by a digit.
		assert.GreaterOrEqual(t, of(id)["adds"], 4*of(id)["trips"], id)
		assert.LessOrEqual(t, of(id)["adds"], 4.5*of(id)["trips"]+beside(id, 4*6), id) // of few trips each number grows as often
		assert.Contains(t, of(id), "allocs", id)
	}
	for _, id := range []string{"A15", "A16", "A17", "A18", "A20"} { // one rewrite of a log in many hits takes another
		assert.LessOrEqual(t, of(id)["trips"], 1.3+beside(id, 8), id)
		assert.LessOrEqual(t, of(id)["adds"], 2*of(id)["trips"], id)
	}
	assert.Greater(t, of("A19")["reads"], 142.0, "the whole window, and when it has room")
	assert.Equal(t, 1.0, of("C5")["trips"])
	assert.Less(t, of("A6")["trips"], 0.9, "those who wait on one counter share trips")
	for _, id := range []string{"A1", "A2"} {
		assert.GreaterOrEqual(t, of(id)["adds"], 3.0, id)
		assert.LessOrEqual(t, of(id)["adds"], 3.5, id)
		assert.GreaterOrEqual(t, of(id)["trips"], 4.0, id)
	}
	for _, id := range []string{"A1", "C1", "C2", "C3", "C7", "C8", "C9"} {
		assert.GreaterOrEqual(t, of(id)["reads"], 142.0, id)
		// A look reads up to some 70 items: the notes of clocks. There are up to four fleets, and two slices.
		assert.LessOrEqual(t, of(id)["reads"], 142+beside(id, 2*4*70), id)
	}
	for _, id := range []string{"B2", "B4", "B7", "B11"} {
		assert.GreaterOrEqual(t, of(id)["adds"], 0.04, id)
		assert.Positive(t, of(id)["bytes"], id)
	}
	for _, id := range []string{"B1", "B6", "A12"} {
		assert.NotContains(t, of(id), "bytes", id)
		assert.NotContains(t, of(id), "memcached_cpu_us", id)
	}
	for id, adds := range map[string]float64{"D2": 3, "D4": 12} { // of 64 calls, before each slice
		assert.GreaterOrEqual(t, of(id)["adds"], adds-beside(id, 2*64*adds), id)
		assert.Positive(t, of(id)["adds"], id)
	}
	assert.NotContains(t, of("D1"), "allocs")
	for _, id := range []string{"B1", "B2", "D2", "D4"} {
		if process.Known {
			assert.Positive(t, of(id)["server_cpu_us"], id)
		}
		assert.NotContains(t, of(id), "allocs", id)
	}
}

// An interrupted run ends at once, and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	config := small(t)
	config.Rounds, config.Duration = 100, time.Minute
	config.Rows = regexp.MustCompile("^B2 ")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config.Progress = stopAt{"http", cancel}
	report, err := Run(ctx, config)
	assert.Nil(t, report)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, children(t))
}

// stopAt calls stop a moment after a stage has begun.
type stopAt struct {
	stage string
	stop  func()
}

func (s stopAt) Start(stage string, _ int) {
	if stage == s.stage {
		time.AfterFunc(50*time.Millisecond, s.stop)
	}
}

func (stopAt) Add(int) {}

// A server that dies under way fails the run, which says which and where.
func TestAServerThatDies(t *testing.T) {
	if !process.Known {
		t.Skip("how to find the processes is known on Linux only")
	}
	config := small(t)
	config.Rounds, config.Duration = 100, time.Minute
	config.Rows = regexp.MustCompile("^B3 ")
	config.Progress = stopAt{"http", func() {
		var pid int
		for field := range strings.FieldsSeq(children(t)) {
			name, _ := os.ReadFile("/proc/" + field + "/comm")
			if strings.TrimSpace(string(name)) == "counterd" {
				fmt.Sscan(field, &pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}}
	// The first slice is of what does nothing; it is short, so that counterd's turn comes.
	config.Duration = 200 * time.Millisecond
	_, err := Run(t.Context(), config)
	assert.ErrorContains(t, err, "B3")
	assert.ErrorContains(t, err, "counterd has ended: signal: killed")
	assert.Empty(t, children(t))
}
