package compare

import (
	"sync/atomic"
	"time"
)

// clock is what it was set to. A fleet's goroutines look at it, too.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) set(nanoseconds int64) { c.nanoseconds.Store(nanoseconds) }

func (c *clock) now() time.Time { return time.Unix(0, c.nanoseconds.Load()) }
