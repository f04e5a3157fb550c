package memcache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/replication"
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
	if f.losses.since.Load() == 0 && f.set.Changed() == 0 {
		return 0
	}
	return f.set.Since(replication.Hash(f.keyer.hash(counter)), func(s replication.Server) int64 { return s.(*server).since() })
}

// Mended notes that the copies of all counters that this process knows were compared, and
// made good, for all reasons up to that number of Gaps. So servers that came back empty,
// or are new, count as whole again: those of which this process knew, when they lost what
// they held, all counters that matter. Where so many had lost something, and it was not made
// good in between, that counters may have lost all their copies, they do not; but what comes
// later is not held against them.
func (f *Fleet) Mended(gaps uint64) {
	if f.replicas < 2 || !f.lookAtAll() {
		return // a server that does not answer may lack counts
	}
	for _, s := range f.settle(gaps) {
		s.changed(Mended)
	}
}

// lookAtAll looks at all servers, which are up if it returns true: that one has lost
// something while counters were compared is known then. Where one does not answer counters
// are to be compared again.
func (f *Fleet) lookAtAll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var failed atomic.Bool
	var looks sync.WaitGroup
	for _, member := range f.set.Servers() {
		looks.Go(func() {
			s := member.(*server)
			if !s.up() {
				failed.Store(true) // when it is back counters are compared
			} else if err := s.look(ctx, deadline, nil); err != nil {
				failed.Store(true)
				s.gap()
			}
		})
	}
	looks.Wait()
	return !failed.Load()
}

// settle ends the losses that were made good, and those that cannot be. It returns the
// servers that count as whole again.
func (f *Fleet) settle(gaps uint64) (whole []*server) {
	f.losses.mu.Lock()
	defer f.losses.mu.Unlock()
	now := f.wallClock().Unix()
	var lossy []*server
	losses := 0
	for _, member := range f.set.Servers() {
		s := member.(*server)
		if lost := s.losses.unrepaired(); lost != 0 && lost >= now-f.losses.lossLasts() {
			lossy = append(lossy, s)
			if !f.set.Joined(s) { // else what it lacks has moved to it
				losses++
			}
		}
	}
	if moved := f.set.Changed(); moved != 0 && !f.knewAll(moved) {
		return nil
	}
	repaired := f.set.Repaired(losses, gaps)
	if f.set.Gaps() != gaps {
		return nil
	}
	for _, s := range lossy {
		// A full server goes on to drop what it is given.
		if s.losses.evicting || !f.knewAll(s.losses.unrepaired()) {
			continue
		}
		s.losses.settle(repaired)
		whole = append(whole, s)
	}
	f.losses.weigh(now)
	return slices.DeleteFunc(whole, func(s *server) bool { return s.since() != 0 })
}

// knewAll reports whether this process knew, in that second, all counters that matter: it
// had run for as long as any is remembered; or no server held any when it began. The
// memories are locked.
func (f *Fleet) knewAll(second int64) bool {
	if second-f.began >= int64(f.losses.longestRetention()/time.Second) {
		return true
	}
	wasEmpty := !f.losses.held
	for s := range f.losses.servers { // those too that are being closed
		wasEmpty = wasEmpty && s.losses.wasEmpty
	}
	return wasEmpty && second >= f.began
}

func (s *server) health() ServerHealth {
	h := ServerHealth{Name: s.name, Up: s.up(), Openings: s.breaker.openings.Load(), Since: s.since(), Speaks: Protocol(s.known.Load())}
	if s.protocol == Classic {
		h.Speaks = Classic
	}
	s.breaker.mu.Lock()
	h.Err, h.Down = s.breaker.fault, s.breaker.since
	s.breaker.mu.Unlock()
	s.losses.all.mu.Lock()
	h.OtherSecret = s.losses.other != ""
	h.Evicting, h.Stats = h.Since != 0 && s.losses.evicting && h.Since == s.losses.lost, s.losses.stats
	s.losses.all.mu.Unlock()
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
