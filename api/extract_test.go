package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
)

// proxies are the proxies that the tests trust.
var proxies = events.NewNetworks(
	netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
)

// from returns a request of that peer with the lines of a header.
func from(peer, header string, lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	if len(lines) > 0 {
		r.Header[http.CanonicalHeaderKey(header)] = lines
	}
	return r
}

func TestFromPeer(t *testing.T) {
	for remote, want := range map[string]string{
		"203.0.113.9:1234":            "203.0.113.9",
		"[2001:db8::1]:1234":          "2001:db8::1",
		"[fe80::1%eth0]:1234":         "fe80::1",
		"[::ffff:203.0.113.9]:1234":   "203.0.113.9",
		"[::ffff:203.0.113.9%e]:1234": "203.0.113.9",
		"203.0.113.9":                 "203.0.113.9", // as some routers leave it
		"@":                           "",            // a Unix socket
		"/run/s":                      "",
		"":                            "",
		"localhost:80":                "",
	} {
		r := from(remote, "X-Forwarded-For", "198.51.100.1")
		r.Header.Set("X-Real-Ip", "198.51.100.2")
		value, err := httpdecision.FromPeer(r)
		assert.NoError(t, err, remote)
		assert.Equal(t, want, value, remote)
	}
}

func TestFromForwarded(t *testing.T) {
	for name, test := range map[string]struct {
		peer  string
		lines []string
		want  string
	}{
		"no header":                           {"10.0.0.1:1", nil, "10.0.0.1"},
		"one proxy":                           {"10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"a chain":                             {"10.0.0.1:1", []string{"203.0.113.9, 10.0.0.3, 10.0.0.2"}, "203.0.113.9"},
		"spoofed by the client of a proxy":    {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9"}, "203.0.113.9"},
		"spoofed as a proxy's client":         {"10.0.0.1:1", []string{"198.51.100.1, 10.0.0.9, 203.0.113.9"}, "203.0.113.9"},
		"from an untrusted peer":              {"203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		"from an untrusted peer, all proxies": {"203.0.113.9:1", []string{"10.0.0.1, 127.0.0.1"}, "203.0.113.9"},
		"an untrusted proxy between":          {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		"all trusted: one of their own":       {"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"near a proxy is not a proxy":         {"127.0.0.2:1", []string{"198.51.100.1"}, "127.0.0.2"},

		"lines are one list":           {"10.0.0.1:1", []string{"203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		"a line more by the client":    {"10.0.0.1:1", []string{"198.51.100.1", "203.0.113.9"}, "203.0.113.9"},
		"many lines":                   {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9", "10.0.0.3 ,10.0.0.4", "10.0.0.2"}, "203.0.113.9"},
		"an empty line at the end":     {"10.0.0.1:1", []string{"198.51.100.1", ""}, "10.0.0.1"},
		"an empty line at the start":   {"10.0.0.1:1", []string{"", "203.0.113.9"}, "203.0.113.9"},
		"nothing but an empty line":    {"10.0.0.1:1", []string{""}, "10.0.0.1"},
		"an empty entry in between":    {"10.0.0.1:1", []string{"198.51.100.1,,10.0.0.2"}, "10.0.0.2"},
		"an empty entry at the end":    {"10.0.0.1:1", []string{"198.51.100.1, "}, "10.0.0.1"},
		"an empty entry at the start":  {"10.0.0.1:1", []string{", 203.0.113.9"}, "203.0.113.9"},
		"commas":                       {"10.0.0.1:1", []string{",,,"}, "10.0.0.1"},
		"garbage by the client":        {"10.0.0.1:1", []string{"garbage, 203.0.113.9"}, "203.0.113.9"},
		"garbage by a proxy":           {"10.0.0.1:1", []string{"198.51.100.1, garbage, 10.0.0.2"}, "10.0.0.2"},
		"unknown":                      {"10.0.0.1:1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		"obfuscated":                   {"10.0.0.1:1", []string{"198.51.100.1, _hidden, 10.0.0.2"}, "10.0.0.2"},
		"a name":                       {"10.0.0.1:1", []string{"198.51.100.1, localhost"}, "10.0.0.1"},
		"a network":                    {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.0/24"}, "10.0.0.1"},
		"a Unix socket":                {"10.0.0.1:1", []string{"198.51.100.1, unix:"}, "10.0.0.1"},
		"in quotes":                    {"10.0.0.1:1", []string{`198.51.100.1, "203.0.113.9"`}, "10.0.0.1"},
		"as Forwarded has it":          {"10.0.0.1:1", []string{"198.51.100.1, for=203.0.113.9"}, "10.0.0.1"},
		"a number":                     {"10.0.0.1:1", []string{"198.51.100.1, 3405803785"}, "10.0.0.1"},
		"octal":                        {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.011"}, "10.0.0.1"},
		"other blanks":                 {"10.0.0.1:1", []string{"198.51.100.1, \u00a0203.0.113.9"}, "10.0.0.1"},
		"a semicolon":                  {"10.0.0.1:1", []string{"198.51.100.1; 203.0.113.9"}, "10.0.0.1"},
		"blanks and tabs":              {"10.0.0.1:1", []string{" 198.51.100.1 ,\t 203.0.113.9\t"}, "203.0.113.9"},
		"a port":                       {"10.0.0.1:1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		"a port that is none":          {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9:http"}, "10.0.0.1"},
		"a port too high":              {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9:65536"}, "10.0.0.1"},
		"an empty port":                {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9:"}, "10.0.0.1"},
		"a port at a proxy":            {"10.0.0.1:1", []string{"203.0.113.9:4711, 10.0.0.2:80"}, "203.0.113.9"},
		"IPv6":                         {"[fd00::1]:1", []string{"2001:db8::1, fd00::2"}, "2001:db8::1"},
		"IPv6, long":                   {"[fd00::1]:1", []string{"2001:DB8:0:0:0:0:0:1"}, "2001:db8::1"},
		"IPv6 in brackets":             {"10.0.0.1:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"IPv6 with a port":             {"10.0.0.1:1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		"IPv4 in brackets":             {"10.0.0.1:1", []string{"198.51.100.1, [203.0.113.9]"}, "10.0.0.1"},
		"half a bracket":               {"10.0.0.1:1", []string{"198.51.100.1, [2001:db8::1"}, "10.0.0.1"},
		"brackets and more":            {"10.0.0.1:1", []string{"198.51.100.1, [2001:db8::1]:1]"}, "10.0.0.1"},
		"a zone":                       {"[fd00::1%eth0]:1", []string{"fe80::7%eth1"}, "fe80::7"},
		"a zone at a proxy":            {"10.0.0.1:1", []string{"203.0.113.9, fd00::2%any"}, "203.0.113.9"},
		"4in6":                         {"10.0.0.1:1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		"4in6, in hexadecimal":         {"10.0.0.1:1", []string{"::ffff:cb00:7109"}, "203.0.113.9"},
		"a proxy as 4in6":              {"[::ffff:10.0.0.1]:1", []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		"an untrusted peer as 4in6":    {"[::ffff:203.0.113.9]:1", []string{"198.51.100.1"}, "203.0.113.9"},
		"a proxy's IPv4 in other IPv6": {"[64:ff9b::10.0.0.1]:1", []string{"198.51.100.1"}, "64:ff9b::a00:1"},
		"no peer":                      {"@", []string{"198.51.100.1"}, ""},

		"huge, spoofed":      {"10.0.0.1:1", []string{strings.Repeat("10.0.0.1,", 100_000) + "203.0.113.9"}, "203.0.113.9"},
		"huge entry":         {"10.0.0.1:1", []string{"198.51.100.1," + strings.Repeat("1", 1<<20)}, "10.0.0.1"},
		"huge zone":          {"10.0.0.1:1", []string{"fe80::1%" + strings.Repeat("z", 1<<20)}, "fe80::1"},
		"huge, all trusted":  {"10.0.0.1:1", []string{strings.Repeat("10.0.0.2,", 100_000) + "10.0.0.3"}, "10.0.0.2"},
		"huge, from no peer": {"203.0.113.9:1", []string{strings.Repeat("198.51.100.1,", 100_000)}, "203.0.113.9"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := httpdecision.FromForwarded(proxies)(from(test.peer, "X-Forwarded-For", test.lines...))
			assert.NoError(t, err)
			assert.Equal(t, test.want, value)
		})
	}
}

// Only X-Forwarded-For is read, and without trusted proxies not even that.
func TestFromForwardedReadsOneHeader(t *testing.T) {
	r := from("10.0.0.1:1", "X-Real-Ip", "198.51.100.1")
	r.Header.Set("Forwarded", "for=198.51.100.2")
	r.Header.Set("Client-Ip", "198.51.100.3")
	r.Header["X_Forwarded_For"] = []string{"198.51.100.4"}
	value, err := httpdecision.FromForwarded(proxies)(r)
	assert.NoError(t, err)
	assert.Equal(t, "10.0.0.1", value)

	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	value, err = httpdecision.FromForwarded(events.Networks{})(r)
	assert.NoError(t, err)
	assert.Equal(t, "10.0.0.1", value)
}

// What is found is the peer, or comes right behind trusted hops alone; and it is
// the first of the hops, from the peer on, that is not trusted, unless nothing
// believable comes before it.
func FuzzForwarded(f *testing.F) {
	for _, seed := range [][2]string{
		{"10.0.0.1:1", "203.0.113.9"}, {"10.0.0.1:1", "198.51.100.1, 203.0.113.9, 10.0.0.2"}, {"203.0.113.9:1", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", "a, ::ffff:10.0.0.2\n10.0.0.3"}, {"[fd00::1%e]:1", "[2001:db8::1]:80,fd00::2%x"}, {"@", "10.0.0.1"},
		{"10.0.0.1:1", ",\n,unknown,10.0.0.3"}, {"10.0.0.1:1", "10.0.0.2\n\n10.0.0.3"}, {"127.0.0.1", "127.0.0.1:1,[::1]"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, remote, header string) {
		r := from(remote, "X-Forwarded-For", strings.Split(header, "\n")...)
		value, err := httpdecision.FromForwarded(proxies)(r)
		require.NoError(t, err)
		peer, err := httpdecision.FromPeer(r)
		require.NoError(t, err)
		if peer == "" {
			require.Empty(t, value)
			return
		}
		// The same by another way: all hops, the peer first, split from the left.
		hops := strings.Split(strings.ReplaceAll(header, "\n", ","), ",")
		want := netip.MustParseAddr(peer)
		for i := len(hops) - 1; i >= 0 && proxies.Contains(want); i-- {
			hop, ok := readHop(hops[i])
			if !ok {
				break
			}
			want = hop
		}
		require.Equal(t, want.String(), value)

		// And what it must be, whatever the way.
		addr, err := netip.ParseAddr(value)
		require.NoError(t, err)
		require.Empty(t, addr.Zone())
		require.False(t, addr.Is4In6())
		require.NoError(t, events.Features{"ip": value}.Validate())
		if value == peer {
			return
		}
		require.True(t, proxies.Contains(netip.MustParseAddr(peer)))
		for i := len(hops) - 1; ; i-- {
			require.GreaterOrEqual(t, i, 0, "the address is made up")
			hop, ok := readHop(hops[i])
			require.True(t, ok, "it stands left of what is no address")
			if hop == addr {
				return
			}
			require.True(t, proxies.Contains(hop), "it stands left of an untrusted hop")
		}
	})
}

// readHop reads an address, another way: an address in brackets is IPv6, and only
// there, or behind IPv4, is a port.
func readHop(s string) (netip.Addr, bool) {
	host := strings.Trim(s, " \t")
	port := "0"
	bare, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		at := strings.LastIndexByte(bare, ']')
		if at < 0 {
			return netip.Addr{}, false
		}
		host = bare[:at]
		if rest := bare[at+1:]; rest != "" {
			if rest[0] != ':' {
				return netip.Addr{}, false
			}
			port = rest[1:]
		}
	} else if addr, number, found := strings.Cut(host, ":"); found && !strings.Contains(number, ":") {
		host, port = addr, number
	}
	addr, err := netip.ParseAddr(host)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return addr.Unmap().WithZone(""), err == nil && portErr == nil && (!bracketed || addr.Is6())
}

func TestFromHeader(t *testing.T) {
	find := httpdecision.FromHeader("x-user")
	for _, test := range []struct {
		lines []string
		want  string
	}{
		{nil, ""}, {[]string{""}, ""}, {[]string{" \t"}, ""}, {[]string{"42"}, "42"}, {[]string{" a b "}, "a b"}, {[]string{"a,b"}, "a,b"},
	} {
		value, err := find(from("203.0.113.9:1", "X-User", test.lines...))
		assert.NoError(t, err)
		assert.Equal(t, test.want, value, "%q", test.lines)
	}
	for _, lines := range [][]string{{"42", "43"}, {"42", "42"}, {"42", ""}, {"", "42"}} {
		_, err := find(from("203.0.113.9:1", "X-User", lines...))
		assert.ErrorIs(t, err, events.ErrInvalid, "%q", lines)
		assert.EqualError(t, err, "the header X-User is given more than once")
	}
}

func TestFromBearer(t *testing.T) {
	for credentials, want := range map[string]string{
		"Bearer a.b-c~d+e/f==":                "a.b-c~d+e/f==",
		"bearer x":                            "x",
		"BEARER \t x ":                        "x",
		"":                                    "",
		"Bearer":                              "",
		"Bearer ":                             "",
		"Bearerx":                             "",
		"Basic YTpi":                          "",
		"Token Bearer x":                      "",
		"Bearer " + strings.Repeat("x", 1024): strings.Repeat("x", 1024),
		"Bearer " + strings.Repeat("x", 1025): "sha256:c6d8e9905300876046729949cc95c2385221270d389176f7234fe7ac00c4e430",
	} {
		value, err := httpdecision.FromBearer(from("203.0.113.9:1", "Authorization", credentials))
		assert.NoError(t, err, credentials)
		assert.Equal(t, want, value, credentials)
	}
	for _, lines := range [][]string{{"Bearer a", "Bearer b"}, {"Basic YTpi", "Bearer b"}, {"Bearer a b"}, {"Bearer a, Bearer b"}, {"Bearer a,b"}} {
		value, err := httpdecision.FromBearer(from("203.0.113.9:1", "Authorization", lines...))
		assert.ErrorIs(t, err, events.ErrInvalid, "%q", lines)
		assert.Empty(t, value)
	}
	value, err := httpdecision.FromBearer(from("203.0.113.9:1", "Authorization"))
	assert.NoError(t, err)
	assert.Empty(t, value)
}

func TestFromNone(t *testing.T) {
	value, err := httpdecision.FromNone(from("203.0.113.9:1", "X-User", "42"))
	assert.NoError(t, err)
	assert.Empty(t, value)
}
