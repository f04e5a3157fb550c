package rulesfile

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
)

func (r fileReader) networks(at place) events.Networks {
	var networks []netip.Prefix
	for _, item := range r.items(at) {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		network, reason := listedNetwork(text)
		if reason != "" {
			r.fault(item, "%s", reason)
			continue
		}
		networks = append(networks, network)
	}
	return events.NewNetworks(networks...)
}

// nat64Prefixes reads the prefixes. A prefix inside another one comes first.
func (r fileReader) nat64Prefixes(at place) (prefixes []netip.Prefix) {
	for _, item := range r.items(at) {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		network, reason := listedNetwork(text)
		switch {
		case reason != "":
			r.fault(item, "%s", reason)
		case !events.ValidNAT64(network):
			r.fault(item, "a NAT64 prefix is an IPv6 network of 32, 40, 48, 56, 64 or 96 bits")
		default:
			prefixes = append(prefixes, network)
		}
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Or(b.Bits()-a.Bits(), a.Compare(b)) })
	return slices.Compact(prefixes)
}

// lists reads allow and deny.
func (r ruleReader) lists(rule *ruleFields) {
	rule.Allow = r.list(rule, "allow", events.List{})
	rule.Deny = r.list(rule, "deny", rule.Allow)
	for value, name := range rule.overrides {
		if listing := rule.Listed(events.Features{rule.Per[0]: value}); listing != events.Unlisted {
			r.warn(name, "the value is in %s: its rates never decide", listing)
		}
	}
}

// list reads one of the lists; what it shares with the other is a fault.
func (r ruleReader) list(rule *ruleFields, field string, other events.List) events.List {
	at := rule.fields[field]
	if !at.given() {
		return events.List{}
	}
	if len(rule.Per) == 0 {
		r.fault(at, "it lists features, and per: [] counts the whole event: leave it out")
		return events.List{}
	}
	listed := listing{per: rule.Per, values: make(map[string]bool)}
	for _, item := range r.items(at) {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		if reason := listed.add(text, other); reason != "" {
			r.fault(item, "%s", reason)
		} else if listed.values[text] && strings.Contains(text, "/") && looksLikeAddress(text) {
			r.warn(item, "a network is compared as text here, since per names no ip: count per ip, or list the values")
		}
	}
	return events.List{Networks: events.NewNetworks(listed.networks...), Values: listed.values}
}

// listedNetwork reads an address or a network of a rules file, or says what is
// wrong.
func listedNetwork(s string) (network netip.Prefix, reason string) {
	network, err := events.ParseNetwork(s)
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
func (l *listing) add(s string, other events.List) (reason string) {
	ip := slices.Contains(l.per, events.KindIP)
	others := len(l.per)
	if ip {
		others--
	}
	switch {
	case ip && (others == 0 || looksLikeAddress(s)):
		return l.addNetwork(s, other)
	case others > 1:
		return "of several kinds in per it is not clear which this is a value of: make it a rule of its own"
	case s == "" || len(s) > events.MaxValue:
		return "a value is 1 to 1024 bytes"
	case other.Values[s]:
		return "it is in allow and in deny: leave one out"
	}
	l.values[s] = true
	return ""
}

func (l *listing) addNetwork(s string, other events.List) (reason string) {
	network, reason := listedNetwork(s)
	switch {
	case reason != "":
		return reason
	case other.Networks.Has(network):
		return "it is in allow and in deny: leave one out"
	}
	l.networks = append(l.networks, network)
	return ""
}
