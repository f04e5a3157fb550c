package httpdecision

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/service"
)

const forwardedFor = "X-Forwarded-For"

// Extractor finds the value of one kind of feature in a request. An empty value
// says that the request has none: limits per that kind do not apply to it then.
//
// An error that wraps events.ErrInvalid, best an *events.FeatureError, says that
// the request is at fault: it is answered 400, and its client is shown the
// error's text, which should not hold the value. Any other error is the
// service's own, and logged: it should not hold it either.
type Extractor func(*http.Request) (value string, err error)

// FromNone finds nothing: limits per its kind never apply.
func FromNone(*http.Request) (string, error) { return "", nil }

// FromPeer finds the address at the other end of the connection, without its port
// and zone. A peer on a Unix socket has none.
func FromPeer(r *http.Request) (string, error) {
	peer, ok := ParseHop(r.RemoteAddr)
	if !ok {
		return "", nil
	}
	return peer.String(), nil
}

// FromForwarded finds the address on whose behalf the trusted proxies ask: the
// last one, of those in X-Forwarded-For and the peer's behind them, that is not a
// trusted proxy's. Entries further to the left are hearsay, and so is the
// whole header where the peer is none of the proxies.
//
// An entry that is not an address (unknown, _hidden, nothing at all) ends the
// search: the proxy that has handed it on stands for its client then. So it does
// where it has named none.
func FromForwarded(trusted events.Networks) Extractor {
	return func(r *http.Request) (string, error) {
		peer, ok := ParseHop(r.RemoteAddr)
		if !ok {
			return "", nil
		}
		return forwarded(peer, r.Header[forwardedFor], trusted).String(), nil
	}
}

// FromHeader finds the value of the header of that name, and believes it, from
// any sender. A request that has the header twice is at fault: which of them the
// service behind would believe is not known.
func FromHeader(name string) Extractor {
	return func(r *http.Request) (string, error) { return headerOf(r, name) }
}

// FromBearer finds the token of Authorization: Bearer. It is not verified:
// other features limit a client that makes tokens up. A token of more than
// 1,024 bytes, as one with claims may be, is taken by its hash:
// sha256: and 64 hexadecimal digits.
func FromBearer(r *http.Request) (string, error) {
	credentials, err := headerOf(r, "Authorization")
	if err != nil {
		return "", err
	}
	// Lenient where servers are: what they take for the token is counted as it.
	scheme, token := credentials, ""
	if at := strings.IndexAny(credentials, " \t"); at >= 0 {
		scheme, token = credentials[:at], strings.Trim(credentials[at:], " \t")
	}
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", nil
	case strings.ContainsAny(token, " \t,"):
		return "", &events.FeatureError{Index: -1, Reason: "the header Authorization does not hold one bearer token"}
	}
	return countable(token), nil
}

// countable returns a value that limits can count by: a value of more than 1,024 bytes, or that is not UTF-8, is its hash,
// sha256: and 64 hexadecimal digits. A client that chooses the value cannot end the decision by it.
func countable(value string) string {
	if len(value) <= events.MaxValue && utf8.ValidString(value) {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func headerOf(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return strings.Trim(values[0], " \t"), nil
	}
	return "", &events.FeatureError{Index: -1, Reason: fmt.Sprintf("the header %s is given more than once", http.CanonicalHeaderKey(name))}
}

// forwarded walks from the peer through the lines of X-Forwarded-For, from the
// last entry to the first, as long as each address is a trusted proxy's.
func forwarded(peer netip.Addr, lines []string, trusted events.Networks) netip.Addr {
	at := peer
	for _, line := range slices.Backward(lines) {
		for end := len(line); end >= 0; {
			if !trusted.Contains(at) {
				return at
			}
			comma := strings.LastIndexByte(line[:end], ',')
			hop, ok := ParseHop(line[comma+1 : end])
			if !ok {
				return at
			}
			at, end = hop, comma
		}
	}
	return at
}

// ParseHop reads an address as servers and proxies write them: bare, in brackets,
// or with a port. An IPv4 address mapped into IPv6 is that IPv4 address; a zone,
// which has a meaning on one host only, is dropped.
func ParseHop(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	addr, err := netip.ParseAddr(s)
	if err != nil && strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s += ":0"
	}
	if err != nil {
		var addrPort netip.AddrPort
		addrPort, err = netip.ParseAddrPort(s)
		addr = addrPort.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}

// extractorOf returns the extractor of a source of the rules.
func extractorOf(source events.Source, trusted events.Networks) Extractor {
	switch source.Place {
	case events.FromPeer:
		return FromPeer
	case events.FromForwarded:
		return FromForwarded(trusted)
	case events.FromHeader:
		return FromHeader(source.Header)
	case events.FromBearer:
		return FromBearer
	}
	return FromNone
}

// featuresOf takes from the request what the limits of the event are per: by own,
// or where it has none for a kind, as the rules say. Its error is one of the
// request, with all its faults, or one of own alone.
func featuresOf(r *http.Request, event service.Event, own map[string]Extractor) (events.Features, error) {
	features := events.Features{}
	var faults []error
	for _, kind := range event.Kinds() {
		extract := own[kind]
		if extract == nil {
			extract = extractorOf(event.Source(kind), event.Rules.TrustedProxies)
		}
		value, err := extract(r)
		switch {
		case err == nil && value != "":
			if features[kind] = value; kind != events.KindIP {
				features[kind] = countable(value)
			}
		case err != nil && !errors.Is(err, events.ErrInvalid):
			return nil, fmt.Errorf("api: the %s of a request: %w", kind, err)
		case err != nil:
			faults = append(faults, ofKind(kind, err))
		}
	}
	return features, errors.Join(faults...)
}

// ofKind says of which kind a faulty feature is.
func ofKind(kind string, err error) error {
	reason := err.Error()
	if e, ok := errors.AsType[*events.FeatureError](err); ok {
		reason = e.Reason
	}
	return &events.FeatureError{Kind: kind, Index: -1, Reason: reason}
}
