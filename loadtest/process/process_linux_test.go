package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/counterd/counterd/loadtest/process"
)

const asChild = "COUNTERD_TEST_PROCESS"

// TestMain lets the test's program be a child that works on request.
func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		beChild()
		return
	}
	goleak.VerifyTestMain(m)
}

const burned = 300 * time.Millisecond

// beChild waits for a line, burns CPU time, says how much the kernel counts for it, and waits
// for the end of its input.
func beChild() {
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	for begun := ownCPU(); ownCPU()-begun < burned; {
	}
	fmt.Println(ownCPU().Nanoseconds())
	_, _ = in.ReadString('\n')
}

// ownCPU is by getrusage, another door than the one under test.
func ownCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type child struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{cmd.Process.Pid, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return c
}

// What a child that burns a known CPU time takes is that.
func TestCPU(t *testing.T) {
	c := start(t)
	before, err := process.CPU(c.pid)
	require.NoError(t, err)
	_, err = io.WriteString(c.in, "\n")
	require.NoError(t, err)
	var said int64
	_, err = fmt.Fscanln(c.out, &said)
	require.NoError(t, err)
	after, err := process.CPU(c.pid)
	require.NoError(t, err)
	// It goes to sleep after that.
	assert.InDelta(t, said, after.Nanoseconds(), float64(50*time.Millisecond))
	assert.Greater(t, after-before, burned-10*time.Millisecond)
}

func TestMachine(t *testing.T) {
	before, err := process.Machine()
	require.NoError(t, err)
	assert.LessOrEqual(t, before.Busy+before.Stolen, before.Total)
	after, err := process.Machine()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after.Total, before.Total)
}
