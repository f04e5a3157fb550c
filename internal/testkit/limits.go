package testkit

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Event returns the event e of rules that are its limits in YAML.
func Event(tb testing.TB, limits string) *events.Event {
	tb.Helper()
	rules, err := events.ParseRules([]byte("events: {e: {limits: " + limits + "}}"))
	require.NoError(tb, err)
	return rules.Events["e"]
}

// Clock is a clock that its test moves. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at the moment, or somewhere in the evening of a day where
// that is zero.
func NewClock(at time.Time) *Clock {
	if at.IsZero() {
		at = time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
	}
	return &Clock{now: at}
}

// Now returns the moment at which it stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it by so much.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set has it stand at the moment.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}
