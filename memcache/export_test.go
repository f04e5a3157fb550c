package memcache

import "time"

// SetClassicFor sets how long the fleet remembers that a server is a classic one.
func (f *Fleet) SetClassicFor(d time.Duration) {
	for _, s := range f.servers {
		s.pipes.classicFor = d
	}
}
