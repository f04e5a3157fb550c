package main

import (
	"context"
	"errors"
	"time"
)

// Limit is at most N hits in a window. Each feature has a counter of its own for it.
type Limit struct {
	Name   string
	N      int64
	Window time.Duration
}

// Answer is the verdict on a hit.
type Answer struct {
	Allowed    bool
	RetryAfter time.Duration // of a denial: when to try again
	Silent     bool          // a denial that names no RetryAfter
}

// Instance is one process of a contender, or one client of it. It is safe for concurrent use.
type Instance interface {
	// Hit counts a hit of a feature, and returns an error if the contender did not decide it.
	Hit(ctx context.Context, limit Limit, feature string) (Answer, error)
}

// instanceFunc is a function that is an Instance.
type instanceFunc func(ctx context.Context, limit Limit, feature string) (Answer, error)

func (f instanceFunc) Hit(ctx context.Context, limit Limit, feature string) (Answer, error) {
	return f(ctx, limit, feature)
}

// Fleet is a contender at work: its instances and the store that they share.
type Fleet struct {
	Instances []Instance
	Memory    func() (int64, error) // the bytes that its counters take
	Buffers   bool                  // of idle callers are in that for some seconds
	Close     func() error
}

// Contender is a way of limiting that takes part.
type Contender struct {
	Name    string
	Version string
	Where   string // it keeps its counters
	Promise Promise
	Start   start
	// Missing says how to get what is missing here; empty: it can start.
	Missing string
}

// start starts instances that have these limits.
type start func(ctx context.Context, limits []Limit) (*Fleet, error)

// closing returns a start that adds to closers what its fleet has open. They are closed with the fleet, or if it does not
// start.
func closing(open func(ctx context.Context, limits []Limit, c *closers) (*Fleet, error)) start {
	return func(ctx context.Context, limits []Limit) (*Fleet, error) {
		var c closers
		f, err := open(ctx, limits, &c)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		f.Close = c.close
		return f, nil
	}
}

// instances of each contender share a store, as processes of an application do.
const instances = 2

// closers are closed in the opposite order.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() (err error) {
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	*c = nil
	return err
}
