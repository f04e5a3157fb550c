package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
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
	Timeout time.Duration // longest time for a trip, connecting included; 0: DefaultTimeout
	// Conns is the most connections to one server; 0: DefaultConns. On the classic
	// path each is for one trip at a time. On the meta path all trips share a few:
	// this bounds them too, but there never are more than two.
	Conns    int
	Protocol Protocol // Auto, unless set
	// Learned is told how a server speaks, Meta or Classic, when that is found out and
	// whenever it changes, from any goroutine; with Classic nobody asks. nil: nobody is.
	Learned func(server string, speaks Protocol)
	// Changed is told what has become of a server, and how it is then, from any
	// goroutine; it must not call Close. nil: nobody is.
	Changed func(Change, ServerHealth)
	Clock   func() time.Time // nil: time.Now

	// For tests.
	dialer func(context.Context, time.Time) (net.Conn, error)
	pace   time.Duration
}

// Fleet keeps buckets on Memcached servers. All buckets of a counter are on one
// server, so a trip has one server whatever the size of the fleet. It is safe
// for concurrent use.
type Fleet struct {
	servers  servers
	timeout  time.Duration
	protocol Protocol
	clock    func() time.Time // or nil
	closed   atomic.Bool
	memories memories
}

// NewFleet returns the fleet of the servers in the config. It is an error if one
// is named wrongly or its name does not resolve, not if it is down. Close frees
// what the fleet holds.
func NewFleet(ctx context.Context, config Config) (*Fleet, error) {
	if config.Timeout < 0 || config.Conns < 0 {
		return nil, fmt.Errorf("memcache: the timeout, %s, and the connections, %d, cannot be negative", config.Timeout, config.Conns)
	}
	if !config.Protocol.known() {
		return nil, fmt.Errorf("memcache: %s is none of auto, meta and classic", config.Protocol)
	}
	f := &Fleet{timeout: cmp.Or(config.Timeout, DefaultTimeout), protocol: config.Protocol, clock: config.Clock}
	var err error
	f.servers, err = newServers(ctx, config.Servers, cmp.Or(config.Conns, DefaultConns), f.timeout)
	if err != nil {
		return nil, err
	}
	for _, s := range f.servers {
		s.belong(f, config)
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
		closing.Go(func() { faults[i] = s.close() })
	}
	closing.Wait()
	return errors.Join(faults...)
}

// Server returns the name of the server that holds the counter.
func (f *Fleet) Server(counter string) string {
	return f.servers.of(hashCounter(counter)).name
}

// Trip adds to and reads buckets of one counter: see the Store of package
// hierarchy. On the meta path all of it goes out in one write. On the classic path
// every add waits for the answer to the one before, and all reads are one multi-get.
func (f *Fleet) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error) {
	e, err := f.begin(ctx, counter)
	if err != nil {
		return 0, err
	}
	if e.meta {
		landed, err = e.metaTrip(by, adds, expires, reads, values)
		if !e.turnsClassic(err) {
			return landed, e.ended(err)
		}
	}
	landed, err = e.classicTrip(ctx, by, adds, expires, reads, values)
	return landed, e.ended(err)
}

