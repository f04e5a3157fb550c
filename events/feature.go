package events

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of names and features.
const (
	MaxEventName    = 64   // bytes of an event's name
	MaxKind         = 32   // bytes of a feature's kind
	MaxValue        = 1024 // bytes of a feature's value
	MaxFeatureKinds = 16   // kinds in one request, or in one combination
)

// KindIP is the kind whose values are addresses: they are counted in canonical
// form, IPv6 by its network.
const KindIP = "ip"

// DefaultIPv6Prefix is the length in bits of the network by which IPv6
// addresses are counted where no rule says otherwise.
const DefaultIPv6Prefix = 64

// ErrInvalid is what every fault of an event, a feature, a duration or a rule
// wraps.
var ErrInvalid = errors.New("events: invalid")

// FeatureError is a fault of one feature in a request. Its text never holds the
// feature's value. It wraps ErrInvalid.
type FeatureError struct {
	Kind   string // the kind at fault; empty where no kind can be named
	Index  int    // the feature's place in the list given to ParseFeatures, else -1
	Reason string
}

func (e *FeatureError) Error() string {
	if e.Kind == "" {
		return e.Reason
	}
	return fmt.Sprintf("feature of kind %q: %s", e.Kind, e.Reason)
}

func (e *FeatureError) Unwrap() error { return ErrInvalid }

// Countable returns the value by which a feature of a request is counted, if a client has chosen it: that of a
// kind other than ip which is empty, longer than MaxValue or not UTF-8, and one of the kind ip which is not an address,
// are replaced by sha256: and the 64 hexadecimal digits of their hash. So no value leaves a limit.
func Countable(kind, value string) string {
	fits := value != "" && len(value) <= MaxValue && utf8.ValidString(value)
	if fits && kind == KindIP && !isHashed(value) {
		address, err := parseAddress(value)
		fits = err == nil && address.IsSingleIP()
	}
	if fits {
		return value
	}
	return HashValue(value)
}

// HashValue returns sha256: and the 64 hexadecimal digits of the value's hash.
func HashValue(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hashed + hex.EncodeToString(sum[:])
}

// hashed begins the values that Countable makes.
const hashed = "sha256:"

// isHashed reports whether the value is one that Countable makes. It is counted as it is, also as an ip.
func isHashed(value string) bool {
	sum, found := strings.CutPrefix(value, hashed)
	return found && len(sum) == hex.EncodedLen(sha256.Size) && strings.Trim(sum, "0123456789abcdef") == ""
}

// Features are the actor of a request: at most one value of each kind.
// The values are raw, as the caller gave them; an Event makes them canonical.
type Features map[string]string

// ParseFeatures reads features written as kind:value, split at the first colon.
// All faults are reported together, joined, each a *FeatureError; behind the first
// MaxFeatureKinds features none is looked for.
func ParseFeatures(list []string) (Features, error) { return parseFeatures(list, featureFault) }

// ParseCountable is ParseFeatures for the features of a hit: Apply takes any value, but of the kind ip.
func ParseCountable(list []string) (Features, error) {
	return parseFeatures(list, func(kind, value string) string {
		if kind != KindIP {
			value = Countable(kind, value)
		}
		return featureFault(kind, value)
	})
}

func parseFeatures(list []string, faultOf func(kind, value string) string) (Features, error) {
	var faults []error
	if len(list) > MaxFeatureKinds {
		faults = append(faults, &FeatureError{Index: -1, Reason: tooManyKinds})
		list = list[:MaxFeatureKinds]
	}
	features := make(Features, len(list))
	for i, s := range list {
		kind, value, found := strings.Cut(s, ":")
		fault := func(reason string) {
			faults = append(faults, &FeatureError{Kind: printableKind(kind), Index: i, Reason: reason})
		}
		if !found {
			kind = ""
			fault("a feature is written kind:value, as in ip:192.0.2.1")
			continue
		}
		if _, twice := features[kind]; twice {
			fault("the kind is given twice")
			continue
		}
		features[kind] = value
		if reason := faultOf(kind, value); reason != "" {
			fault(reason)
		}
	}
	return features, errors.Join(faults...)
}

// Validate reports all faults of the features together, joined, in the order of
// their kinds, each a *FeatureError.
func (f Features) Validate() error {
	if len(f) > MaxFeatureKinds {
		return &FeatureError{Index: -1, Reason: tooManyKinds}
	}
	if _, fine := f.check(); fine {
		return nil
	}
	var faults []error
	for _, kind := range slices.Sorted(maps.Keys(f)) {
		if reason := featureFault(kind, f[kind]); reason != "" {
			faults = append(faults, &FeatureError{Kind: printableKind(kind), Index: -1, Reason: reason})
		}
	}
	return errors.Join(faults...)
}

// check reports whether the features have no fault, without naming those there are, and
// returns the address among them.
func (f Features) check() (address netip.Prefix, fine bool) {
	if len(f) > MaxFeatureKinds {
		return address, false
	}
	for kind, value := range f {
		if textFault(kind, value) != "" {
			return address, false
		}
		if kind == KindIP && !isHashed(value) {
			var err error
			if address, err = parseAddress(value); err != nil {
				return address, false
			}
		}
	}
	return address, true
}

