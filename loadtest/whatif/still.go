package whatif

import (
	"context"
	"time"

	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
)

// clock is at a second of the log until it is set to another.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// timeout is that of the limiter. No time passes while it decides, so it needs none; and
// the shorter it is the sooner the limiter takes other hits for final: no other
// process is there to roll them back.
const timeout = time.Nanosecond

// patientStore is an embedded store that no deadline ends. Timeouts are of the real time,
// also where the clock is not, and a machine that is busy must not change a decision.
type patientStore struct{ *memcache.Embedded }

func (s patientStore) Do(ctx context.Context, ops ...*store.Op) {
	s.Embedded.Do(context.WithoutCancel(ctx), ops...)
}
