package whatif

import (
	"context"
	"time"

	"github.com/counterd/counterd/memcache"
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

func (s patientStore) Trip(ctx context.Context, id string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	return s.Embedded.Trip(context.Background(), id, by, adds, expires, reads, values)
}

func (s patientStore) Start(ctx context.Context, id string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (wait func() (landed int, err error)) {
	return s.Embedded.Start(context.Background(), id, by, adds, expires, reads, values)
}

func (s patientStore) RollBack(ctx context.Context, id string, by int64, adds []uint64, landed int) error {
	return s.Embedded.RollBack(context.Background(), id, by, adds, landed)
}
