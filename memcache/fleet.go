package memcache

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/replication"
	"github.com/counterd/counterd/store"
)

const (
	// DefaultTimeout is the longest that a trip takes where nothing else is set.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultConns is the number of connections to a server where nothing else
	// is set.
	DefaultConns = 64
)

// MaxReplicas is the most copies of a counter.
const MaxReplicas = replication.MaxReplicas

var (
	// ErrClosed is returned by a Fleet that was closed.
	ErrClosed = errors.New("memcache: fleet is closed")

	errListChanged = errors.New("memcache: the servers have changed since: what should have been taken back stays")
)

// Config names the servers of a Fleet. Only Servers is needed.
type Config struct {
	// Servers are host:port or the paths of Unix sockets. A counter's place
	// depends on these names: all processes need the same ones, letter by letter;
	// their order does not matter. SetServers changes them.
	Servers []string
	// Replicas is how many copies of each counter are kept, each on a server of its
	// own, as far as there are servers; 0: 1; at most MaxReplicas. All processes need
	// the same.
	Replicas int
	Timeout  time.Duration // longest time for a trip, connecting included; 0: DefaultTimeout
	// Conns is the most connections to one server; 0: DefaultConns. On the classic
	// path each is for one trip at a time. On the meta path all trips share a few:
	// this bounds them too, but there never are more than two.
	Conns    int
	Protocol Protocol // Auto, unless set
	// Learned is told how a server speaks, Meta or Classic, when that is found out and
	// whenever it changes, from any goroutine; with Classic nobody asks. nil: nobody is.
	OnProtocol func(server string, speaks Protocol)
	// TLS returns how connections are secured; nil: they are not. It is asked for each
	// connection, so that renewed certificates take effect on those opened after; an
	// error is that connection's. Where it names no server, a server's certificate has
	// to be for the host in the server's name. Unix sockets have no TLS.
	TLS func() (*tls.Config, error)
	// Credentials returns what servers are told that demand a user and a password; nil:
	// nothing. It is asked for each connection, too.
	Credentials func() (Credentials, error)
	// KeySecret has the keys and the places of counters depend on it, by HMAC-SHA256: who
	// reads the servers cannot find out who was counted by trying, and nobody can choose
	// features whose counters share a key or a server. It has at least MinKeySecret bytes;
	// nil: there is none, and keys are a plain hash. All processes need the same: those
	// with another count apart, and a new one begins all counters again.
	KeySecret []byte
	// Remembered returns the longest for which any counter is remembered: so long, and a
	// day, a loss is of interest; nil: 30 days.
	Retention func() time.Duration
	// Changed is told what has become of a server, and how it is then, from any
	// goroutine; it must not call Close or SetServers. nil: nobody is.
	OnServerChange func(Change, ServerHealth)
	// Tripped is told of each exchange with a server for a counter when it has ended, of
	// one with several copies for each server by itself; from the goroutine that made it,
	// which waits for it. Several goroutines may tell at the same time, and some are the
	// fleet's own: it must not panic. That a server is known to be down, and is not asked,
	// is told too; but not of trips to several copies, which go only to those that are up.
	// The context is that of the call; of hits that go together, that of the one whose
	// caller makes the trip. What is done without a counter, to find out how a server is, is
	// not told. nil: nobody is.
	OnRoundTrip func(context.Context, RoundTrip)
	Clock       func() time.Time // nil: time.Now

	// For tests.
	dialing func(context.Context, time.Time) (net.Conn, error)
	pace    time.Duration
}

// Fleet keeps buckets on Memcached servers. All buckets of a counter are on one
// server, or on each of as many as it has copies, so a trip has few servers whatever
// the size of the fleet. It is safe for concurrent use.
type Fleet struct {
	config   Config // with all defaults
	replicas int
	timeout  time.Duration
	protocol Protocol
	dialer   dialer
	keyer    *keyer
	clock    func() time.Time // or nil
	set      *replication.Set
	closed   atomic.Bool
	closing  chan struct{}
	began    int64 // Unix second

	changing sync.Mutex // of the servers
	servers  servers
	leaving  sync.WaitGroup // servers that are no longer used
	losses   lossDetectors
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
	if config.Replicas < 0 || config.Replicas > MaxReplicas {
		return nil, fmt.Errorf("memcache: %d copies of each counter are not between 1 and %d", config.Replicas, MaxReplicas)
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	keyer, err := newKeyer(config.KeySecret)
	if err != nil {
		return nil, err
	}
	config.KeySecret = nil // whoever sees the config need not see it
	f := &Fleet{config: config, keyer: keyer, replicas: max(config.Replicas, 1), timeout: config.Timeout, protocol: config.Protocol, clock: config.Clock, closing: make(chan struct{})}
	f.dialer = dialer{tls: config.TLS, credentials: config.Credentials}
	if err := f.dialer.check(); err != nil {
		return nil, err
	}
	f.began = f.wallClock().Unix()
	f.losses.retention = config.Retention
	f.set = replication.New(replication.Config{Replicas: f.replicas, Timeout: f.timeout, Clock: config.Clock, Hash: func(counter string) replication.Hash { return replication.Hash(keyer.hash(counter)) }})
	if err := f.SetServers(ctx, config.Servers); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Fleet) wallClock() time.Time {
	if f.clock != nil {
		return f.clock()
	}
	return time.Now()
}

// SetServers has the fleet keep counters on these servers from here on. Those that it
// has already stay as they are; trips under way to those that go are finished. It is an
// error, and nothing changes, if there are none or one is named wrongly or does not
// resolve. All processes need the same servers: until they have, those that are ahead
// and those that are behind may ask different ones for a counter.
func (f *Fleet) SetServers(ctx context.Context, names []string) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if f.closed.Load() {
		return ErrClosed
	}
	list, gone, err := f.servers.change(ctx, names, f.newServer)
	if err != nil {
		return err
	}
	for _, s := range list {
		if !slices.Contains(f.servers, s) {
			s.belong(f)
		}
	}
	f.servers = list
	members := make([]replication.Server, len(list))
	for i, s := range list {
		members[i] = s
	}
	f.set.Use(members)
	for _, s := range gone {
		f.leaving.Go(func() {
			// A trip that has just begun may not be there yet, nor its take-back.
			select {
			case <-time.After(4 * f.timeout):
			case <-f.closing:
			}
			_ = s.close() // of connections that nobody uses any more
		})
	}
	return nil
}

