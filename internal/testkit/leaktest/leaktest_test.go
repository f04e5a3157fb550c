package leaktest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that returns what was reported to it, and whose end its own test
// decides.
type recorder struct {
	testing.TB
	cleanups []func()
	faults   int
}

func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.faults++ }
func (r *recorder) Failed() bool          { return false }

func (r *recorder) end() {
	for i := range r.cleanups {
		r.cleanups[len(r.cleanups)-1-i]()
	}
}

func TestCheck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	leak := func() { <-release }
	go leak() // of another test

	clean := &recorder{TB: t}
	leaktest.Check(clean)
	leaktest.Check(clean)
	assert.Len(t, clean.cleanups, 1, "the second check is of no use")
	done := make(chan struct{})
	go func() { <-done }()
	clean.Cleanup(func() { close(done) })
	clean.end()
	assert.Zero(t, clean.faults)

	bubble.Test(t, func(t *testing.T) { // it waits for a while
		release := make(chan struct{})
		defer close(release)
		leaking := &recorder{TB: t}
		leaktest.Check(leaking)
		go func() { <-release }()
		leaking.end()
		assert.Equal(t, 1, leaking.faults)
	})
}

func TestCheckOfParts(t *testing.T) {
	leaktest.Check(t)
	t.Run("part", func(t *testing.T) {
		r := &recorder{TB: t}
		leaktest.Check(r)
		assert.Empty(t, r.cleanups, "the whole is checked")
	})
	t.Run("part", func(*testing.T) {})
}
