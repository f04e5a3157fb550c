package main

import (
	"context"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
)

// inMemory is a library that shares its counters with no other process.
func inMemory() Contender {
	return Contender{
		Name: "sethvargo/go-limiter, one process", Version: versionOf("github.com/sethvargo/go-limiter"),
		Where: "its own memory", Promise: Stepped, Start: closing(goLimiter),
	}
}

func goLimiter(_ context.Context, limits []Limit, c *closers) (*Fleet, error) {
	stores := map[string]golimiter.Store{}
	for _, l := range limits {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.N), Interval: l.Window})
		if err != nil {
			return nil, err
		}
		c.add(func() error { return store.Close(context.Background()) })
		stores[l.Name] = store
	}
	hit := func(ctx context.Context, l Limit, feature string) (Answer, error) {
		_, _, reset, allowed, err := stores[l.Name].Take(ctx, feature)
		return Answer{Allowed: allowed, RetryAfter: max(time.Until(time.Unix(0, int64(reset))), 0)}, err
	}
	return &Fleet{Instances: []Instance{instanceFunc(hit)}, Memory: heap}, nil
}
