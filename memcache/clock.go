package memcache

import (
	"net"
	"time"
)

// DefaultSkew is how far the clock may be from those of other processes where nothing else is set: a
// quarter of the default grace.
const DefaultSkew = 500 * time.Millisecond

// ClockAhead returns by how much, at the least, this process's clock is ahead of those of the other
// processes on the servers, or behind them, if negative; 0: as far as is known it agrees with them. It
// is known if another process was seen.
func (f *Fleet) ClockAhead() (ahead time.Duration, known bool) { return f.clocks.Ahead() }

// ClockWrong reports whether that is more than the Skew.
func (f *Fleet) ClockWrong() bool { return f.clocks.Wrong() }

// compareClocks compares the clock through a server, if it is the one for that: the first that is up.
func (f *Fleet) compareClocks(s *server, conn net.Conn) error {
	for _, other := range f.set.Servers() {
		if other.Name() < s.Name() && other.(*server).breaker.up() {
			return nil
		}
	}
	_, err := f.clocks.Exchange(conn)
	return err
}

// since is that of the fleet's capabilities. While the clock is wrong no window is complete.
func (f *Fleet) since(counter string) int64 {
	since := f.set.Since(counter)
	if f.clocks.Wrong() {
		since = max(since, f.common.Clock().Unix())
	}
	return since
}
