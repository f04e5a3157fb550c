package soak

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/builttest"
	"github.com/counterd/counterd/loadtest/process"
)

// counterd is the program, built once.
var counterd string

func TestMain(m *testing.M) { builttest.Main(m, func(path string) { counterd = path }) }

// soakFor is a config for a short soak with few callers.
func soakFor() Config {
	return Config{Duration: 6 * time.Second, Callers: 4, Counterd: counterd, Memcached: "memcached", Seed: 1}
}

// A server is killed and comes back, and nothing is wrong.
func TestAShortSoak(t *testing.T) {
	config := soakFor()
	config.slack = time.Minute // what is wrong here is not that the machine is busy
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Empty(t, report.Faults)
	assert.Positive(t, report.Kills)
	assert.Positive(t, report.Acknowledged)
	assert.Positive(t, report.Denied)
	assert.Zero(t, report.Lost)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "servers killed")
	assert.NotContains(t, text.String(), "WRONG")
	t.Logf("\n%s", &text)
}

// What is counted too little, or too much, what was admitted beyond a limit, and what
// stays behind is found.
func TestWhatIsWrongIsFound(t *testing.T) {
	config := soakFor()
	s, err := newStage(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	c := newCallers(s)
	for user := range 20 {
		c.call(s.clients[0], wide, user)
		c.call(s.clients[1], count, user)
	}
	all, faults := c.compare(t.Context())
	require.Empty(t, faults)
	assert.Equal(t, sums{acknowledged: 40}, all)

	c.told[count][3].Acknowledge(1)
	_, err = s.clients[0].Increment(t.Context(), "count", nameOf(4), 1, time.Time{})
	require.NoError(t, err)
	second := time.Now().Unix()
	for range 11 {
		c.told[narrow][5].Admit(second, 1)
	}
	all, faults = c.compare(t.Context())
	assert.Len(t, faults, 4, "the last one is lost too")
	assert.Equal(t, int64(12), all.lost)
	assert.Equal(t, int64(1), all.excess)

	slow := []time.Duration{timeout + 2*defaultSlack, timeout + 2*defaultSlack}
	r := &run{config: config, stage: s, callers: c, killer: &killer{}, slow: slow, samples: [][]int64{{1 << 20, 1 << 20, 20 << 20}, {1, 1, 1}}, baseline: []int{1000, 1000}}
	report, err := r.judge(t.Context())
	require.NoError(t, err)
	assert.Len(t, report.Faults, 6)
	assert.Contains(t, report.Faults[0], "a call took 3s")
	assert.Contains(t, report.Faults[5], "process 0: the live heap grew")
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "WRONG")
}

// A call that takes too long is one trial of the bound: callers call again, and it is broken
// where that happens in two of at most three rounds.
func TestASlowCallIsRepeatedBeforeItIsBelieved(t *testing.T) {
	const good, bad = timeout, timeout + 2*defaultSlack
	for _, c := range []struct {
		slow           []time.Duration
		another, wrong bool
	}{
		{slow: []time.Duration{good}},
		{slow: []time.Duration{bad}, another: true},
		{slow: []time.Duration{bad, good}, another: true},
		{slow: []time.Duration{bad, bad}, wrong: true},
		{slow: []time.Duration{bad, good, good}},
		{slow: []time.Duration{bad, good, bad}, wrong: true},
	} {
		r := &run{slow: c.slow}
		assert.Equal(t, c.another, r.another(), "%v", c.slow)
		r.judgeSlowest()
		assert.Equal(t, c.wrong, len(r.report.Faults) > 0, "%v", c.slow)
		r.report.Duration = time.Second
		var text bytes.Buffer
		require.NoError(t, r.report.WriteText(&text))
		assert.Equal(t, c.slow[0] == bad, strings.Contains(text.String(), "too long in"), "%v", c.slow)
	}
}

