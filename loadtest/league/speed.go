package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// callers are how many hits of a contender are under way at once, in all instances together.
const callers = 64

// population is how many features the hits choose from.
const population = 100_000

// speed returns how many hits a second a contender decides, from callers that each wait for their answer, and the
// first error.
func speed(ctx context.Context, f *Fleet, limit Limit, length time.Duration) (float64, error) {
	var decided atomic.Int64
	var first error
	var once sync.Once
	var group sync.WaitGroup
	began := time.Now()
	end := began.Add(length)
	for i := range callers {
		group.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				_, _, err := timedHit(ctx, f.Instances[i%len(f.Instances)], limit, fmt.Sprintf("speed-%d", rand.IntN(population)))
				if err != nil {
					once.Do(func() { first = err })
					continue
				}
				decided.Add(1)
			}
		})
	}
	group.Wait()
	return float64(decided.Load()) / time.Since(began).Seconds(), first
}

// bytesOfUsers returns how much the memory of the store grows for each of so many users, each with some hits a second
// or more apart.
func bytesOfUsers(ctx context.Context, f *Fleet, limit Limit, users, hits int, settle time.Duration) (float64, error) {
	round := func(name string, hits, users int) error {
		var group sync.WaitGroup
		var next atomic.Int64
		var first error
		var once sync.Once
		for i := range callers {
			group.Go(func() {
				for n := next.Add(1); n <= int64(hits) && ctx.Err() == nil; n = next.Add(1) {
					_, _, err := timedHit(ctx, f.Instances[i%len(f.Instances)], limit, fmt.Sprintf("%s-%d", name, n%int64(users)))
					if err != nil {
						once.Do(func() { first = err })
					}
				}
			})
		}
		group.Wait()
		return first
	}
	// Connections, scripts and garbage take memory, too: as many hits by few users come before.
	if err := round("warm", users*hits, max(users/100, 1)); err != nil {
		return 0, err
	}
	memory := func() (int64, error) {
		if f.Buffers {
			time.Sleep(settle)
		}
		return f.Memory()
	}
	before, err := memory()
	if err != nil {
		return 0, err
	}
	for range hits {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		next := time.Now().Truncate(time.Second).Add(time.Second)
		if err := round("bytes", users, users); err != nil {
			return 0, err
		}
		time.Sleep(time.Until(next))
	}
	after, err := memory()
	return float64(after-before) / float64(users), err
}
