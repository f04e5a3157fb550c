package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

const (
	// DefaultTimeout is the longest that a trip takes where nothing else is set.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultConns is the number of connections to a server where nothing else
	// is set.
	DefaultConns = 64
)

// ErrClosed is returned by a Fleet that was closed.
var ErrClosed = errors.New("memcache: fleet is closed")

// Config names the servers of a Fleet. Only Servers is needed.
type Config struct {
	// Servers are host:port or the paths of Unix sockets. A counter's place
	// depends on these names: all processes need the same ones, letter by letter;
	// their order does not matter.
	Servers []string
	Timeout time.Duration    // longest time for a trip, connecting included; 0: DefaultTimeout
	Conns   int              // most connections to one server, each for one trip at a time; 0: DefaultConns
	Clock   func() time.Time // nil: time.Now
}

// Fleet keeps buckets on Memcached servers. All buckets of a counter are on one
// server, so a trip has one server whatever the size of the fleet. It is safe
// for concurrent use.
type Fleet struct {
	servers servers
	timeout time.Duration
	now     func() time.Time
	closed  atomic.Bool
}

// NewFleet returns the fleet of the servers in the config. It is an error if one
// is named wrongly or its name does not resolve, not if it is down. Close frees
// what the fleet holds.
func NewFleet(ctx context.Context, config Config) (*Fleet, error) {
	if config.Timeout < 0 || config.Conns < 0 {
		return nil, fmt.Errorf("memcache: the timeout, %s, and the connections, %d, cannot be negative", config.Timeout, config.Conns)
	}
	f := &Fleet{timeout: cmp.Or(config.Timeout, DefaultTimeout), now: config.Clock}
	if f.now == nil {
		f.now = time.Now
	}
	var err error
	f.servers, err = newServers(ctx, config.Servers, cmp.Or(config.Conns, DefaultConns))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close waits for the trips under way, which end within the timeout, and closes
// all connections. Later calls of the fleet return ErrClosed.
func (f *Fleet) Close() error {
	f.closed.Store(true)
	faults := make([]error, len(f.servers))
	var closing sync.WaitGroup
	for i, s := range f.servers {
		closing.Go(func() { faults[i] = s.lanes.close() })
	}
	closing.Wait()
	return errors.Join(faults...)
}

// Server returns the name of the server that holds the counter.
func (f *Fleet) Server(counter string) string {
	return f.servers.of(hashCounter(counter)).name
}

// Trip adds to and reads buckets of one counter: see the Store of package
// hierarchy. On this path every add waits for the answer to the one before, and
// all reads are one multi-get.
func (f *Fleet) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error) {
	h := hashCounter(counter)
	now := f.now()
	err = f.do(ctx, f.servers.of(h), func(client *gomemcache.Client) error {
		for i, key := range h.keys(adds) {
			value, err := add(client, key, by, expiration(expires[i], now))
			if err != nil {
				return err
			}
			values[i] = value
			landed++
		}
		return readInto(values[len(adds):], client, h.keys(reads))
	})
	return landed, err
}

// TakeBack subtracts from buckets of one counter, where they are there.
func (f *Fleet) TakeBack(ctx context.Context, counter string, by int64, buckets []uint64) error {
	h := hashCounter(counter)
	return f.do(ctx, f.servers.of(h), func(client *gomemcache.Client) error {
		for _, key := range h.keys(buckets) {
			if _, err := client.Decrement(key, uint64(by)); err != nil && !errors.Is(err, gomemcache.ErrCacheMiss) {
				return err
			}
		}
		return nil
	})
}

// Delete removes buckets of one counter, in their order.
func (f *Fleet) Delete(ctx context.Context, counter string, buckets []uint64) error {
	h := hashCounter(counter)
	return f.do(ctx, f.servers.of(h), func(client *gomemcache.Client) error {
		for _, key := range h.keys(buckets) {
			if err := client.Delete(key); err != nil && !errors.Is(err, gomemcache.ErrCacheMiss) {
				return err
			}
		}
		return nil
	})
}

// Ping asks every server whether it is there, side by side and each on a new
// connection, and returns for each, by its name, nil or why not.
func (f *Fleet) Ping(ctx context.Context) map[string]error {
	answers := make([]error, len(f.servers))
	var pings sync.WaitGroup
	for i, s := range f.servers {
		pings.Go(func() { answers[i] = f.ping(ctx, s.name) })
	}
	pings.Wait()
	byName := make(map[string]error, len(answers))
	for i, s := range f.servers {
		byName[s.name] = answers[i]
	}
	return byName
}

func (f *Fleet) ping(ctx context.Context, name string) error {
	if f.closed.Load() {
		return ErrClosed
	}
	anew := newServer(name, 1)
	err := f.do(ctx, anew, (*gomemcache.Client).Ping)
	return errors.Join(err, anew.lanes.close())
}

// do makes one trip to the server, within the fleet's timeout and the context's
// deadline. A context that is canceled under way does not cut the trip short:
// nothing is left half done that could be finished.
func (f *Fleet) do(ctx context.Context, s *server, trip func(*gomemcache.Client) error) error {
	deadline := time.Now().Add(f.timeout)
	if end, bounded := ctx.Deadline(); bounded && end.Before(deadline) {
		deadline = end
	}
	l, err := s.lanes.enter(ctx, deadline)
	if err == nil {
		err = l.run(trip)
		s.lanes.leave(l)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("memcache: server %s: %w", s.name, err)
	}
	return err
}
