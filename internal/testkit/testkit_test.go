package testkit

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// recorder is a test whose end is recorded instead of suffered.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

func record(t *testing.T, f func(testing.TB)) (r *recorder) {
	r = &recorder{TB: t}
	defer func() { _ = recover() }() // it is r itself
	f(r)
	return r
}

func TestByDefaultAShareIsTested(t *testing.T) {
	t.Setenv(Variable, "")
	require.False(t, All())
	assert.Less(t, Seeds(8000), uint64(500))
	assert.Equal(t, uint64(1), Seeds(3))
	assert.Equal(t, 6, Fifth(30))
	assert.Equal(t, time.Second, Lasting(time.Second, time.Minute))
}

func TestEverythingIsTestedWhereThatIsAskedFor(t *testing.T) {
	t.Setenv(Variable, "all")
	require.True(t, All())
	if bubble.RaceDetector {
		assert.Equal(t, uint64(40), Seeds(8000))
		assert.Equal(t, 6, Fifth(30))
	} else {
		assert.Equal(t, uint64(400), Seeds(8000))
		assert.Equal(t, 30, Fifth(30))
	}
	assert.Equal(t, time.Minute, Lasting(time.Second, time.Minute))
}

func TestAllSeedsAreTestedWhereThatIsAskedFor(t *testing.T) {
	t.Setenv(Variable, "seeds")
	require.True(t, All())
	assert.Equal(t, !bubble.RaceDetector, Thorough())
	if !bubble.RaceDetector {
		assert.Equal(t, uint64(8000), Seeds(8000))
	}
}

// A test is never left out because a program is missing.
func TestTool(t *testing.T) {
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	assert.Equal(t, bash, Tool(t, "", "there is no such program", "bash"))
	r := record(t, func(tb testing.TB) { Tool(tb, "apt-get install it", "there is no such program") })
	assert.Equal(t, "this test needs there is no such program: apt-get install it", r.failed)
}

func TestAStallIsSeen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := WatchStalls(t)
		time.Sleep(time.Second)
		assert.Zero(t, s.Longest())
		s.note(time.Minute)
		s.note(time.Second)
		assert.Equal(t, time.Minute, s.Longest())
	})
}
