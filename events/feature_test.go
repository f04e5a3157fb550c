package events

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "url_shorten", "login.failed", "a-9", strings.Repeat("x", MaxEventName)} {
		assert.True(t, ValidName(name), name)
	}
	for _, name := range []string{"", "A", "9a", "_a", ".a", "a b", "a/b", "denied/a", "é", "a\n", "a:b", strings.Repeat("x", MaxEventName+1)} {
		assert.False(t, ValidName(name), "%q", name)
	}
}

// All faults are reported at once, each with its place, and none with a value.
func TestFaultsOfFeatures(t *testing.T) {
	_, err := ParseFeatures([]string{
		"hidden", ":hidden", "IP:hidden", "ip:hidden", "user:hidden", "user:hidden", "empty:", "kind.dot:hidden",
		"long:" + strings.Repeat("hidden", 200), "bytes:hidden\xff", strings.Repeat("k", MaxKind+1) + ":hidden", "ip2:fine",
	})
	require.ErrorIs(t, err, ErrInvalid)
	assert.NotContains(t, err.Error(), "hidden")
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	var got []string
	for _, err := range joined.Unwrap() {
		fault, ok := errors.AsType[*FeatureError](err)
		require.True(t, ok)
		got = append(got, fmt.Sprintf("%d %s", fault.Index, fault.Kind))
	}
	assert.Equal(t, []string{"0 ", "1 ", "2 ", "3 ip", "5 user", "6 empty", "7 ", "8 long", "9 bytes", "10 "}, got)
}

func TestTooManyKinds(t *testing.T) {
	features := make(Features)
	var list []string
	for i := range MaxFeatureKinds {
		features[fmt.Sprintf("k%d", i)] = "v"
		list = append(list, fmt.Sprintf("k%d:v", i))
	}
	require.NoError(t, features.Validate())
	_, err := ParseFeatures(list)
	require.NoError(t, err)
	features["more"] = "v"
	require.ErrorIs(t, features.Validate(), ErrInvalid)
	_, err = ParseFeatures(append(list, "more:v"))
	require.ErrorIs(t, err, ErrInvalid)

	// Of ten thousand faults a few are enough.
	_, err = ParseFeatures(make([]string, 10_000))
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	assert.Len(t, joined.Unwrap(), 1+MaxFeatureKinds)
}

func TestCanonicalIP(t *testing.T) {
	for _, c := range []struct {
		value  string
		prefix int
		want   string
	}{
		{"192.0.2.1", 64, "192.0.2.1"},
		{"192.0.2.1/32", 64, "192.0.2.1"},
		{"::ffff:192.0.2.1", 64, "192.0.2.1"},
		{"::FFFF:c000:201", 64, "192.0.2.1"},
		{"::ffff:192.0.2.1/128", 64, "192.0.2.1"},
		{"2001:DB8:0:0:1:2:3:4", 64, "2001:db8::/64"},
		{"2001:db8::ffff:ffff:ffff:ffff", 64, "2001:db8::/64"},
		{"2001:db8::1:0:0:0:0", 64, "2001:db8:0:1::/64"},
		{"2001:db8::/64", 64, "2001:db8::/64"},
		{"2001:db8::9/64", 64, "2001:db8::/64"},
		{"2001:db8::9/96", 64, "2001:db8::/64"},
		{"2001:db8:ffff:1::1", 48, "2001:db8:ffff::/48"},
		{"2001:db8::1", 128, "2001:db8::1"},
		{"2001:db8::1", 1, "::/1"},
		{"::1", 64, "::/64"},
		{"::", 128, "::"},
	} {
		got, reason := canonicalIP(c.value, c.prefix)
		assert.Empty(t, reason, c.value)
		assert.Equal(t, c.want, got, "%s by /%d", c.value, c.prefix)
	}
	for _, value := range []string{
		"", "localhost", "192.0.2", "192.0.2.256", "192.0.2.01", " 192.0.2.1", "192.0.2.1:80", "[::1]", "192.0.2.0/24", "192.0.2.1/33",
		"2001:db8::/48", "::ffff:0:0/80", "::ffff:192.0.2.0/120", "fe80::1%eth0/64", "fe80::1%eth0",
		"::ffff:192.0.2.1%eth0", "1", "0x7f.1",
	} {
		_, reason := canonicalIP(value, 64)
		assert.NotEmpty(t, reason, "%q", value)
	}
}

// A feature is one address. An IPv6 one may be given as the network that answers show for it.
func TestAddressesOfFeatures(t *testing.T) {
	const (
		zone    = "the value is an address with a zone: leave the % and what follows out"
		network = "the value is a network: write one address, without the / and what follows"
		port    = "the value is an address in brackets or with a port: write the address alone"
		neither = "the value is not an IP address"
		another = "the network is not the /64 by which such addresses are counted"
	)
	event := &Event{Name: "e"}
	for value, want := range map[string]string{
		"1.2.3.4":               "ip:1.2.3.4",
		"::ffff:1.2.3.4":        "ip:1.2.3.4",
		"2001:DB8::1":           "ip:2001:db8::/64",
		"2001:db8::/64":         "ip:2001:db8::/64",
		"::/64":                 "ip:::/64",
		"fe80::1%eth0":          zone,
		"1.2.3.4/32":            network,
		"::1/64":                network,
		"2001:db8::/48":         another,
		"2001:db8::/65":         another,
		"1.2.3.4:80":            port,
		"[2001:db8::1]":         port,
		"1.2.3.04":              neither,
		"0x1.2.3.4":             neither,
		" 1.2.3.4":              neither,
		"1.2.3.4/33":            neither,
		"2001:db8::1::":         neither,
		"2001:db8:0:0:0:0:0:00": "ip:2001:db8::/64",
		"%":                     neither,
	} {
		features := Features{"ip": value}
		counter, err := event.Counter(features)
		_, parsed := ParseFeatures([]string{"ip:" + value})
		_, counters := event.Counters(features)
		if strings.HasPrefix(want, "ip:") {
			require.NoError(t, errors.Join(err, parsed, counters), value)
			assert.Equal(t, want, counter.Feature.String())
			continue
		}
		for _, err := range []error{err, counters} {
			fault, ok := errors.AsType[*FeatureError](err)
			if assert.True(t, ok, "%s: %v", value, err) {
				assert.Equal(t, want, fault.Reason, value)
			}
		}
		assert.Equal(t, want != another, parsed != nil, "%s: only an event knows its networks", value)
	}
}

func FuzzCanonicalIP(f *testing.F) {
	f.Add("192.0.2.1", uint8(64))
	f.Add("2001:db8::1/96", uint8(48))
	f.Add("::ffff:192.0.2.1", uint8(1))
	f.Add("fe80::1%eth0", uint8(127))
	f.Fuzz(func(t *testing.T, value string, bits uint8) {
		prefix := 1 + int(bits)%128
		canonical, reason := canonicalIP(value, prefix)
		if reason != "" {
			return
		}
		again, reason := canonicalIP(canonical, prefix)
		require.Empty(t, reason, "it takes what it returns")
		require.Equal(t, canonical, again)
		addr, err := netip.ParseAddr(value)
		if err != nil {
			return
		}
		network, err := ParseNetwork(canonical)
		require.NoError(t, err)
		require.True(t, network.Contains(addr.Unmap().WithZone("")))
	})
}
