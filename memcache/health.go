package memcache

import (
	"fmt"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
)

// Lost is what a server has lost or missed, and how much of that was copied to it again.
type Lost = replica.Lost

// Change is what has become of a server.
type Change int

const (
	Down        Change = iota + 1 // it does not answer: calls fail at once, and it is probed
	Back                          // it answers again, or its name leads to a server that no other name leads to, after Same
	Emptied                       // it has forgotten what it held before Since: it came back empty, a flush_all came, or it is new
	Repaired                      // what it had forgotten or missed was copied to it from other servers
	Evicting                      // it is full, and has dropped what had not expired: counts on it may be too low
	OtherSecret                   // a process that uses it has another KeySecret than this one, which may have none: the two count apart
	Several                       // its name leads to several servers, which count apart
	Same                          // another name leads to the same server: this one is not used
)

var changeNames = [...]string{Down: "down", Back: "back", Emptied: "emptied", Repaired: "repaired", Evicting: "evicting", OtherSecret: "other_secret", Several: "several", Same: "same"}

// String returns down, back, emptied, repaired, evicting, other_secret, several or same.
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
	// Lost is what it has lost or missed. What was longer ago than the longest window and a day
	// is nothing.
	Lost
	// OtherSecret: another process that uses it has another KeySecret, or has one where this
	// one has none: the two count apart.
	OtherSecret bool
	OtherHost   string      // of that process; empty if it is not known
	SameAs      string      // another name that leads to the same server: this one is not used
	Several     bool        // its name leads to several servers, which count apart
	Speaks      Protocol    // Meta or Classic; Auto: it was not asked yet
	Stats       ServerStats // of the last look at it; zero where it gives none
}

// ServerStats is what a server says of itself, as far as it does.
type ServerStats = memproto.Stats