func (f *Fleet) newServer(name string) *server {
	return newServer(name, f.config.Conns, f.timeout, f.dialer)
}

// Close waits for the trips under way, which end within the timeout, and closes
// all connections. Later calls of the fleet return ErrClosed.
func (f *Fleet) Close() error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if !f.closed.Swap(true) {
		close(f.closing)
	}
	f.set.Close()
	faults := make([]error, len(f.servers))
	var closing sync.WaitGroup
	for i, s := range f.servers {
		closing.Go(func() { faults[i] = s.close() })
	}
	closing.Wait()
	f.leaving.Wait()
	return errors.Join(faults...)
}

// Server returns the name of the server that holds the counter, of several copies the
// first.
func (f *Fleet) Server(counter string) string {
	server, _ := f.set.First(replication.Hash(f.keyer.hash(counter)))
	return server.Name()
}

// Servers returns the names of the servers that hold the counter's copies, in its order.
func (f *Fleet) Servers(counter string) []string {
	var names []string
	for _, s := range f.set.Of(replication.Hash(f.keyer.hash(counter))) {
		names = append(names, s.Name())
	}
	return names
}

// doReplicated makes the round trips on all replicas of each counter.
func (f *Fleet) doReplicated(ctx context.Context, ops []*store.Op) {
	if f.closed.Load() {
		for _, op := range ops {
			op.Err = ErrClosed
		}
		return
	}
	f.set.Do(ctx, ops...)
}

// Capabilities returns what the fleet can do besides round trips.
func (f *Fleet) Capabilities() store.Capabilities {
	return store.Capabilities{
		Replicas: f.replicas, Since: f.Since,
		Writes: store.KindsOf(store.Add, store.Subtract, store.Hint, store.Delete, store.Create, store.Swap),
	}
}

// Replicas returns how many copies of a counter the fleet keeps.
func (f *Fleet) Replicas() int { return f.replicas }

// Ping asks every server whether it is there, side by side and each on a new
// connection, and returns for each, by its name, nil or why not. What they remember is
// known then, and one that does not answer is down.
func (f *Fleet) Ping(ctx context.Context) map[string]error {
	list := f.set.Servers()
	answers := make([]error, len(list))
	all := newBarrier(len(list), f.timeout/2)
	var pings sync.WaitGroup
	for i, s := range list {
		pings.Go(func() { answers[i] = f.ping(ctx, s.(*server), all.participant()) })
	}
	pings.Wait()
	byName := make(map[string]error, len(answers))
	for i, s := range list {
		byName[s.Name()] = answers[i]
	}
	return byName
}

func (f *Fleet) ping(ctx context.Context, s *server, first *participant) error {
	defer first.arrive()
	if f.closed.Load() {
		return ErrClosed
	}
	anew := newServer(s.name, 1, f.timeout, f.dialer)
	anew.dialing = s.dialing
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
		err = anew.do(ctx, deadline, f.timeout, func(l *pooledConn) error { return l.client.Ping() })
	}
	switch admitted := s.admit(); {
	case admitted != nil:
	case err == nil && s.pace > 0:
		_ = s.look(ctx, deadline, first) // it is there, whatever comes of that
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

// Differing returns counters whose copies were seen to differ, each once. Gaps returns a
// number that grows whenever a server may have missed something. Owed returns how many
// adds have to be made up for, on how many servers.
func (f *Fleet) Differing() []string               { return f.set.Differing() }
func (f *Fleet) Gaps() uint64                      { return f.set.Gaps() }
func (f *Fleet) PendingHints() (adds, servers int) { return f.set.PendingHints() }

// ServersUp returns the names of the servers that have the counter and are up.
func (f *Fleet) ServersUp(counter string) []string { return f.set.ServersUp(counter) }
