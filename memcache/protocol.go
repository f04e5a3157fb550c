package memcache

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/memproto"
)

// Protocol is how a Fleet speaks to its servers.
type Protocol int

const (
	// Auto asks each server: one that knows the meta commands gets those, any
	// other gets the classic ones. What a server said is remembered for a minute.
	Auto Protocol = iota
	// Meta speaks the meta commands (Memcached 1.6) and no others: trips of many
	// callers go together, on few connections. A server that does not know them
	// makes trips fail.
	Meta
	// Classic speaks the commands that every Memcached and every proxy knows, and
	// sends each add after the answer to the one before. Behind a proxy that
	// spreads or reorders the commands of one connection, Memcached's own or
	// mcrouter, it has to be this one even where the proxy knows the meta
	// commands: exactness rests on the order of the adds.
	Classic
)

var protocolNames = [...]string{Auto: "auto", Meta: "meta", Classic: "classic"}

// ParseProtocol reads what String writes: auto, meta or classic.
func ParseProtocol(name string) (Protocol, error) {
	for p, known := range protocolNames {
		if name == known {
			return Protocol(p), nil
		}
	}
	return 0, fmt.Errorf("%q is none of auto, meta and classic", name)
}

// String returns auto, meta or classic.
func (p Protocol) String() string {
	if p.known() {
		return protocolNames[p]
	}
	return fmt.Sprintf("Protocol(%d)", int(p))
}

// MarshalText returns what String does.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what String writes.
func (p *Protocol) UnmarshalText(text []byte) (err error) {
	*p, err = ParseProtocol(string(text))
	return err
}

func (p Protocol) known() bool { return p >= 0 && int(p) < len(protocolNames) }

// How long it is remembered that a server does not know the meta commands: it may
// be replaced by one that does, or stand behind a name with others that do.
const (
	classicFor       = time.Minute
	classicReconnect = time.Second // at least, also where connections come and go
)

// dialect is which commands a server speaks.
type dialect struct {
	protocol Protocol      // of the config
	lasts    time.Duration // how long it is remembered that it is a classic server: classicFor
	since    atomic.Int64  // when it last was found to be a classic server
	until    atomic.Int64  // until when that is taken for granted; 0: it is not known to be one
	asking   atomic.Bool   // it is being asked again
	known    atomic.Int32  // the Protocol that learned was called with last; 0: none
	learned  func(speaks Protocol)
}

// speaks returns what is known: Meta or Classic, or Auto where it was not asked yet.
func (d *dialect) speaks() Protocol {
	if d.protocol == Classic {
		return Classic
	}
	return Protocol(d.known.Load())
}

// isClassic reports whether the server is known not to know the meta commands. After a
// while, ask is true: the caller has it asked again in the background, and
// sets asking to false in the end: trips go the classic way meanwhile.
func (d *dialect) isClassic(now int64) (classic, ask bool) {
	until := d.until.Load()
	return until != 0, until != 0 && now >= until && d.asking.CompareAndSwap(false, true)
}

// learn remembers what came of asking. A server that could not be asked is not
// taken for a classic one: the next trip finds out.
func (d *dialect) learn(err error) {
	now := memproto.Instant(time.Now())
	// With Protocol Meta nothing else goes, and connections may break for other reasons.
	hangsUp := d.protocol == Meta && errors.Is(err, memproto.ErrHungUp)
	if errors.Is(err, memproto.ErrClassic) && !hangsUp {
		d.since.Store(now)
		d.until.Store(now + int64(d.lasts))
		d.tell(Classic)
		return
	}
	d.until.Store(0)
	if err == nil {
		d.tell(Meta)
	}
}

// tell says how the server speaks, if that is news.
func (d *dialect) tell(speaks Protocol) {
	if d.known.Swap(int32(speaks)) != int32(speaks) && d.learned != nil {
		d.learned(speaks)
	}
}

// reconnected notes that a classic connection was opened anew: there may be another
// server behind it.
func (d *dialect) reconnected() {
	now := memproto.Instant(time.Now())
	if d.until.Load() != 0 && now-d.since.Load() > int64(classicReconnect) {
		d.until.Store(min(now, d.until.Load()))
	}
}
