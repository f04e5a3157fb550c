package events

import (
	"net/netip"
	"slices"
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

// Has reports whether the network is itself one of those given, and in none of the others.
func (n Networks) Has(network netip.Prefix) bool {
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
