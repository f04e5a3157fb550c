package testkit

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// Event returns the event e of rules that are its limits in YAML.
func Event(tb testing.TB, limits string) *events.Event {
	tb.Helper()
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: " + limits + "}}"))
	require.NoError(tb, err)
	return rules.Events["e"]
}

// Clock is a clock that its test moves. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the moment, or one somewhere in the evening of a day where
// that is zero.
func NewClock(at time.Time) *Clock {
	if at.IsZero() {
		at = time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
	}
	return &Clock{now: at}
}

// Now returns the moment that it shows.
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

// Set has it show the moment.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}

// Limits are the limits of events, in YAML, for random histories.
var Limits = []string{
	"[{per: ip, rate: 3/s}]",
	"[{per: ip, rate: 4/8s}]",
	"[{per: ip, rate: 5/m}]",
	"[{per: ip, rate: [6/90s, 20/15m]}]",
	"[{per: ip, rate: 17/d}]",
	"[{per: ip, rate: [2/s, 5/m, 10/h, 40/d]}]",
	"[{per: ip, rate: [5/m, 12/15m, 20/30m]}, {per: user, rate: [7/90s, 15/h]}]",
	"[{per: ip, rate: 12/h, throttle: soft 25%}, {per: [ip, user], rate: [3/10s, 8/20m]}]",
	"[{per: ip, rate: [6/m, 15/15m], precision: minute}]",
	"[{per: ip, rate: [10/h, 30/d], precision: hour}]",
	"[{per: ip, rate: [10/2d]}, {per: user, rate: 9/61m}, {per: [], rate: 50/d}]",
	"[{per: ip, rate: [0/m, 5/h], shadow: true}, {per: user, rate: [4/m, 12/h]}]",
}

// CountingLimits count hits that they deny: of one that another limit denies, too.
var CountingLimits = []string{
	"[{per: ip, rate: [6/m, 30/15m], count: all}]",
	"[{per: ip, rate: 12/m, count: all}, {per: user, rate: [1/10s, 5/m]}]",
	"[{per: ip, rate: [10/90s, 40/h], count: all}, {per: user, rate: [4/20s, 20/h], count: all}]",
	"[{per: ip, rate: 15/15m, count: all, precision: minute}, {per: [ip, user], rate: 3/10s}]",
	"[{per: ip, rate: 2/m, count: all, shadow: true}, {per: user, rate: 3/10s}]",
}

// Step returns how far a random history goes on between two hits.
func Step(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N([]int64{1e8, 1e9, 3e9, 10e9, 60e9, 1000e9, 5000e9, 40000e9}[rng.IntN(8)]))
}

// Pick returns one of the list.
func Pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }
