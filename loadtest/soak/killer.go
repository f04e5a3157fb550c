package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
)

// killer kills servers at random, one at a time, and starts them again, empty.
type killer struct {
	stage   *stage
	callers *callers
	rng     *rand.Rand
	pace    time.Duration // the mean time between two kills
	kills   int
}

// run kills until the first context ends; only the second ends with a server away.
func (k *killer) run(ctx, whole context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.pace/2 + k.within(k.pace)):
		}
		if err := k.kill(whole); err != nil {
			return err
		}
	}
}

// kill kills a server and waits until it is back, and mended.
func (k *killer) kill(ctx context.Context) error {
	victim := k.rng.IntN(servers) // any of them, since the last one has been mended
	k.callers.away.Store(true)
	k.stage.Servers[victim].Kill()
	k.kills++
	fleet.Sleep(ctx, k.within(k.pace/4))
	if err := k.stage.Restart(ctx, victim); err != nil {
		return err
	}
	if err := k.stage.AwaitMended(ctx); err != nil {
		return fmt.Errorf("after server %d was killed: %w", victim, err)
	}
	// What was under way when it came back has had its time.
	fleet.Sleep(ctx, 2*timeout)
	k.callers.away.Store(false)
	if err := k.callers.sample(ctx, k.rng); err != nil {
		return fmt.Errorf("after server %d was killed: %w", victim, err)
	}
	return nil
}

// within returns a random time below the one given.
func (k *killer) within(d time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(d))) }
