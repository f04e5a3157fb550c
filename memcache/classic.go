package memcache

import (
	"context"
	"errors"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// The classic path: one trip at a time on each connection. gomemcache makes the changes; a
// lane reads by itself.

func (e *exchange) classicTrip(ctx context.Context, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error) {
	err = e.classic(ctx, func(l *lane) error {
		for i, key := range e.hash.keys(adds) {
			value, err := add(l.client, key, by, expiration(expires[i], e.clock))
			if err != nil {
				return err
			}
			values[i] = value
			landed++
		}
		return e.get(l, reads, values[len(adds):], nil)
	})
	return landed, err
}

func (e *exchange) classicTakeBack(ctx context.Context, by int64, buckets []uint64) error {
	return e.classic(ctx, func(l *lane) error {
		for _, key := range e.hash.keys(buckets) {
			if _, err := l.client.Decrement(key, uint64(by)); err != nil && !errors.Is(err, gomemcache.ErrCacheMiss) {
				return err
			}
		}
		return nil
	})
}

func (e *exchange) classicDelete(ctx context.Context, buckets []uint64) error {
	return e.classic(ctx, func(l *lane) error {
		for _, key := range e.hash.keys(buckets) {
			if err := l.client.Delete(key); err != nil && !errors.Is(err, gomemcache.ErrCacheMiss) {
				return err
			}
		}
		return nil
	})
}

func (e *exchange) classic(ctx context.Context, trip func(*lane) error) error {
	e.over = 0 // of the meta path, which was tried before
	return e.server.do(ctx, epoch.Add(time.Duration(e.deadline)), e.timeout, trip)
}

// do makes one trip to the server on a connection of its own, within the deadline and,
// once it has the connection, the timeout.
func (s *server) do(ctx context.Context, deadline time.Time, timeout time.Duration, trip func(*lane) error) error {
	l, err := s.lanes.enter(ctx, deadline)
	if err == nil {
		if soon := time.Now().Add(timeout); soon.Before(deadline) {
			l.deadline = soon
		}
		err = l.run(trip)
		s.lanes.leave(l)
	}
	return s.wrap(err)
}
