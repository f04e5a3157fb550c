package soak

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soakFor is a config for a short soak with few callers.
func soakFor(t *testing.T) Config {
	t.Helper()
	counterd := filepath.Join(t.TempDir(), "counterd")
	out, err := exec.Command("go", "build", "-o", counterd, "../../cmd/counterd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return Config{Duration: 6 * time.Second, Callers: 4, Counterd: counterd, Memcached: "memcached", Seed: 1}
}

// A server is killed and comes back, and nothing is wrong.
func TestAShortSoak(t *testing.T) {
	report, err := Run(t.Context(), soakFor(t))
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
	config := soakFor(t)
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
	for range 11 {
		c.told[narrow][5].Admit(time.Now().Unix()/2*2, 1)
	}
	all, faults = c.compare(t.Context())
	assert.Len(t, faults, 4, "the last one is lost too")
	assert.Equal(t, int64(12), all.lost)
	assert.Equal(t, int64(1), all.excess)

	r := &run{config: config, stage: s, callers: c, killer: &killer{}, samples: [][]int64{{1 << 20, 1 << 20, 20 << 20}, {1, 1, 1}}, baseline: []int{1000, 1000}}
	report, err := r.judge(t.Context())
	require.NoError(t, err)
	assert.Len(t, report.Faults, 5)
	assert.Contains(t, report.Faults[4], "process 0: the live heap grew")
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "WRONG")
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
	config := soakFor(t)
	_, err := Run(ctx, config)
	require.Error(t, err)
}
