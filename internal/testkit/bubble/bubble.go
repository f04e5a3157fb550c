// Package bubble runs tests in bubbles of [testing/synctest], as the race detector needs
// them.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test runs f in a bubble, as [synctest.Test] does; under the race detector on one
// processor. On several of them the detector breaks off now and then, with a signal or a
// failed CHECK of its own: all timers of a bubble run as one thread of the detector's,
// and two processors that run two of them at once spoil it (golang.org/issue/78156). It
// finds the same races on one, for it looks at what happens before what, not at when.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if RaceDetector {
		oneProcessor.hold()
		defer oneProcessor.leave()
	}
	synctest.Test(t, f)
}

// oneProcessor is held by all bubbles of the process together: the number of processors
// is one for all.
var oneProcessor processors

// processors is how many processors there were before the first holder.
type processors struct {
	mu      sync.Mutex
	holders int
	before  int
}

func (p *processors) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == 0 {
		p.before = runtime.GOMAXPROCS(1)
	}
	p.holders++
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holders--
	if p.holders == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