// Where every call is too slow, there is a second round, and then the fault is believed.
func TestRoundsOfASoak(t *testing.T) {
	config := soakFor()
	config.Duration, config.slack = MinDuration, 1-timeout
	var progress bytes.Buffer
	config.Progress = &progress
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, 2, report.Rounds)
	assert.Equal(t, 2, report.SlowRounds)
	require.Len(t, report.Faults, 1)
	assert.Contains(t, report.Faults[0], "in 2 of 2 rounds of load one took more than 1ns")
	assert.GreaterOrEqual(t, report.Duration, 2*MinDuration)
	assert.Contains(t, progress.String(), "callers call for 5s once more")
}

// What others than the soak take of the machine is in its report.
func TestABusyMachineIsSaid(t *testing.T) {
	s, err := newStage(t.Context(), soakFor())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	r := &run{stage: s}
	before, ownBefore := r.used()
	s.Servers[0].Kill()
	after, ownAfter := r.used()
	assert.GreaterOrEqual(t, after.Total, before.Total)
	assert.GreaterOrEqual(t, ownAfter, ownBefore, "what was killed is not forgotten")
	for _, c := range []struct {
		machine *process.Share
		said    bool
	}{{nil, false}, {&process.Share{Programs: 1, Others: 0.2}, false}, {&process.Share{Programs: 0.8, Others: 0.2, Stolen: 0.1}, true}} {
		var text bytes.Buffer
		require.NoError(t, (&Report{Duration: time.Second, Machine: c.machine}).WriteText(&text))
		assert.Equal(t, c.said, strings.Contains(text.String(), "this machine was busy"))
	}
}

// One who ends it waits for no server to be mended, and gets a report of what was told until
// then.
func TestInterrupted(t *testing.T) {
	s, err := newStage(t.Context(), soakFor())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := &killer{stage: s, callers: newCallers(s), rng: rand.New(rand.NewPCG(1, 2)), pace: time.Second}
	require.ErrorIs(t, k.kill(ctx), context.Canceled)
	c := newCallers(s)
	for user := range 20 {
		c.call(s.clients[0], wide, user)
	}
	c.told[count][3].Acknowledge(1)
	r := &run{config: soakFor(), stage: s, callers: c, killer: k, baseline: []int{22, 22}, samples: make([][]int64, processes)}
	report, err := r.judge(ctx)
	require.NoError(t, err)
	assert.True(t, report.Interrupted)
	assert.Equal(t, int64(21), report.Acknowledged)
	assert.Equal(t, int64(1), report.Lost, "with a server away")
	assert.Len(t, report.Faults, 1)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "interrupted: what was seen until then is judged")
	assert.Contains(t, text.String(), "[22 22] before, at most 0, not compared in the end")

	// After as much as the shortest run takes memory is compared.
	r.report = Report{Duration: MinDuration}
	r.samples = [][]int64{{1 << 20, 1 << 20, 20 << 20}, {1, 1, 1}}
	report, err = r.judge(ctx)
	require.NoError(t, err)
	assert.Len(t, report.Faults, 2)
	assert.Len(t, report.Heap, processes)
}

func TestGrowth(t *testing.T) {
	first, last := growth([]int64{3, 1, 2, 9, 9, 9, 5, 50, 6})
	assert.Equal(t, int64(2), first)
	assert.Equal(t, int64(6), last)
	first, last = growth([]int64{7})
	assert.Equal(t, int64(7), first)
	assert.Equal(t, int64(7), last)
}

func TestWhatCannotBeRun(t *testing.T) {
	for want, config := range map[string]Config{
		"at least 5s": {Duration: time.Second, Counterd: "true", Memcached: "true"},
		"-1 callers":  {Callers: -1, Counterd: "true", Memcached: "true"},
		"no-such":     {Counterd: "no-such-program", Memcached: "true"},
		"has ended":   {Counterd: "true", Memcached: "true"},
	} {
		_, err := Run(t.Context(), config)
		assert.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	config := soakFor()
	_, err := Run(ctx, config)
	require.Error(t, err)
}
