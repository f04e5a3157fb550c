package memcache

import (
	"fmt"
	"time"
)

// Change is what has become of a server.
type Change int

const (
	Down     Change = iota + 1 // it does not answer: calls fail at once, and it is probed
	Back                       // it answers again
	Emptied                    // it has forgotten what it held before Since: it came back empty, was flushed, or is new
	Evicting                   // it is full, and has dropped what had not expired: counts on it may be too low
)

var changeNames = [...]string{Down: "down", Back: "back", Emptied: "emptied", Evicting: "evicting"}

// String returns down, back, emptied or evicting.
func (c Change) String() string {
	if c >= Down && int(c) < len(changeNames) {
		return changeNames[c]
	}
	return fmt.Sprintf("Change(%d)", int(c))
}

// ServerHealth is how a server is, as far as this process knows. It may be behind by a
// few seconds where there is no traffic.
type ServerHealth struct {
	Name     string
	Up       bool
	Err      error     // why it is not up: the last failure
	Down     time.Time // since when it is not up
	Openings uint64    // how often it was found to be down
	// Since is the Unix second since which it has forgotten nothing; 0: as far as is
	// known it never has. A loss of more than 31 days ago is none.
	Since    int64
	Evicting bool        // what it has forgotten went because it is full
	Speaks   Protocol    // Meta or Classic; Auto: it was not asked yet
	Stats    ServerStats // of the last look at it; zero where it gives none
}

// Health returns how the servers are, in the order of the config, without asking
// them.
func (f *Fleet) Health() []ServerHealth {
	all := make([]ServerHealth, 0, len(f.servers))
	for _, s := range f.servers {
		all = append(all, s.health())
	}
	return all
}

// Since returns the Unix second since which nothing of the counter was lost with its
// server; 0: as far as is known nothing ever was. It is that of the server's clock and
// of the moment when the loss was noticed, whichever is later.
func (f *Fleet) Since(counter string) int64 {
	if f.memories.since.Load() == 0 {
		return 0
	}
	return f.servers.of(hashCounter(counter)).since()
}

func (s *server) health() ServerHealth {
	h := ServerHealth{Name: s.name, Up: s.up(), Openings: s.breaker.openings.Load(), Since: s.since(), Speaks: Protocol(s.known.Load())}
	if s.protocol == Classic {
		h.Speaks = Classic
	}
	s.breaker.mu.Lock()
	h.Err, h.Down = s.breaker.fault, s.breaker.since
	s.breaker.mu.Unlock()
	s.memory.all.mu.Lock()
	h.Evicting, h.Stats = h.Since != 0 && s.memory.evicting && h.Since == s.memory.lost, s.memory.stats
	s.memory.all.mu.Unlock()
	return h
}

// changed tells of a change. No lock is held meanwhile.
func (s *server) changed(change Change) {
	if s.change != nil {
		s.change(change, s.health())
	}
}
