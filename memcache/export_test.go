package memcache

import "time"

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
