package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// DNS names the servers by the addresses of one name, all with the same port. The name
// server has to return all addresses in each answer: with one that returns some of them by
// turns the fleet would change all the time.
//
// IPv6 addresses are taken where the name has no IPv4 ones: of a name that has both, they
// are mostly those of the same servers, and no server may be in a fleet twice. A lookup
// that fails for one kind has failed: what is left must not pass for the whole. With a dot
// at its end the name is the same to every process, whatever domains it searches.
type DNS struct {
	Name     string
	Port     uint16
	Resolver *net.Resolver // nil: the system's
}

// ParseDNS reads a source written as name:port.
func ParseDNS(text string) (DNS, error) {
	name, port, err := net.SplitHostPort(text)
	if err != nil || !isName(name) {
		return DNS{}, fmt.Errorf("%q is not name:port", text)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return DNS{}, fmt.Errorf("%s is an address, not a name", name)
	}
	number, err := portOf(port)
	return DNS{Name: name, Port: number}, err
}

// Servers looks the name up.
func (d DNS) Servers(ctx context.Context) ([]string, error) {
	resolver := d.Resolver
	if resolver == nil {
		resolver = &net.Resolver{StrictErrors: true}
	}
	// Of the addresses that are looked up together, those of one kind may be left out
	// without a word.
	for _, kind := range []string{"ip4", "ip6"} {
		addresses, err := resolver.LookupNetIP(ctx, kind, d.Name)
		if fault, ok := errors.AsType[*net.DNSError](err); ok && fault.IsNotFound {
			continue
		}
		if err != nil {
			return nil, at(d.Name, err)
		}
		if len(addresses) > 0 {
			return d.names(addresses), nil
		}
	}
	return nil, at(d.Name+" has no address", ErrNone)
}

func (d DNS) names(addresses []netip.Addr) []string {
	names := make([]string, len(addresses))
	for i, address := range addresses {
		names[i] = nameOf(address, d.Port)
	}
	return names
}