// counted returns the features by which a hit or an increment is counted, and the address among them. Their values
// may be a client's choice, so only a kind, or a value of the kind ip, is at fault.
func (f Features) counted() (Features, netip.Prefix, error) {
	address, fine := f.check()
	if fine {
		return f, address, nil
	}
	all := maps.Clone(f)
	for kind, value := range all {
		if kind != KindIP {
			all[kind] = Countable(kind, value)
		}
	}
	address, fine = all.check()
	if !fine {
		return nil, address, all.Validate()
	}
	return all, address, nil
}

// hold reports whether there is a value of each of the kinds.
func (f Features) hold(kinds []string) bool {
	for _, kind := range kinds {
		if _, found := f[kind]; !found {
			return false
		}
	}
	return true
}

var tooManyKinds = fmt.Sprintf("a request has at most %d features, this one has more", MaxFeatureKinds)

// featureFault says what is wrong with a kind and its value, or nothing.
func featureFault(kind, value string) string {
	if reason := textFault(kind, value); reason != "" {
		return reason
	}
	if kind == KindIP && !isHashed(value) {
		if _, err := parseAddress(value); err != nil {
			return addressFault(value)
		}
	}
	return ""
}

// addressFault says what is wrong with a value that is not taken for an address.
func addressFault(value string) string {
	bare, _, zone := strings.Cut(value, "%")
	_, notBare := netip.ParseAddr(bare)
	_, notNetwork := netip.ParsePrefix(value)
	_, notPort := netip.ParseAddrPort(value)
	_, notInBrackets := netip.ParseAddr(strings.Trim(value, "[]"))
	switch {
	case zone && notBare == nil:
		return "the value is an address with a zone: leave the % and what follows out"
	case notNetwork == nil:
		return "the value is a network: write one address, without the / and what follows"
	case notPort == nil || notInBrackets == nil:
		return "the value is an address in brackets or with a port: write the address alone"
	}
	return "the value is not an IP address"
}

// textFault says what is wrong with a kind and its value as texts, or nothing.
func textFault(kind, value string) string {
	switch {
	case !ValidKind(kind):
		return "a kind is 1 to 32 of a-z, 0-9, _ and -, and begins with a letter"
	case value == "":
		return "the value is empty"
	case len(value) > MaxValue:
		return fmt.Sprintf("the value has %d bytes, at most %d are taken", len(value), MaxValue)
	case !utf8.ValidString(value):
		return "the value is not valid UTF-8"
	}
	return ""
}

// printableKind returns the kind if it can stand in an error. What does not look
// like a kind may be a value that lost its way, and stays out.
func printableKind(kind string) string {
	if ValidKind(kind) {
		return kind
	}
	return ""
}

func ValidKind(kind string) bool {
	return len(kind) <= MaxKind && validWord(kind, false)
}

// ValidName reports whether name can be the name of an event:
// [a-z][a-z0-9_.-]{0,63}.
func ValidName(name string) bool {
	return len(name) <= MaxEventName && validWord(name, true)
}

func validWord(s string, dots bool) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '_' || c == '-' || dots && c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// canonicalIP returns the canonical form of an address or a network that a rules file
// lists, an IPv6 one as the network by which it is counted. What it returns it also takes.
func canonicalIP(value string, ipv6Prefix int, nat64 ...netip.Prefix) (canonical, reason string) {
	network, err := ParseNetwork(value)
	if err != nil {
		return "", addressFault(value)
	}
	if addr := network.Addr(); network.Bits() > ipv6Prefix && addr.Is6() {
		network = netip.PrefixFrom(addr, addr.BitLen())
	}
	if network, reason = countedNetwork(network, ipv6Prefix, nat64); reason != "" {
		return "", reason
	}
	return string(appendNetwork(nil, network)), ""
}

// countedNetwork returns the network by which the address is counted. It takes a network
// that is this one.
func countedNetwork(address netip.Prefix, ipv6Prefix int, nat64 []netip.Prefix) (network netip.Prefix, reason string) {
	address = withoutNAT64(address, nat64)
	bits := address.Addr().BitLen()
	if address.Addr().Is6() {
		bits = ipv6Prefix
	}
	if !address.IsSingleIP() && address.Bits() != bits {
		return address, fmt.Sprintf("the network is not the /%d by which such addresses are counted", bits)
	}
	return netip.PrefixFrom(address.Addr(), bits).Masked(), ""
}

// longestNetwork is the longest text of a canonical network.
const longestNetwork = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")

// appendNetwork appends the network's text: that of the address where it is one.
func appendNetwork(b []byte, network netip.Prefix) []byte {
	if network.IsSingleIP() {
		return network.Addr().AppendTo(b)
	}
	return network.AppendTo(b)
}

// parseAddress reads the address of a feature. Answers show an IPv6 address as the
// network by which it is counted, and that is taken, too.
func parseAddress(value string) (netip.Prefix, error) {
	address, err := ParseNetwork(value)
	if err != nil || !strings.Contains(value, "/") {
		return address, err
	}
	if address.Addr().Is4() || address.IsSingleIP() || address != address.Masked() {
		return netip.Prefix{}, ErrInvalid
	}
	return address, nil
}

// ParseNetwork reads an address, or a network in CIDR notation. An IPv4 address mapped
// into IPv6 is that IPv4 address. A zone is a fault: it has a meaning on one host only.
func ParseNetwork(value string) (netip.Prefix, error) {
	if strings.Contains(value, "/") {
		network, err := netip.ParsePrefix(value)
		if err == nil && network.Addr().Is4In6() {
			if network.Bits() < 96 {
				return netip.Prefix{}, ErrInvalid
			}
			network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
		}
		return network, err
	}
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, ErrInvalid
	}
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}
