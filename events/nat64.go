package events

import "net/netip"

// wellKnownNAT64 is the prefix of RFC 6052 by which all NAT64 translators may write IPv4 addresses.
var wellKnownNAT64 = netip.MustParsePrefix("64:ff9b::/96")

// ValidNAT64 reports whether the network can be the prefix of a NAT64, by RFC 6052.
func ValidNAT64(network netip.Prefix) bool {
	switch network.Bits() {
	case 32, 40, 48, 56, 64, 96:
		return network.Addr().Is6()
	}
	return false
}

// WithoutNAT64 returns the IPv4 address in an address of 64:ff9b::/96, or of the first of the
// prefixes that contains it. Others it returns as they are.
func WithoutNAT64(address netip.Addr, prefixes ...netip.Prefix) netip.Addr {
	if !address.Is6() {
		return address
	}
	if wellKnownNAT64.Contains(address) {
		return embedded(address, wellKnownNAT64.Bits())
	}
	for _, prefix := range prefixes {
		if prefix.Contains(address) {
			return embedded(address, prefix.Bits())
		}
	}
	return address
}

// embedded returns the IPv4 address behind a prefix of so many bits. Bits 64 to 71 are no part of it, and zero.
func embedded(address netip.Addr, bits int) netip.Addr {
	const skipped = 8
	bytes := address.As16()
	if bits < 96 && bytes[skipped] != 0 {
		return address
	}
	var v4 [4]byte
	at := bits / 8
	for i := range v4 {
		if at == skipped {
			at++
		}
		v4[i] = bytes[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

// withoutNAT64 is WithoutNAT64 of a network that is a single address.
func withoutNAT64(network netip.Prefix, prefixes []netip.Prefix) netip.Prefix {
	if !network.IsSingleIP() {
		return network
	}
	address := WithoutNAT64(network.Addr(), prefixes...)
	return netip.PrefixFrom(address, address.BitLen())
}
