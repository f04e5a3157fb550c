package events

import (
	"net/netip"
	"slices"
	"strings"
)

// Networks is a set of IP addresses, given by networks. The zero Networks holds
// none.
type Networks struct {
	// sorted are masked, by address, and none holds another: so an address can
	// lie only in the last that does not begin behind it.
	sorted []netip.Prefix
}

// NewNetworks returns the set of the addresses in those networks. IPv4 ones are
// given as such, not mapped into IPv6. Invalid ones are left out.
func NewNetworks(networks ...netip.Prefix) Networks {
	var all []netip.Prefix
	for _, network := range networks {
		if network.IsValid() {
			all = append(all, network.Masked())
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	var sorted []netip.Prefix
	for _, network := range all {
		if len(sorted) == 0 || !sorted[len(sorted)-1].Overlaps(network) {
			sorted = append(sorted, network)
		}
	}
	return Networks{sorted}
}

// Prefixes returns the networks in order, none of which holds another.
func (n Networks) Prefixes() []netip.Prefix { return slices.Clone(n.sorted) }

// Contains reports whether the address is in one of the networks. An IPv4
// address mapped into IPv6 is that IPv4 address, and a zone is left out.
func (n Networks) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return n.containsAll(netip.PrefixFrom(addr, addr.BitLen()))
}

// containsAll reports whether all addresses of the network are in the set.
func (n Networks) containsAll(network netip.Prefix) bool {
	return slices.ContainsFunc(n.around(network), func(other netip.Prefix) bool {
		return other.Bits() <= network.Bits() && other.Overlaps(network)
	})
}

// has reports whether the network is itself one of those given.
func (n Networks) has(network netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(n.sorted, network, netip.Prefix.Compare)
	return found
}

// around returns the one or two members that can share addresses with the
// network, if any does.
func (n Networks) around(network netip.Prefix) []netip.Prefix {
	at, _ := slices.BinarySearchFunc(n.sorted, network.Masked().Addr(), func(p netip.Prefix, addr netip.Addr) int {
		return p.Addr().Compare(addr)
	})
	return n.sorted[max(at-1, 0):min(at+1, len(n.sorted))]
}

// listedNetwork reads an address or a network of a rules file, or says what is
// wrong.
func listedNetwork(s string) (network netip.Prefix, reason string) {
	network, err := parseNetwork(s)
	switch {
	case err != nil && looksLikeAddress(s) && strings.Contains(s, "%"):
		return network, "the address has a zone: leave the % and what follows out"
	case err != nil:
		return network, "it is neither an address nor a network, as in 192.0.2.7 or 192.0.2.0/24"
	case network != network.Masked():
		return network, "the address is not the first of its network: write its first one, or the address without the / and what follows"
	}
	return network, ""
}

// looksLikeAddress reports whether s begins with an address, be it a network or
// a botched one.
func looksLikeAddress(s string) bool {
	addr, _, _ := strings.Cut(s, "/")
	_, err := netip.ParseAddr(addr)
	return err == nil
}

// listing is a List in the making, of a rule per those kinds.
type listing struct {
	per      []string
	networks []netip.Prefix
	values   map[string]bool
}

// add puts what a rules file lists on the list, or says what is wrong. A network
// inside one of the other list is fine, an exception: deny outranks allow. Addresses
// and networks are of the kind ip, where the rule has it. Other values are of the
// one other kind: of several they could be either, and a value that one of the
// kinds lets a client choose would pass for the other.
func (l *listing) add(s string, other List) (reason string) {
	ip := slices.Contains(l.per, KindIP)
	others := len(l.per)
	if ip {
		others--
	}
	switch {
	case ip && (others == 0 || looksLikeAddress(s)):
		return l.addNetwork(s, other)
	case others > 1:
		return "of several kinds in per it is not clear which this is a value of: make it a rule of its own"
	case s == "" || len(s) > MaxValue:
		return "a value is 1 to 1024 bytes"
	case other.Values[s]:
		return "it is in allow and in deny: leave one out"
	}
	l.values[s] = true
	return ""
}

func (l *listing) addNetwork(s string, other List) (reason string) {
	network, reason := listedNetwork(s)
	switch {
	case reason != "":
		return reason
	case other.Networks.has(network):
		return "it is in allow and in deny: leave one out"
	}
	l.networks = append(l.networks, network)
	return ""
}
