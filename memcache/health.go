package memcache

import (
	"fmt"
	"time"

	"github.com/counterd/counterd/memcache/copies"
)

// Change is what has become of a server.
type Change int

const (
	Down        Change = iota + 1 // it does not answer: calls fail at once, and it is probed
	Back                          // it answers again
	Emptied                       // it has forgotten what it held before Since: it came back empty, was flushed, or is new
	Mended                        // what it had forgotten was copied to it from other servers, as far as this process knows it
	Evicting                      // it is full, and has dropped what had not expired: counts on it may be too low
	OtherSecret                   // a process that uses it has another KeySecret than this one, which may have none: the two count apart
)

var changeNames = [...]string{Down: "down", Back: "back", Emptied: "emptied", Mended: "mended", Evicting: "evicting", OtherSecret: "other_secret"}

// String returns down, back, emptied, mended, evicting or other_secret.
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
	// known it never has. A loss of longer ago than the longest window and a day is none.
	Since    int64
	Evicting bool // what it has forgotten went because it is full
	// OtherSecret: another process that uses it has another KeySecret, or has one where this
	// one has none: the two count apart.
	OtherSecret bool
	Speaks      Protocol    // Meta or Classic; Auto: it was not asked yet
	Stats       ServerStats // of the last look at it; zero where it gives none
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

// Since returns the Unix second since which nothing of the counter was lost with its
// servers, nor by moving to others; 0: as far as is known nothing ever was. Of a loss it is
// that of the server's clock and of the moment when it was noticed, whichever is later.
// With several copies nothing is lost as long as one that is up has it all.
func (f *Fleet) Since(counter string) int64 {
	if f.memories.since.Load() == 0 && f.set.Changed() == 0 {
		return 0
	}
	return f.set.Since(copies.Hash(f.keyer.hash(counter)), func(s copies.Server) int64 { return s.(*server).since() })
}

// Mended notes that the copies of all counters that this process knows were compared, and
// made good, for all reasons up to that number of Gaps. So servers that came back empty,
// or are new, count as whole again; but not where so many did that counters may have lost
// all their copies, nor those that had lost what they held before this process began: it
// does not know what that was.
func (f *Fleet) Mended(gaps uint64) {
	if f.replicas < 2 {
		return
	}
	var forgetful []*server
	for _, member := range f.set.Servers() {
		s := member.(*server)
		if !s.up() {
			return // it may lack what nobody could see
		}
		if s.since() != 0 {
			forgetful = append(forgetful, s)
		}
	}
	if !f.set.Mended(len(forgetful), gaps) {
		return
	}
	for _, s := range forgetful {
		if s.since() >= f.began-maxAhead && s.forgive(gaps) {
			s.changed(Mended)
		}
	}
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
	h.OtherSecret = s.memory.other != ""
	h.Evicting, h.Stats = h.Since != 0 && s.memory.evicting && h.Since == s.memory.lost, s.memory.stats
	s.memory.all.mu.Unlock()
	return h
}

// gap notes that the server may have missed something.
func (s *server) gap() { s.fleet.set.Gap() }

// changed tells of a change. No lock is held meanwhile.
func (s *server) changed(change Change) {
	if change == Back || change == Emptied {
		s.gap()
	}
	if s.change != nil {
		s.change(change, s.health())
	}
}
