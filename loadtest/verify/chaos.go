package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// killer kills servers at random, one at a time, and starts them again, empty. Where there
// are replicas it waits until what was lost is copied back before it kills the next.
type killer struct {
	fleet  *fleet.Fleet
	config fleet.Config
	rng    *rand.Rand
	pace   time.Duration // the mean time between two kills
	kills  []judge.Kill
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
	kill := judge.Kill{Server: victim, Killed: time.Now().UTC()}
	defer func() { k.kills = append(k.kills, kill) }()
	k.fleet.Servers[victim].Kill()
	kill.Dead = time.Now().UTC()
	fleet.Sleep(ctx, k.within(k.pace/4))
	err := k.fleet.Restart(ctx, victim)
	if err == nil {
		err = fleet.Until(ctx, time.Minute, k.fleet.Ready)
	}
	if err == nil {
		kill.Back = time.Now().UTC()
		if k.config.Replicas > 1 {
			err = k.fleet.AwaitRepaired(ctx)
			fleet.Sleep(ctx, 2*k.config.Timeout) // what was under way when it came back has had its time
		}
	}
	if err != nil {
		return fmt.Errorf("after server %d was killed: %w", victim, err)
	}
	kill.Repaired = time.Now().UTC()
	return nil
}

func (k *killer) within(d time.Duration) time.Duration {
	return time.Duration(k.rng.Int64N(max(int64(d), 1)))
}
