package memcache

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/counterd/counterd/memcache/wire"
	"github.com/counterd/counterd/replication"
)

const (
	// lookEvery is the time between two looks at a server, give or take a quarter;
	// lookAgain the shortest, where there is reason for one.
	lookEvery = 5 * time.Second
	lookAgain = time.Second
	// noStatsFor is how long a server is not asked for statistics that had none, and no clocks are
	// compared through one that hung up on that.
	noStatsFor = time.Minute
)

// examiner looks at a server beside its trips: at its marker, at the secrets and the
// clocks of other processes, and at its statistics.
type examiner struct {
	endpoint *wire.Endpoint
	breaker  *breaker
	memory   *replication.Memory
	secrets  secrets
	clocks   func(net.Conn) (items int, err error)
	timeout  time.Duration
	pace     time.Duration // between two looks; below 0: none is taken
	again    chan struct{} // there is reason to look before the pause is over

	mu      sync.Mutex
	stats   wire.Stats // the last
	noStats time.Time  // until when it is not asked for them
	noClock time.Time  // until when no clocks are compared
}

// watch looks at the server every now and then, until the context ends: so an outage is
// noticed where there is no traffic, a flush_all where no connection breaks, and that a
// full server evicts.
func (x *examiner) watch(ctx context.Context) {
	// Not at once: the first connections are for callers that wait.
	for pause := x.pace / 5; x.rest(ctx, pause); pause = x.pace*3/4 + rand.N(x.pace/2) {
		if x.breaker.up() {
			x.inspect(ctx)
		}
	}
}

// rest waits for the pause, or for less where there is reason to look. It reports
// whether the context goes on.
func (x *examiner) rest(ctx context.Context, pause time.Duration) bool {
	began, timer := time.Now(), time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-x.again:
		timer.Reset(min(lookAgain, x.pace) - time.Since(began))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}

// lookNow has watch look at the server soon.
func (x *examiner) lookNow() {
	select {
	case x.again <- struct{}{}:
	default:
	}
}

// inspect looks at the server, and again where it does not answer, until it counts as
// down.
func (x *examiner) inspect(ctx context.Context) {
	for range maxFailures {
		err := x.look(ctx, time.Now().Add(x.timeout), nil)
		if err == nil || !wire.IsOutage(err) || ctx.Err() != nil || !x.breaker.up() {
			return
		}
		x.breaker.failed(err)
	}
}

// look reads the marker, the mark of secrets, the clocks and the statistics on a connection of its
// own. first is nil where it is not the first look at the whole fleet.
func (x *examiner) look(ctx context.Context, deadline time.Time, first *replication.Participant) error {
	conn, err := x.endpoint.Dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := x.checkMarker(conn, first); err != nil {
		return err
	}
	secrets, err := x.secrets.compare(conn)
	if err != nil { // the connection is of no more use
		return nil
	}
	if clocks, err := x.compareClocks(conn); err == nil {
		x.lookAtStats(conn, int64(secrets+clocks)+1)
	}
	return nil
}

// checkMarker finds out whether the server has lost what it held. What makes it an error is a
// connection that is of no use.
func (x *examiner) checkMarker(conn net.Conn, first *replication.Participant) error {
	if x.pace < 0 {
		return nil
	}
	return x.memory.Check(wire.NewMarkerItem(conn), first)
}

// compareClocks compares the clocks of processes through a server that lets it.
func (x *examiner) compareClocks(conn net.Conn) (items int, err error) {
	x.mu.Lock()
	rest := time.Now().Before(x.noClock)
	x.mu.Unlock()
	if rest {
		return 0, nil
	}
	items, err = x.clocks(conn)
	if err != nil {
		x.mu.Lock()
		x.noClock = time.Now().Add(noStatsFor)
		x.mu.Unlock()
	}
	return items, err
}

// lookAtStats takes in the statistics of a server that has any. Many proxies have none,
// and some hang up: that says nothing of the server. So many of its items are none of a
// counter's.
func (x *examiner) lookAtStats(conn net.Conn, others int64) {
	x.mu.Lock()
	rest := time.Now().Before(x.noStats)
	x.mu.Unlock()
	if rest {
		return
	}
	stats, err := wire.FetchStats(conn)
	x.mu.Lock()
	if err != nil {
		x.noStats = time.Now().Add(noStatsFor)
	} else {
		x.stats = stats
	}
	x.mu.Unlock()
	if err == nil {
		x.memory.Count(replication.Stats{Items: stats.Items, Evictions: stats.Evictions, Others: others})
	}
}

// lastStats returns the statistics of the last look.
func (x *examiner) lastStats() wire.Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats
}
