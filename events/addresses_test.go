package events

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func networksOf(list ...string) Networks {
	var networks []netip.Prefix
	for _, s := range list {
		networks = append(networks, netip.MustParsePrefix(s))
	}
	return NewNetworks(networks...)
}

// The search finds what looking at each network would.
func TestNetworksAgainstLookingAtEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() netip.Prefix {
		addr := netip.AddrFrom4([4]byte{10, byte(rng.IntN(2)), byte(rng.IntN(4)), byte(rng.IntN(256))})
		return netip.PrefixFrom(addr, 6+rng.IntN(27)).Masked()
	}
	for range 2000 {
		var each []netip.Prefix
		for range rng.IntN(6) {
			each = append(each, random())
		}
		networks, sought := NewNetworks(each...), random()
		require.Equal(t, slices.ContainsFunc(each, func(p netip.Prefix) bool {
			return p.Bits() <= sought.Bits() && p.Contains(sought.Addr())
		}), networks.containsAll(sought), "%v in %v", sought, each)
	}
}

func TestListed(t *testing.T) {
	rule := &Rule{
		Per:   []string{"ip"},
		Allow: List{Networks: networksOf("10.0.0.0/8", "2001:db8::1/128")},
		Deny:  List{Networks: networksOf("203.0.113.0/24", "2001:db8:1::/48")},
	}
	for ip, want := range map[string]Listing{
		"10.1.2.3":           Allowed,
		"::ffff:10.1.2.3":    Allowed,
		"2001:db8::1":        Allowed,
		"2001:db8::2":        Unlisted, // of the same network, but only one address is listed
		"2001:db8::/64":      Unlisted,
		"203.0.113.9":        Denied,
		"2001:db8:1:9::1":    Denied,
		"2001:db8:1:9::1/64": Denied,
		"192.0.2.1":          Unlisted,
	} {
		assert.Equal(t, want, rule.Listed(Features{"ip": ip}), ip)
	}
	assert.Equal(t, Unlisted, rule.Listed(Features{"user": "10.1.2.3"}))

	pair := &Rule{
		Per:   []string{"ip", "user"},
		Allow: List{Networks: networksOf("10.0.0.0/8"), Values: map[string]bool{"alice": true}},
		Deny:  List{Values: map[string]bool{"mallory": true}},
	}
	assert.Equal(t, Allowed, pair.Listed(Features{"ip": "192.0.2.1", "user": "alice"}))
	assert.Equal(t, Allowed, pair.Listed(Features{"ip": "10.0.0.1", "user": "bob"}))
	assert.Equal(t, Denied, pair.Listed(Features{"ip": "10.0.0.1", "user": "mallory"}), "deny outranks allow")
	assert.Equal(t, Unlisted, pair.Listed(Features{"ip": "192.0.2.1", "user": "10.0.0.1"}), "an address is not a user")
}
