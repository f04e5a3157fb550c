package memcache

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
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
	client  *gomemcache.Client
	timeout time.Duration
	now     func() time.Time

	mu     sync.Mutex
	closed bool
	trips  sync.WaitGroup // one for each trip under way, also when its caller has left
}

// NewFleet returns the fleet of the servers in the config. It is an error if one
// is named wrongly or its name does not resolve, not if it is down. Close frees
// what the fleet holds.
func NewFleet(ctx context.Context, config Config) (*Fleet, error) {
	conns := cmp.Or(config.Conns, DefaultConns)
	servers, err := newServers(ctx, config.Servers, conns)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		servers: servers,
		client:  gomemcache.NewFromSelector(servers),
		timeout: cmp.Or(config.Timeout, DefaultTimeout),
		now:     config.Clock,
	}
	if f.now == nil {
		f.now = time.Now
	}
	f.client.Timeout = f.timeout
	f.client.MaxIdleConns = conns
	return f, nil
}

// Close waits for the trips under way, which end within the timeout, and closes
// all connections. Later calls of the fleet return ErrClosed.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.trips.Wait()
	return f.client.Close()
}

// Server returns the name of the server that holds the counter.
func (f *Fleet) Server(counter string) string {
	return f.servers.of(hashCounter(counter)).name
}

// Trip adds to and reads buckets of one counter: see the Store of package
// hierarchy. On this path every add waits for the answer to the one before, and
// all reads are one multi-get.
func (f *Fleet) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	h := hashCounter(counter)
	t := &trip{client: f.client, by: by, adds: h.keys(adds), reads: h.keys(reads)}
	now := f.now()
	for _, e := range expires {
		t.expirations = append(t.expirations, expiration(e, now))
	}
	t.values = make([]int64, len(values))
	err := f.do(ctx, f.servers.of(h), t.run)
	landed := int(t.landed.Load())
	// A trip that goes on without its caller may still write what lies behind.
	if err != nil {
		copy(values, t.values[:landed])
		return landed, err
	}
	copy(values, t.values)
	return landed, nil
}

// Delete removes buckets of one counter, in their order.
func (f *Fleet) Delete(ctx context.Context, counter string, buckets []uint64) error {
	h := hashCounter(counter)
	keys := h.keys(buckets)
	return f.do(ctx, f.servers.of(h), func(ctx context.Context) error {
		for _, key := range keys {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.client.Delete(key); err != nil && !errors.Is(err, gomemcache.ErrCacheMiss) {
				return err
			}
		}
		return nil
	})
}

// Ping asks every server whether it is there, side by side, and returns for
// each, by its name, nil or why not.
func (f *Fleet) Ping(ctx context.Context) map[string]error {
	answers := make([]error, len(f.servers))
	var pings sync.WaitGroup
	for i, s := range f.servers {
		pings.Go(func() {
			answers[i] = f.do(ctx, s, func(context.Context) error {
				return ping(s, f.timeout)
			})
		})
	}
	pings.Wait()
	byName := make(map[string]error, len(answers))
	for i, s := range f.servers {
		byName[s.name] = answers[i]
	}
	return byName
}

// ping connects anew: an idle connection says nothing about the server's listener.
func ping(s *server, timeout time.Duration) error {
	client := gomemcache.NewFromSelector(servers{s})
	client.Timeout = timeout
	defer client.Close()
	return client.Ping()
}

// do runs one trip to the server. It returns at the latest when the context or
// the fleet's timeout ends, though gomemcache cannot be called back from a
// socket. A caller who leaves early leaves nothing half done behind: the trip
// goes on to its own end, and holds its slot until then, so that trips that hang
// are bounded in number.
func (f *Fleet) do(ctx context.Context, s *server, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("memcache: server %s: no connection free: %w", s.name, ctx.Err())
	}
	if !f.begin() {
		<-s.slots
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer f.trips.Done()
		defer func() { <-s.slots }()
		own, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		done <- run(own)
	}()
	err := wait(ctx, done)
	if err != nil {
		return fmt.Errorf("memcache: server %s: %w", s.name, err)
	}
	return nil
}

// wait returns what comes from done, or the context's error if it ends before.
func wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both at once: the trip's own word counts
		return err
	default:
		return ctx.Err()
	}
}

// begin counts a trip as under way, unless the fleet is closed.
func (f *Fleet) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.trips.Add(1)
	return true
}

// trip is one exchange, in memory of its own: its caller may leave before it ends.
type trip struct {
	client      *gomemcache.Client
	by          int64
	adds        []string
	expirations []int32
	reads       []string
	values      []int64      // of the adds, then of the reads
	landed      atomic.Int32 // acknowledged adds; values up to here are final
}

func (t *trip) run(ctx context.Context) error {
	for i, key := range t.adds {
		value, err := t.add(ctx, key, t.expirations[i])
		if err != nil {
			return err
		}
		t.values[i] = value
		t.landed.Add(1)
	}
	if len(t.reads) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	items, err := t.client.GetMulti(t.reads)
	if err != nil {
		return err
	}
	for i, key := range t.reads {
		if item := items[key]; item != nil {
			if t.values[len(t.adds)+i], err = parseValue(item.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds to one bucket and returns what it holds then. A bucket that is not
// there is created by Memcached's add, which one process wins; who loses
// increments what the winner made. It may expire in between: then again.
func (t *trip) add(ctx context.Context, key string, expiration int32) (int64, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		value, err := t.client.Increment(key, uint64(t.by))
		if !errors.Is(err, gomemcache.ErrCacheMiss) {
			return int64(value), err
		}
		err = t.client.Add(&gomemcache.Item{
			Key: key, Value: strconv.AppendInt(nil, t.by, 10), Expiration: expiration,
		})
		if !errors.Is(err, gomemcache.ErrNotStored) {
			return t.by, err
		}
	}
}

// parseValue reads a counter's value. Memcached pads one that has become shorter
// with blanks.
func parseValue(b []byte) (int64, error) {
	value, err := strconv.ParseInt(string(bytes.TrimRight(b, " ")), 10, 64)
	if err != nil {
		return 0, errors.New("memcache: a bucket's item holds no number")
	}
	return value, nil
}

var _ net.Addr = (*server)(nil)
