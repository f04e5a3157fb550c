package memcache

import (
	"context"
	"net"
	"time"
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
func Dialed(c Config, dial func(context.Context, time.Time) (net.Conn, error)) Config {
	c.dialing = dial
	return c
}

// SetClassicFor sets how long the fleet remembers that a server is a classic one.
func (f *Fleet) SetClassicFor(d time.Duration) {
	for _, s := range f.servers {
		s.pipes.classicFor = d
	}
}

// Waiting returns how many calls wait for answers on the meta path.
func (f *Fleet) Waiting() (n int) {
	for _, s := range f.servers {
		for _, p := range s.pipes.list {
			n += int(p.load.Load())
		}
	}
	return n
}
