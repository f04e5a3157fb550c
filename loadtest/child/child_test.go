package child_test

import (
	"bufio"
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/child"
)

// A program that was killed is started again where it was.
func TestAProgramIsStartedAgain(t *testing.T) {
	path, err := exec.LookPath("memcached")
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	p := child.Memcached(path, "-t", "1")
	c, err := child.Start(t.Context(), p)
	require.NoError(t, err)
	defer func() { c.Kill() }()
	require.NoError(t, c.Alive())
	c.Kill()
	require.ErrorContains(t, c.Alive(), "has ended")
	require.NoError(t, c.Stop(), "it is over")
	again, err := child.StartAt(t.Context(), p, c.Addr)
	require.NoError(t, err)
	defer again.Kill()
	assert.Equal(t, c.Addr, again.Addr)
	assert.NotEqual(t, c.PID(), again.PID())
}

// A command whose caller is interrupted may clean up, and is over.
func TestACommandIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := child.Command(ctx, "sh", "-c", "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	assert.Equal(t, "ready", lines.Text())
	cancel()
	require.True(t, lines.Scan())
	assert.Equal(t, "cleaned", lines.Text())
	assert.ErrorContains(t, cmd.Wait(), "exit status 3")
}
