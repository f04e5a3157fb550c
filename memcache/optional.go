package memcache

import (
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/memproto"
)

// restFor is how long a server is not asked for what it does not answer.
const restFor = time.Minute

// optional is what not every server answers, nor every proxy. It is safe for concurrent use.
type optional struct {
	failed atomic.Bool
	rest   atomic.Pointer[time.Time] // until when it is not asked for; nil: it was never refused
}

func (o *optional) rests() bool {
	until := o.rest.Load()
	return until != nil && time.Now().Before(*until)
}

// note notes what came of asking for it: it rests after a refusal, or two failures.
func (o *optional) note(err error) {
	if err == nil {
		o.failed.Store(false)
	} else if !memproto.IsOutage(err) || o.failed.Swap(true) {
		until := time.Now().Add(restFor)
		o.rest.Store(&until)
	}
}
