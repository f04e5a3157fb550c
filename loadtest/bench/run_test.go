package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/loadtest/process"
)

// asNothing makes the test binary be the server that does nothing.
const asNothing = "COUNTERD_TEST_AS_NOTHING"

func TestMain(m *testing.M) {
	if os.Getenv(asNothing) != "" {
		if err := ServeNothing(context.Background(), os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(built)
		os.Exit(status)
	}))
}

var built string // the folder of counterd, once it is built

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
		Rounds: 2, Duration: 10 * time.Millisecond, Counterd: counterd, DoNothing: []string{os.Args[0]},
		sizes: sizes{addresses: 200, full: 20, counted: 2000, timeout: 10 * time.Second},
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

// steps counts what a run says of its progress.
type steps struct{ announced, done atomic.Int64 }

func (s *steps) Start(_ string, n int) { s.announced.Add(int64(n)) }
func (s *steps) Add(n int)             { s.done.Add(int64(n)) }

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
		assert.Equal(t, r.halfOf != "", row.Latency != nil, r.id)
		if process.Known {
			assert.Positive(t, *row.ClientCPU, r.id)
		}
	}
	// What a row costs adds up to what it does.
	row := func(id string) *Row {
		return &report.Rows[slices.IndexFunc(report.Rows, func(r Row) bool { return r.ID == id })]
	}
	assert.Equal(t, 1.0, *row("A4").Trips, "a caller shares no trips")
	for _, id := range []string{"A3", "A4", "A5", "A6"} {
		assert.LessOrEqual(t, *row(id).Trips, 1.0, id)
		assert.InDelta(t, 4.0**row(id).Trips, *row(id).Adds, 1e-9, id)
		assert.GreaterOrEqual(t, *row(id).Allocs, 0.0, id)
	}
	assert.Less(t, *row("A6").Trips, 0.9, "those who wait on one counter share trips")
	for _, id := range []string{"A1", "A2"} {
		assert.Equal(t, 3.0, *row(id).Adds, id)
		assert.GreaterOrEqual(t, *row(id).Trips, 4.0, id)
	}
	for _, id := range []string{"A1", "C1", "C2", "C3", "C7", "C8", "C9"} {
		assert.Equal(t, 142.0, *row(id).Reads, id)
	}
	for _, id := range []string{"B2", "B4", "B7", "B11"} {
		assert.GreaterOrEqual(t, *row(id).Adds, 0.04, id)
		assert.Positive(t, *row(id).Bytes, id)
	}
	for _, id := range []string{"B1", "B6", "A12"} {
		assert.Nil(t, row(id).Bytes, id)
		assert.Nil(t, row(id).MemcachedCPU, id)
	}
	for _, id := range []string{"B1", "B2", "B12"} {
		if process.Known {
			assert.Positive(t, *row(id).ServerCPU, id)
		}
		assert.Nil(t, row(id).Allocs, id)
	}
	assert.Equal(t, row("B12").Latency.Rate, row("B13").Latency.Rate)
	assert.InDelta(t, row("B2").PerSecond.Median/2, row("B13").Latency.Rate, 1e-6)
}

// Interrupted before a round is over, a run ends at once and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	config := small(t)
	config.Rounds, config.Duration = 100, time.Minute
	config.Rows = regexp.MustCompile("^B13 ")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config.Progress = stopAt{"http", cancel}
	_, err := Run(ctx, config)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, children(t))
}

// Interrupted later, it reports of the rounds that are over, and of the rows that had one.
func TestInterruptedAfterRounds(t *testing.T) {
	for name, c := range map[string]struct {
		rows string
		stop endAt
		want []string
	}{
		"between slices of a round": {"^A[123] ", endAt{stage: stageHits, steps: 3*3 + 2}, []string{"A1", "A2", "A3"}},
		"in the next stage":         {"^(A1|B1) ", endAt{stage: stageHTTP, steps: 0}, []string{"A1"}},
		"before the open model":     {"^B13 ", endAt{stage: stageHTTP + ", open model", steps: 1}, []string{"B1", "B2"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := small(t)
			config.Rounds, config.Duration, config.Rows = 100, time.Millisecond, regexp.MustCompile(c.rows)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.stop.end = cancel
			config.Progress = &c.stop
			report, err := Run(ctx, config)
			require.NoError(t, err)
			assert.Empty(t, children(t))
			var got []string
			for _, row := range report.Rows {
				got = append(got, row.ID)
			}
			assert.Equal(t, c.want, got)
			assert.True(t, report.Interrupted)
			var text bytes.Buffer
			require.NoError(t, report.WriteText(&text))
			assert.Contains(t, text.String(), fmt.Sprintf("Interrupted: there are %d of %d rows", len(c.want), report.Wanted))
		})
	}
}

// endAt ends a run when so many steps of a stage are over.
type endAt struct {
	stage string
	steps int
	end   func()

	now  string
	done int
}

func (e *endAt) Start(stage string, _ int) {
	e.now, e.done = stage, 0
	e.Add(0)
}

func (e *endAt) Add(n int) {
	if e.done += n; e.now == e.stage && e.done == e.steps {
		e.end()
	}
}

// Rows of a turn are compared in the rounds that all have had.
func TestEvenOut(t *testing.T) {
	rows := []*measurement{{rates: []float64{1, 2, 3}, open: make([]arrivals, 3)}, {rates: []float64{4, 5}, open: make([]arrivals, 2)}}
	evenOut(rows)
	assert.Equal(t, []float64{1, 2}, rows[0].rates)
	assert.Len(t, rows[0].open, 2)
	assert.Equal(t, []float64{4, 5}, rows[1].rates)
	evenOut(nil)
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

func TestConfigIsChecked(t *testing.T) {
	good := Config{Rounds: 1, Duration: time.Second, Rows: regexp.MustCompile("^A3 ")}
	require.NoError(t, good.Check())
	for want, spoil := range map[string]func(*Config){
		"rounds":             func(c *Config) { c.Rounds = 0 },
		"duration":           func(c *Config) { c.Duration = time.Hour },
		"no row":             func(c *Config) { c.Rows = regexp.MustCompile("nothing like it") },
		"counterd is needed": func(c *Config) { c.Rows = nil },
	} {
		bad := good
		spoil(&bad)
		assert.ErrorContains(t, bad.Check(), want)
		_, err := Run(t.Context(), bad)
		assert.ErrorContains(t, err, want)
	}
	pure := Config{Rounds: 1, Duration: time.Second, Rows: regexp.MustCompile("^[AC]")}
	assert.NoError(t, pure.Check(), "rows in this process need no counterd")
	t.Setenv("PATH", t.TempDir())
	assert.ErrorContains(t, good.Check(), "memcached is needed")
}

// What was done before an interrupt is looked at as all that was done is; what was not is not.
func TestInterruptedWorkIsVerified(t *testing.T) {
	for steps, want := range map[int]string{0: "", 1: "bench: X1, : not done"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		one := &measurement{row: row{id: "X1", prepare: func(context.Context, *stage, row) (*subject, error) {
			return &subject{
				begin:  func() ([]step, error) { return []step{func() (int, error) { return 1, nil }}, nil },
				verify: func(ctx context.Context) error { return errors.Join(errors.New("not done"), ctx.Err()) },
			}, nil
		}}}
		config := Config{Rounds: 3, Duration: time.Millisecond, Progress: &endAt{stage: "stage", steps: steps, end: cancel}, sizes: sizes{addresses: 1}}
		err := (&measurements{config: config, of: map[string]*measurement{"X1": one}}).runStage(ctx, "stage", []*measurement{one})
		assert.Len(t, one.rates, steps)
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
