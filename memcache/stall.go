package memcache

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/memproto"
)

const (
	// A call that ran out of time proves nothing if the process did not run for a stallShare-th
	// of the timeout meanwhile, but at least for minStall.
	stallShare = 4
	minStall   = 10 * time.Millisecond
	// maxIgnoring bounds how long such timeouts are ignored while a server answers nothing: it
	// may be down although the process is starved all the time.
	maxIgnoring = 2 * time.Second
)

// stallDetector detects that the process did not run for a while: it was stopped, its quota of
// processor time was used up, or other processes had the processors. Its timers are late then, and
// it reads late what was answered in time.
type stallDetector struct {
	least time.Duration // the shortest stall
	tick  atomic.Int64  // the instant of the last tick
	ended atomic.Int64  // when the last stall ended
}

// start begins the detection, for calls with that timeout. It is called before run.
func (d *stallDetector) start(timeout time.Duration) {
	d.least = max(timeout/stallShare, minStall)
	now := memproto.Instant(time.Now())
	d.tick.Store(now)
	d.ended.Store(now - 1)
}

// run notes stalls until the channel is closed.
func (d *stallDetector) run(closing <-chan struct{}) {
	ticker := time.NewTicker(d.least / 2)
	defer ticker.Stop()
	for {
		select {
		case <-closing:
			return
		case <-ticker.C:
		}
		runtime.Gosched() // a goroutine that a timer wakes runs before the others that are ready
		now := memproto.Instant(time.Now())
		if d.overdue(now) {
			d.ended.Store(now)
		}
		d.tick.Store(now)
	}
}

func (d *stallDetector) overdue(now int64) bool { return now-d.tick.Load() > int64(d.least) }

// since reports whether this process was stalled at some time since that instant.
func (d *stallDetector) since(began int64) bool {
	return d.overdue(memproto.Instant(time.Now())) || d.ended.Load() >= began
}
