package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
)

// killer kills servers at random, one at a time, and starts them again, empty. Where there
// are copies it waits until what was lost is copied back before it kills the next.
type killer struct {
	fleet   *fleet.Fleet
	rng     *rand.Rand
	pace    time.Duration // the mean time between two kills
	copies  int
	timeout time.Duration
	now     func() int64

	mu     sync.Mutex
	losses []loss
}

// run kills until the first context ends; only the second ends with a server away.
func (k *killer) run(ctx, whole context.Context) error {
	for {
		fleet.Sleep(ctx, k.pace/2+k.within(k.pace))
		if ctx.Err() != nil {
			return nil
		}
		if err := k.kill(whole); err != nil {
			return err
		}
	}
}

// kill kills a server and waits until it is back. It is noted also where that is not waited
// for to the end.
func (k *killer) kill(ctx context.Context) error {
	victim := k.rng.IntN(len(k.fleet.Servers))
	l := loss{server: victim, killed: k.now(), away: true}
	defer func() {
		if l.away {
			l.back = k.now()
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.losses = append(k.losses, l)
	}()
	k.fleet.Servers[victim].Kill()
	fleet.Sleep(ctx, k.within(k.pace/4))
	if err := k.fleet.Restart(ctx, victim); err != nil {
		return fmt.Errorf("starting server %d again: %w", victim, err)
	}
	if err := fleet.Until(ctx, time.Minute, k.fleet.Ready); err != nil {
		return fmt.Errorf("after server %d was killed: %w", victim, err)
	}
	l.back, l.away = k.now(), false
	if k.copies > 1 {
		if err := k.fleet.AwaitRepaired(ctx); err != nil {
			return fmt.Errorf("after server %d was killed: %w", victim, err)
		}
		// What was under way when it came back has had its time.
		fleet.Sleep(ctx, 2*k.timeout)
	}
	l.repaired = k.now()
	return nil
}

func (k *killer) within(d time.Duration) time.Duration {
	return time.Duration(k.rng.Int64N(max(int64(d), 1)))
}
