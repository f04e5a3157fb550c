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
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/replica/clocks"
	"github.com/counterd/counterd/internal/store"
)

const (
	// DefaultTimeout is the longest that a trip takes where nothing else is set.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultConns is the number of connections to a server where nothing else
	// is set.
	DefaultConns = 64
)

// MaxReplicas is the most copies of a counter.
const MaxReplicas = replica.MaxReplicas

var (
	// ErrClosed is returned by a Fleet that was closed.
	ErrClosed = memproto.ErrClosed

	errListChanged = errors.New("memcache: the servers have changed since: what should have been rolled back stays")
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
	// OnProtocol is called with the protocol of a server, Meta or Classic, when it is
	// detected and whenever it changes, from any goroutine. With Protocol Classic there is
	// no detection. nil: it is not called.
	OnProtocol func(server string, speaks Protocol)
	// TLS returns how connections are secured; nil: they are not. It is asked for each
	// connection, so that renewed certificates take effect on those opened after; an
	// error is that connection's. Where it names no server, a server's certificate has
	// to be for the host in the server's name. Unix sockets have no TLS.
	TLS func() (*tls.Config, error)
	// Credentials returns the login for servers that demand a user and a password; nil:
	// none is sent. It is asked for each connection, too.
	Credentials func() (Credentials, error)
	// KeySecret has the keys and the places of counters depend on it, by HMAC-SHA256: a
	// reader of the servers cannot find the counted features by trying, and no client can
	// choose features whose counters share a key or a server. It has at least MinKeySecret
	// bytes; nil: there is none, and keys are a plain hash. All processes need the same:
	// processes with another one count apart, and a new one begins all counters again.
	KeySecret []byte
	// Retention returns the longest for which any counter is remembered: so long, and a
	// day, a loss is of interest; nil: 32 days.
	Retention func() time.Duration
	// OnServerChange is called with each change of a server's health, and its health then,
	// from any goroutine; it must not call Close or SetServers. nil: it is not called.
	OnServerChange func(Change, ServerHealth)
	// OnRoundTrip is called after each exchange with a server for a counter: for a trip to
	// several replicas, once for each server. The goroutine that made the exchange calls
	// it, and waits for it. Several goroutines may call it at the same time, and some are
	// the fleet's own: it must not panic. A call that fails at once because the server is
	// known to be down is reported too; but not in a trip to several replicas, which goes
	// only to servers that are up. The context is that of the call; for coalesced hits,
	// that of the hit whose caller makes the trip. Requests without a counter, which
	// examine a server's health, are not reported. nil: it is not called.
	OnRoundTrip func(context.Context, RoundTrip)
	Clock       func() time.Time // nil: time.Now
	// Skew is how far this process's clock may be from those of the other processes on the servers;
	// 0: DefaultSkew. While it is further away, all of Capabilities.Since is now.
	Skew time.Duration
	// OnClockChange is called when the clock is found to be further away, by at least so much ahead or,
	// if negative, behind, and when that is over, from any goroutine. nil: it is not called.
	OnClockChange func(ahead time.Duration, wrong bool)

	// For tests.
	dialing func(ctx context.Context, name string, deadline time.Time) (net.Conn, error)
	pace    time.Duration
}

// Credentials are the user and the password that a server demands that was started with -Y.
type Credentials = memproto.Credentials

// ReadCredentials reads them from the first line of a file, user:password, as in Memcached's own.
func ReadCredentials(path string) (Credentials, error) { return memproto.ReadCredentials(path) }

// Dial opens a connection as a fleet of this config does, with TLS and the credentials where
// those are set: for whatever else speaks as a server does. It takes until the context's
// deadline at the most; the connection has none.
func (c Config) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	return memproto.Dialer{TLS: c.TLS, Credentials: c.Credentials}.Dial(ctx, network, address, deadline)
}

