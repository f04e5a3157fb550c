package memcache

import (
	"context"
	"net"
	"time"
	"unsafe"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
)

// Unwatched returns the config of a fleet that looks at no server beside its trips.
func Unwatched(c Config) Config {
	c.pace = -1
	return c
}

// Paced returns the config of a fleet that looks at its servers so often.
func Paced(c Config, pace time.Duration) Config {
	c.pace = pace
	return c
}

// Dialed returns the config of a fleet that opens connections with the function.
func Dialed(c Config, dial func(ctx context.Context, name string, deadline time.Time) (net.Conn, error)) Config {
	c.dialing = dial
	return c
}

// SetClassicFor sets how long the fleet remembers that a server is a classic one.
func (f *Fleet) SetClassicFor(d time.Duration) {
	for _, s := range f.servers {
		s.dialect.lasts = d
	}
}

// SetFailures sets how often in a row the fleet's first server has failed.
func (f *Fleet) SetFailures(n int32) { f.servers[0].breaker.failures.Store(n) }

// Failures returns how often in a row the fleet's first server has failed.
func (f *Fleet) Failures() int32 { return f.servers[0].breaker.failures.Load() }

// Stall has the fleet find that this process did not run for the last hour.
func (f *Fleet) Stall() { f.common.stalls.tick.Add(-int64(time.Hour)) }

// Mark returns the mark of the fleet's secret.
func (f *Fleet) Mark() string { return f.common.mark }

// Waiting returns how many calls wait for answers on the meta path.
func (f *Fleet) Waiting() (n int) {
	for _, s := range f.servers {
		n += s.pipeline.Load()
	}
	return n
}

// Since returns what the fleet's capabilities do.
func (f *Fleet) Since(counter string) int64 { return f.Capabilities().Since(counter) }

// StartCopy begins an op to the fleet's first server as to one of several copies.
func (f *Fleet) StartCopy(ctx context.Context, op *store.Op, ended chan<- int) replica.Exchange {
	first := f.set.Servers()[0]
	return first.Start(ctx, time.Now().Add(f.common.Timeout), replica.Counter{Name: op.Counter, Hash: f.keyer.hash(op.Counter)}, op, 0, ended, f.set)
}

// SetClockForward has the wall clock be ahead, by so many seconds, of what it was when the
// process began. It reports whether it is: package time has no way to do that, so it reaches
// into the bits of a time, of which some are the wall clock's seconds. The others, which
// are the monotonic clock's, stay.
func SetClockForward(seconds int64) bool {
	const nanosecondBits = 30
	wall, age := memproto.Epoch.Round(0), time.Since(memproto.Epoch)
	*(*uint64)(unsafe.Pointer(&memproto.Epoch)) -= uint64(seconds << nanosecondBits)
	return wall.Sub(memproto.Epoch.Round(0)) == time.Duration(seconds)*time.Second && time.Since(memproto.Epoch)-age < time.Minute
}

// Server returns the name of the server that holds the counter, of several copies the
// first.
func (f *Fleet) Server(counter string) string {
	server, _ := f.set.First(f.keyer.hash(counter))
	return server.Name()
}

// Keys lists the items of the fleet's first server.
func (f *Fleet) Keys(ctx context.Context, yield func(replica.Key) error) error {
	return f.servers[0].Keys(ctx, yield)
}
