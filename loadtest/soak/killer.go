package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// killer kills servers at random, one at a time, and starts them again, empty.
type killer struct {
	stage   *stage
	callers *callers
	rng     *rand.Rand
	pace    time.Duration // the mean time between two kills
	kills   int
}

// run kills until the context ends, which it does not let end with a server away.
func (k *killer) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.pace/2 + k.within(k.pace)):
		}
		if err := k.kill(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// kill kills a server and waits until it is back, and mended.
func (k *killer) kill(ctx context.Context) error {
	victim := k.rng.IntN(servers) // any of them, since the last one has been mended
	k.callers.away.Store(true)
	k.stage.servers[victim].Kill()
	k.kills++
	time.Sleep(k.within(k.pace / 4))
	if err := k.stage.restart(ctx, victim); err != nil {
		return err
	}
	if err := k.awaitMended(ctx, victim); err != nil {
		return err
	}
	// What was under way when it came back has had its time.
	time.Sleep(2 * timeout)
	k.callers.away.Store(false)
	if err := k.callers.sample(ctx, k.rng); err != nil {
		return fmt.Errorf("after server %d was killed: %w", victim, err)
	}
	return nil
}

// within returns a random time below the one given.
func (k *killer) within(d time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(d))) }

// awaitMended waits until no process says any more that a server has lost something.
func (k *killer) awaitMended(ctx context.Context, victim int) error {
	for _, process := range k.stage.processes {
		noticed := func() error {
			if whole(process.Addr) == nil {
				return fmt.Errorf("that server %d came back empty is not noticed", victim)
			}
			return nil
		}
		if err := until(ctx, time.Minute, noticed); err != nil {
			return err
		}
	}
	for _, process := range k.stage.processes {
		if err := until(ctx, 10*time.Minute, func() error { return whole(process.Addr) }); err != nil {
			return err
		}
	}
	return nil
}

// until tries until it succeeds, for so long at the most.
func until(ctx context.Context, long time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", long, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
