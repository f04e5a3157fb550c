package limiter

import (
	"context"
	"sync"
	"time"
)

// tripContext is the context of a decision's trips. It has the values of the
// caller's, and a deadline. That the caller leaves does not end it: what has been
// added has to be known, to be rolled back.
//
// Its timer is set only for a store that waits for Done. Most have their own way
// to keep to the deadline, and a timer for each hit costs more than the hit.
type tripContext struct {
	caller   context.Context
	deadline time.Time

	mu    sync.Mutex
	armed context.Context // nil until Done is called
	end   context.CancelFunc
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Value(key any) any { return c.caller.Value(key) }

func (c *tripContext) Done() <-chan struct{} { return c.arm().Done() }

func (c *tripContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.armed != nil:
		return c.armed.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *tripContext) arm() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed == nil {
		c.armed, c.end = context.WithDeadline(context.Background(), c.deadline)
	}
	return c.armed
}

// over frees what the context holds.
func (c *tripContext) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end()
	}
}
