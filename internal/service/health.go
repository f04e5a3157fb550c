package service

import (
	"fmt"
	"time"
)

// ServerState is the state of one of the store's servers.
type ServerState struct {
	Name      string
	Reachable bool
	EmptyFrom time.Time // it has lost what it held before; zero: nothing
	Evicting  bool      // that is so because it is full
	Away      bool      // that is so because it was away: it has missed something
	// Repairing: what it lacks is copied to it, and Repaired percent of that was. Unrepairable:
	// other servers have lost some of that, too.
	Repairing    bool
	Repaired     int
	Unrepairable bool
	// OtherSecret: another process that uses it has another key secret, and counts apart.
	OtherSecret bool
	OtherHost   string // of that process; empty if it is not known
	Several     bool   // its name leads to several servers, which count apart
}

// String returns the state in words, without the name.
func (s ServerState) String() string {
	text := "reachable"
	if !s.Reachable {
		text = "unreachable"
	}
	since := s.EmptyFrom.UTC().Format(time.RFC3339)
	switch {
	case s.EmptyFrom.IsZero():
	case s.Away:
		text += ", away until " + since
	case s.Evicting:
		text += ", full, incomplete before " + since
	default:
		text += ", empty since " + since
	}
	switch {
	case s.Repairing && !s.Evicting:
		text += fmt.Sprintf(", repairing %d%%", s.Repaired)
	case s.Unrepairable:
		text += ", cannot be repaired"
	}
	if s.Several {
		text += ", leads to several servers: use dns:NAME:PORT"
	}
	if s.OtherSecret {
		text += ", another key secret in use"
		if s.OtherHost != "" {
			text += " by " + s.OtherHost
		}
	}
	return text
}

// Health says whether a process is ready for requests. The zero Health always is.
type Health struct {
	// Servers returns the states of the store's servers, as far as they are known, without a
	// round trip. If it is nil, or returns none, the store has no servers, and is always there.
	Servers func() []ServerState
	// Clock returns what is wrong with the process's clock; empty: nothing is known. nil: it never is.
	Clock func() string
	// Drain returns whether the process is about to end: a client with a connection should then
	// open its next one to another process. nil: it never is.
	Drain func() bool
}

// Ready returns the states of the servers. It returns ErrDraining, or ErrUnready with the states if no
// server answers. One server that answers is enough: to take all processes out of service
// because one of many servers is down would make a part's outage that of the whole.
func (h Health) Ready() ([]ServerState, error) {
	if h.Drain != nil && h.Drain() {
		return nil, ErrDraining
	}
	if h.Servers == nil {
		return nil, nil
	}
	states := h.Servers()
	if len(states) == 0 {
		return nil, nil
	}
	for _, state := range states {
		if state.Reachable {
			return states, nil
		}
	}
	return states, ErrUnready
}