// Fleet keeps buckets on Memcached servers. All buckets of a counter are on one
// server, or on each of as many as it has copies, so a trip has few servers whatever
// the size of the fleet. It is safe for concurrent use.
type Fleet struct {
	common   *common
	replicas int
	dialer   memproto.Dialer
	keyer    *keyer
	set      *replica.Set
	clocks   *clocks.Clocks
	closing  chan struct{}

	changing sync.Mutex // protects the fields up to leaving
	servers  servers    // in use
	names    []string   // of the last SetServers: those of servers, and of aliases
	aliases  map[string]bool
	looking  context.Context // of the looks at aliases, until the next SetServers or Close
	endLooks context.CancelFunc
	leaving  sync.WaitGroup // servers that are no longer used, and the stall detector
}

// NewFleet returns the fleet of the servers in the config. It is an error if one
// is named wrongly, not if it is down, or if its name has no address yet. Close frees
// what the fleet holds.
func NewFleet(ctx context.Context, config Config) (*Fleet, error) {
	if config.Timeout < 0 || config.Conns < 0 {
		return nil, fmt.Errorf("memcache: the timeout, %s, and the connections, %d, cannot be negative", config.Timeout, config.Conns)
	}
	if !config.Protocol.known() {
		return nil, fmt.Errorf("memcache: %s is none of auto, meta and classic", config.Protocol)
	}
	if config.Replicas < 0 || config.Replicas > MaxReplicas {
		return nil, fmt.Errorf("memcache: %d replicas of each counter are not between 1 and %d", config.Replicas, MaxReplicas)
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.OnClockChange == nil {
		config.OnClockChange = func(time.Duration, bool) {}
	}
	keyer, err := newKeyer(config.KeySecret)
	if err != nil {
		return nil, err
	}
	config.KeySecret = nil // keep the secret out of sight of readers of the config
	f := &Fleet{common: &common{Config: config, mark: keyer.mark}, keyer: keyer, replicas: max(config.Replicas, 1), closing: make(chan struct{}),
		aliases: map[string]bool{}, endLooks: func() {}}
	f.dialer = memproto.Dialer{TLS: config.TLS, Credentials: config.Credentials}
	if err := f.dialer.Check(); err != nil {
		return nil, err
	}
	f.set = replica.New(replica.Config{
		Replicas: f.replicas, Timeout: config.Timeout, Clock: config.Clock, Retention: config.Retention,
		Hash: keyer.hash,
	})
	f.common.hurry = func() {
		for _, s := range f.set.Servers() {
			s.(*server).examiner.hurry()
		}
	}
	f.common.stalls.start(config.Timeout)
	f.clocks = clocks.New(config.Clock, cmp.Or(config.Skew, DefaultSkew), config.OnClockChange)
	if err := f.SetServers(ctx, config.Servers); err != nil {
		return nil, err
	}
	f.leaving.Go(func() { f.common.stalls.run(f.closing) })
	return f, nil
}

// SetServers has the fleet keep counters on these servers from here on. Servers that it has
// already stay as they are; trips under way to removed servers are finished. It is an
// error, and nothing changes, if there are none or one is named wrongly. All processes need the same servers: until they
// have, processes ahead and processes behind may ask different servers for a counter.
func (f *Fleet) SetServers(ctx context.Context, names []string) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if err := f.setServers(ctx, names); err != nil {
		return err
	}
	f.names = slices.Clone(names)
	clear(f.aliases)
	f.endLooks()
	f.looking, f.endLooks = context.WithCancel(context.Background())
	return nil
}

