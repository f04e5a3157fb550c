package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/oracle"
)

// The events, and the limits that are held against the oracle.
const (
	wide = iota
	narrow
	count
	eventKinds
)

var eventNames = [eventKinds]string{"wide", "narrow", "count"}

func limitsOf(event int) []oracle.Limit {
	if event != narrow {
		return nil
	}
	return []oracle.Limit{{N: 10, Window: time.Second}, {N: 40, Window: 10 * time.Second}, {N: 150, Window: time.Minute}, {N: 1000, Window: 24 * time.Hour}}
}

// told is what callers were told of one counter.
type told struct {
	*oracle.Counter
	disturbed atomic.Int64 // acknowledged while a server was away, or not mended yet
}

// callers call all the time, each when its call before was answered.
type callers struct {
	stage    *stage
	told     [eventKinds][users]told
	calls    atomic.Int64
	denied   atomic.Int64
	onError  atomic.Int64
	slowest  atomic.Int64
	away     atomic.Bool // a server is, or it is not mended yet
	surprise chan error  // an answer that must not be, the first of them

	running sync.WaitGroup
}

func newCallers(s *stage) *callers {
	c := &callers{stage: s, surprise: make(chan error, 1)}
	for event := range c.told {
		for user := range c.told[event] {
			c.told[event][user].Counter = oracle.NewCounter(limitsOf(event)...)
		}
	}
	return c
}

// start has n callers call until the context ends.
func (c *callers) start(ctx context.Context, n int, seed uint64) {
	for i := range n {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		c.running.Go(func() {
			for ctx.Err() == nil {
				event, user := rng.IntN(eventKinds), rng.IntN(users)
				if event == narrow {
					user %= narrowUsers
				}
				c.call(c.stage.clients[rng.IntN(processes)], event, user)
			}
		})
	}
}

func nameOf(user int) events.Features { return events.Features{"user": fmt.Sprint("user-", user)} }

// call makes one call. It is not cut short by the end of the run: its outcome counts.
func (c *callers) call(to *client.Client, event, user int) {
	t := &c.told[event][user]
	away, began := c.away.Load(), time.Now()
	var err error
	admitted := true
	var at int64
	if event == count {
		_, err = to.Increment(context.Background(), eventNames[event], nameOf(user), 1, time.Time{})
	} else {
		var d wire.Decision
		d, err = to.Hit(context.Background(), eventNames[event], nameOf(user), 1)
		admitted, at = d.Allowed, d.At.Unix()
	}
	c.took(time.Since(began))
	switch {
	case err != nil:
		c.onError.Add(1)
		t.Doubt(1)
		// Without an answer of counterd's it is no on_error.
		if _, answered := errors.AsType[*client.Error](err); !answered || !errors.Is(err, client.ErrUnavailable) {
			c.surprised(err)
		}
	case !admitted:
		c.denied.Add(1)
	case event == count:
		t.Acknowledge(1)
	default:
		t.Admit(at, 1)
	}
	if err == nil && admitted && (away || c.away.Load()) {
		t.disturbed.Add(1)
	}
}

func (c *callers) took(d time.Duration) {
	c.calls.Add(1)
	for {
		slowest := c.slowest.Load()
		if int64(d) <= slowest || c.slowest.CompareAndSwap(slowest, int64(d)) {
			return
		}
	}
}

func (c *callers) surprised(err error) {
	select {
	case c.surprise <- err:
	default:
	}
}

// sums are the counts of all counters together, beside what callers were told.
type sums struct{ acknowledged, unknown, excess, lost int64 }

// compare holds every counter against what was told: at least what was acknowledged, and
// at the most what may have been counted too. Nobody calls meanwhile.
func (c *callers) compare(ctx context.Context) (all sums, faults []error) {
	for event := range c.told {
		for user := range c.told[event] {
			t := &c.told[event][user]
			tally := t.Tally()
			got, err := c.stage.clients[user%processes].Count(ctx, eventNames[event], nameOf(user), 24*time.Hour, time.Time{})
			if err != nil {
				return all, append(faults, err)
			}
			all.acknowledged += tally.Acknowledged
			all.unknown += tally.Unknown
			all.excess += max(got.Count-tally.Acknowledged, 0)
			all.lost += max(tally.Acknowledged-got.Count, 0)
			most := tally.Acknowledged + tally.Unknown + t.disturbed.Load()
			if got.Count < tally.Acknowledged || got.Count > most {
				faults = append(faults, fmt.Errorf("%s of user %d counts %d, not %d to %d", eventNames[event], user, got.Count, tally.Acknowledged, most))
			}
			if err := t.Fault(); err != nil {
				faults = append(faults, fmt.Errorf("user %d: %w", user, err))
			}
		}
	}
	return all, faults
}

// sample looks at some counters while callers call: none counts less than was
// acknowledged before, and no window held more than its limit.
func (c *callers) sample(ctx context.Context, rng *rand.Rand) error {
	for range 50 {
		event, user := rng.IntN(eventKinds), rng.IntN(users)
		t := &c.told[event][user]
		tally := t.Tally()
		got, err := c.stage.clients[rng.IntN(processes)].Count(ctx, eventNames[event], nameOf(user), 24*time.Hour, time.Time{})
		if err != nil {
			return err
		}
		if got.Count < tally.Acknowledged {
			return fmt.Errorf("%s of user %d counts %d, and %d were acknowledged", eventNames[event], user, got.Count, tally.Acknowledged)
		}
		if err := t.Fault(); err != nil {
			return fmt.Errorf("user %d: %w", user, err)
		}
	}
	return nil
}