// Start begins a Trip and does not wait for it: wait does. On the meta path many trips of
// one caller share what is written and read. On the classic path each has a goroutine. The
// time for it is that of the context; the fleet's timeout only where it has none.
func (f *Fleet) Start(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (wait func() (landed int, err error)) {
	e, err := f.begin(ctx, counter)
	// Of many trips that are started at once some wait for long until it is their turn.
	// For that there is all the time of the context.
	if end, bounded := ctx.Deadline(); bounded {
		e.deadline = instant(end)
	}
	switch {
	case err != nil || len(adds) == 0 && len(reads) == 0:
		return func() (int, error) { return 0, err }
	case !e.meta:
		ended := make(chan struct{})
		landed := 0
		go func() {
			defer close(ended)
			landed, err = e.classicTrip(ctx, by, adds, expires, reads, values)
		}()
		return func() (int, error) { <-ended; return landed, e.ended(err) }
	}
	c := e.metaStart(by, adds, expires, reads)
	return func() (int, error) {
		landed, err := e.metaEnd(c, by, adds, values)
		if e.turnsClassic(err) {
			landed, err = e.classicTrip(ctx, by, adds, expires, reads, values)
		}
		return landed, e.ended(err)
	}
}

// TakeBack subtracts from buckets of one counter, where they are there.
func (f *Fleet) TakeBack(ctx context.Context, counter string, by int64, buckets []uint64) error {
	e, err := f.begin(ctx, counter)
	if err != nil {
		return err
	}
	if e.meta {
		if err := e.metaTakeBack(by, buckets); !e.turnsClassic(err) {
			return e.ended(err)
		}
	}
	return e.ended(e.classicTakeBack(ctx, by, buckets))
}

// Delete removes buckets of one counter, in their order.
func (f *Fleet) Delete(ctx context.Context, counter string, buckets []uint64) error {
	e, err := f.begin(ctx, counter)
	if err != nil {
		return err
	}
	if e.meta {
		if err := e.metaDelete(buckets); !e.turnsClassic(err) {
			return e.ended(err)
		}
	}
	return e.ended(e.classicDelete(ctx, buckets))
}

// exchange is one call of the fleet: the counter, its server, how it is spoken to,
// and until when.
type exchange struct {
	hash     counterHash
	server   *server
	meta     bool
	auto     bool
	now      int64 // the instant of its beginning
	deadline int64 // as an instant
	timeout  time.Duration
	clock    time.Time // the fleet's clock at the beginning
}

// begin finds the server of the counter and sets the deadline: the fleet's timeout,
// or the context's if that is sooner. Nothing else is asked of the context: a trip
// that has begun is not cut short, for nothing is left half done that could be
// finished.
func (f *Fleet) begin(ctx context.Context, counter string) (exchange, error) {
	start := time.Now()
	e := exchange{hash: hashCounter(counter), auto: f.protocol == Auto, now: instant(start), timeout: f.timeout, clock: start}
	e.server = f.servers.of(e.hash)
	if f.closed.Load() {
		return e, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return e, e.server.wrap(err)
	}
	if err := e.server.admit(); err != nil {
		return e, err
	}
	e.deadline = e.now + int64(f.timeout)
	if end, bounded := ctx.Deadline(); bounded {
		e.deadline = min(e.deadline, instant(end))
	}
	if f.clock != nil {
		e.clock = f.clock()
	}
	switch {
	case f.protocol == Classic:
	case !e.server.classic(e.now):
		e.meta = true
	case f.protocol == Meta:
		return e, e.server.wrap(errClassic)
	}
	return e, nil
}

// turnsClassic reports whether the exchange, not begun yet, has to be made the
// classic way: the server was asked, and does not know the meta commands.
func (e *exchange) turnsClassic(err error) bool {
	return e.auto && errors.Is(err, errClassic)
}

// Ping asks every server whether it is there, side by side and each on a new
// connection, and returns for each, by its name, nil or why not. What they remember is
// known then, and one that does not answer is down.
func (f *Fleet) Ping(ctx context.Context) map[string]error {
	answers := make([]error, len(f.servers))
	var pings sync.WaitGroup
	for i, s := range f.servers {
		pings.Go(func() { answers[i] = f.ping(ctx, s) })
	}
	pings.Wait()
	byName := make(map[string]error, len(answers))
	for i, s := range f.servers {
		byName[s.name] = answers[i]
	}
	return byName
}

func (f *Fleet) ping(ctx context.Context, s *server) error {
	if f.closed.Load() {
		return ErrClosed
	}
	anew := newServer(s.name, 1, f.timeout)
	anew.dialer = s.dialer
	began := time.Now()
	deadline := began.Add(f.timeout)
	if end, bounded := ctx.Deadline(); bounded && end.Before(deadline) {
		deadline = end
	}
	var err error
	if f.protocol == Meta { // one that only speaks the classic commands is of no use
		var conn net.Conn
		if conn, err = anew.dialMeta(ctx, deadline); err == nil {
			err = conn.Close()
		}
		err = anew.wrap(err)
	} else {
		err = anew.do(ctx, deadline, f.timeout, (*gomemcache.Client).Ping)
	}
	switch admitted := s.admit(); {
	case admitted != nil:
	case err == nil && s.pace > 0:
		_ = s.look(ctx, deadline) // it is there, whatever comes of that
	case err != nil && isOutage(err) && deadline.Sub(began) >= f.timeout/2:
		s.open(err)
	}
	return errors.Join(err, anew.close())
}

// wrap names the server in an error.
func (s *server) wrap(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrDown) {
		return err
	}
	return fmt.Errorf("memcache: server %s: %w", s.name, err)
}
