package memcache

import "fmt"

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