// setServers is SetServers, with changing locked.
func (f *Fleet) setServers(ctx context.Context, names []string) error {
	if f.common.closed.Load() {
		return ErrClosed
	}
	list, gone, err := f.servers.change(ctx, names, func(name string) *server { return newServer(name, f.common, f.dialer) })
	if err != nil {
		return err
	}
	for _, s := range list {
		if !slices.Contains(f.servers, s) {
			s.examiner.clocks = func(conn net.Conn) error { return f.compareClocks(s, conn) }
			s.examiner.memory = f.set.Join(s.Name(), len(f.servers) > 0, func(loss replica.Loss) {
				s.changed(changeOf[loss])
				if loss == replica.Same {
					f.dropAlias(s)
				}
			})
		}
	}
	f.servers = list
	members := make([]replica.Server, len(list))
	for i, s := range list {
		members[i] = s
	}
	f.set.Use(members)
	for _, s := range gone {
		f.leaving.Go(func() {
			// A trip that has just begun may not be there yet, nor its rollback.
			select {
			case <-time.After(4 * f.common.Timeout):
			case <-f.closing:
			}
			_ = s.close() // of connections without a caller
		})
	}
	return nil
}

// Close waits for the trips under way, which end within the timeout, and closes
// all connections. Later calls of the fleet return ErrClosed.
func (f *Fleet) Close() error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if !f.common.closed.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), f.common.Timeout)
		f.set.GiveUp(ctx)
		cancel()
		f.common.closed.Store(true)
		close(f.closing)
	}
	f.endLooks()
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

// Servers returns the names of the servers that hold the counter's copies, in its order.
func (f *Fleet) Servers(counter string) []string {
	var names []string
	for _, s := range f.set.Of(f.keyer.hash(counter)) {
		names = append(names, s.Name())
	}
	return names
}

// Capabilities returns what the fleet can do besides round trips.
func (f *Fleet) Capabilities() store.Capabilities {
	can := f.set.Capabilities()
	can.Since = f.since
	// Its hash, which a reader of the servers sees, too.
	can.Alias = func(counter string) string {
		hash := f.keyer.hash(counter)
		return store.NewAlias(counter, hash[:])
	}
	return can
}

// Ping asks every server whether it is there, side by side and each on a new
// connection, and returns for each, by its name, nil or why not. What they remember is
// known then, and one that does not answer is down.
func (f *Fleet) Ping(ctx context.Context) map[string]error {
	list := f.set.Servers()
	answers := make([]error, len(list))
	var pings sync.WaitGroup
	for i, s := range list {
		pings.Go(func() { answers[i] = s.(*server).ping(ctx) })
	}
	pings.Wait()
	byName := make(map[string]error, len(answers))
	for i, s := range list {
		byName[s.Name()] = answers[i]
	}
	return byName
}

// Health returns how the servers are, in the order of the config, without asking
// them.
func (f *Fleet) Health() []ServerHealth {
	list := f.set.Servers()
	all := make([]ServerHealth, len(list))
	for i, s := range list {
		all[i] = s.(*server).health()
	}
	return all
}

// Differing returns counters whose replicas were seen to differ, each once. Missed returns
// counters of which a server that is up did not acknowledge bytes. Gaps returns a number that
// grows whenever a server may have missed something. PendingHints returns how many adds are to be
// replayed, to how many servers.
func (f *Fleet) Differing() []string               { return f.set.Differing() }
func (f *Fleet) Missed() []string                  { return f.set.Missed() }
func (f *Fleet) Settle(counter string)             { f.set.Settle(counter) }
func (f *Fleet) Gaps() uint64                      { return f.set.Gaps() }
func (f *Fleet) PendingHints() (adds, servers int) { return f.set.PendingHints() }

// Claim claims the copying to a server of what it has lost, so that this process does it and no
// other; nil: there is nothing to copy now. Unlisted reports whether a server does not list its
// keys: nothing can be copied from it but what this process knows.
func (f *Fleet) Claim(ctx context.Context) (*replica.Copying, error) { return f.set.Claim(ctx) }
func (f *Fleet) Unlisted() bool                                      { return f.set.Unlisted() }

// ServersUp returns the names of the servers that have the counter and are up.
func (f *Fleet) ServersUp(counter string) []string { return f.set.ServersUp(counter) }
