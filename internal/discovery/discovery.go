// Package discovery finds the servers of a fleet and follows them: in a list, in a
// file, behind a DNS name, or in what the configuration endpoint of a cluster tells.
//
// The place of a counter depends on its server's name, letter by letter. So all
// processes of a fleet have to be given the same source, and each source here names a
// server in one way only: of one answer all processes derive the same names.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrNone is returned where a source was asked and names no server. A fleet of none is
// never what is meant.
var ErrNone = errors.New("discovery: no server is named")

// Source knows the servers of a fleet. It is safe for concurrent use, and returns when
// the context ends.
type Source interface {
	// Servers returns the servers' names, host:port or the paths of Unix sockets, in
	// any order.
	Servers(ctx context.Context) ([]string, error)
}

// Static is a list that does not change.
type Static []string

// Servers returns the list.
func (s Static) Servers(context.Context) ([]string, error) { return s, nil }

// List asks the source once and returns what it names, sorted and each once; ErrNone if
// that is nothing.
func List(ctx context.Context, source Source) ([]string, error) {
	servers, err := source.Servers(ctx)
	if err != nil {
		return nil, err
	}
	servers = slices.Sorted(slices.Values(servers))
	servers = slices.Compact(servers)
	if len(servers) == 0 {
		return nil, ErrNone
	}
	return servers, nil
}

// again is the pause of Await between two questions.
const again = time.Second

// Await asks the source until it names servers, or the context ends: then it returns why
// there were none before, rather than that a question was cut short. It passes each failure
// to report.
func Await(ctx context.Context, source Source, report func(error)) ([]string, error) {
	var last error
	for {
		servers, err := listWithin(ctx, DefaultTimeout, source)
		switch {
		case err == nil:
			return servers, nil
		case !ended(ctx):
			report(err)
			last = err
		case last == nil:
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-time.After(again):
		}
	}
}

// ended reports whether the context has ended, or is just about to: a dial may notice first
// that the time has passed.
func ended(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(end)
}

// listWithin asks the source once, with a time of its own.
func listWithin(ctx context.Context, timeout time.Duration, source Source) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return List(ctx, source)
}

// CheckServer finds what is not written as servers are: host:port, or a path, which has
// a slash in it. Whether the host is there is not a matter of writing.
func CheckServer(name string) error {
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q: a server's name is plain text", name)
	case strings.HasPrefix(name, "unix:"):
		return fmt.Errorf("%s: a socket is named by its path alone: %s", name, strings.TrimPrefix(strings.TrimPrefix(name, "unix:"), "//"))
	case strings.Contains(name, "://"):
		return fmt.Errorf("%s: a server is host:port, without a scheme", name)
	case strings.Contains(name, "/"):
		return nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil || !isHost(host) {
		return fmt.Errorf("%s is neither host:port nor the path of a socket", name)
	}
	if number, err := net.LookupPort("tcp", port); err != nil || port == "" || number == 0 {
		return fmt.Errorf("%s has no valid port", name)
	}
	return nil
}

// isHost reports whether that is written like an address, or like a name.
func isHost(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Zone() == "" || isName(address.Zone())
	}
	return isName(host)
}

// isName reports whether that is written like a name that DNS may know.
func isName(host string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, isNotOfAName) {
			return false
		}
	}
	return len(host) <= 254
}

func isNotOfAName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		return false
	}
	return true
}

// at says where an error was found.
func at(place string, err error) error {
	if errors.Is(err, ErrNone) {
		return fmt.Errorf("%w: %s", ErrNone, place)
	}
	return fmt.Errorf("discovery: %s: %w", place, err)
}

// nameOf is how an address is named, in one way only: an IPv4 address as such, an IPv6
// one in its short form and in brackets.
func nameOf(address netip.Addr, port uint16) string {
	return netip.AddrPortFrom(address.Unmap(), port).String()
}

// portOf reads a port's number, written in one way only.
func portOf(text string) (uint16, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || text[0] == '0' {
		return 0, fmt.Errorf("%q is not the number of a port", text)
	}
	return uint16(number), nil
}
