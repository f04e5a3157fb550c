package verify

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/fleet"
)

// One slow call repeats the load, and is believed where most of at most three loads have one.
func TestASlowCallIsRepeatedBeforeItIsBelieved(t *testing.T) {
	const good, bad = time.Second, 3 * time.Second
	for _, c := range []struct {
		slow             []time.Duration
		undecided, wrong bool
	}{
		{slow: []time.Duration{good}},
		{slow: []time.Duration{bad}, undecided: true},
		{slow: []time.Duration{bad, good}, undecided: true},
		{slow: []time.Duration{bad, bad}, wrong: true},
		{slow: []time.Duration{bad, good, good}},
		{slow: []time.Duration{bad, good, bad}, wrong: true},
	} {
		m, undecided := &monitor{fleet: &fleet.Fleet{}, longest: 2 * time.Second}, false
		for _, slowest := range c.slow {
			undecided = m.loaded(slowest)
		}
		assert.Equal(t, c.undecided, undecided, "%v", c.slow)
		soak, wrong := m.finish(t.Context(), true)
		assert.Equal(t, c.wrong, len(wrong) > 0, "%v", c.slow)
		assert.Equal(t, c.slow[0] == bad, soak.SlowLoads > 0, "%v", c.slow)
	}
}

// What stays behind is found: memory in a run that was long enough, and goroutines in one that
// was not interrupted.
func TestWhatStaysBehind(t *testing.T) {
	m := &monitor{fleet: &fleet.Fleet{}, heap: [][]int64{{3 << 20, 1 << 20, 2 << 20, 4, 4, 4, 1, 20 << 20, 20 << 20}, {7}}}
	soak, wrong := m.finish(t.Context(), true)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "process 0: the live heap grew")
	assert.Equal(t, []Heap{{2 << 20, 20 << 20}, {7, 7}}, soak.Heap, "the medians of the first third and of the last")
	_, wrong = m.finish(t.Context(), false)
	assert.Empty(t, wrong)
}

// A process that has more goroutines than before is named.
func TestGoroutinesThatStay(t *testing.T) {
	m := &monitor{servers: 3, soak: Soak{GoroutinesBefore: []int{10, 10}, GoroutinesAfter: []int{16, 10}}}
	require.NoError(t, m.compare())
	m.soak.GoroutinesAfter = []int{10, 17}
	assert.ErrorContains(t, m.compare(), "process 1 has 17 goroutines, and had 10")
}

// The report says what an interrupt left out.
func TestTheRowsOfASoak(t *testing.T) {
	var text bytes.Buffer
	soak := &Soak{GoroutinesBefore: []int{22, 22}}
	soak.rows(func(name, format string, args ...any) { fmt.Fprintf(&text, name+": "+format+"\n", args...) })
	assert.Contains(t, text.String(), "[22 22] before, at most 0, not compared in the end")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	soak, wrong := (&monitor{fleet: &fleet.Fleet{}}).finish(ctx, true)
	assert.Empty(t, wrong)
	assert.Nil(t, soak.GoroutinesAfter)
}
