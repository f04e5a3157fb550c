package events_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// An address of NAT64 is counted as the IPv4 address inside: otherwise all clients behind a NAT64 share one counter.
// Those of 6to4 and Teredo stay IPv6, since their senders can choose the IPv4 address.
func TestNAT64(t *testing.T) {
	rules, err := rulesfile.Parse([]byte(`
nat64: ["2001:db8:5::/48", "2001:db8:9::/96", "2001:db8:9::/96", "2001:db8:1::/48", "2001:db8:5::/64", "2001:dba::/32", "2001:dbb:100::/40", "2001:db8:7:5600::/56"]
events:
  e:
    limits:
      - {per: ip, rate: 5/m, deny: ["198.51.100.0/24", "64:ff9b::cb00:7100/120"], overrides: {"64:ff9b::192.0.2.8": 7/m}}
  signup: {}
`))
	require.NoError(t, err)
	event := rules.Events["e"]
	for value, want := range map[string]string{
		"64:ff9b::192.0.2.7":        "192.0.2.7",
		"64:ff9b::c000:207":         "192.0.2.7",
		"2001:db8:9::192.0.2.7":     "192.0.2.7",
		"2001:db8:1:c000:2:700::":   "192.0.2.7", // RFC 6052, section 2.2: bits 64 to 71 are skipped
		"2001:db8:5:0:c0:2:700:0":   "192.0.2.7",
		"2001:dba:c000:207::":       "192.0.2.7",
		"2001:dbb:1c0:2:7::":        "192.0.2.7",
		"2001:db8:7:56c0:0:207::":   "192.0.2.7",
		"2001:db8:1:c000:102:700::": "2001:db8:1:c000::/64", // it is none: bits 64 to 71 are not zero
		"64:ff9b:1::c000:207":       "64:ff9b:1::/64",
		"64:ff9b::1:c000:207":       "64:ff9b::/64",
		"2002:c000:207::1":          "2002:c000:207::/64",
		"2001::4136:e378:8000:63bf": "2001::/64",
		"::ffff:192.0.2.7":          "192.0.2.7",
		"2001:db8::1":               "2001:db8::/64",
	} {
		counter, err := event.Counter(events.Features{"ip": value})
		require.NoError(t, err, value)
		assert.Equal(t, "ip:"+want, counter.Feature.String(), value)
		applied, err := event.Apply(nil, events.Features{"ip": value})
		require.NoError(t, err)
		assert.Equal(t, counter.ID(), applied[0].ID)
		counted, err := event.CountedValue("ip", value)
		require.NoError(t, err)
		assert.Equal(t, want, counted, "of an override")
	}
	rule := &event.Rules[0]
	for value, want := range map[string]events.Listing{
		"64:ff9b::198.51.100.9": events.Denied, "198.51.100.9": events.Denied, "2001:db8:9::198.51.100.9": events.Denied,
		"64:ff9b::203.0.113.9": events.Denied, "203.0.113.9": events.Unlisted, "64:ff9b::192.0.2.7": events.Unlisted,
	} {
		assert.Equal(t, want, rule.Listed(events.Features{"ip": value}), value)
	}
	assert.EqualValues(t, 7, rule.LimitsFor("192.0.2.8")[0].N)
	counter, err := rules.Events["signup"].Counter(events.Features{"ip": "64:ff9b::192.0.2.7"})
	require.NoError(t, err)
	assert.Equal(t, "ip:192.0.2.7", counter.Feature.String())
	assert.False(t, events.NewNetworks(netip.MustParsePrefix("10.0.0.0/8")).Contains(netip.MustParseAddr("64:ff9b::10.0.0.1")), "no proxy is trusted by it")

	_, err = rulesfile.Parse([]byte(`{nat64: ["2001:db8::/44", 10.0.0.0/8, "2001:db8:1::/48"], events: {e: {}}}`))
	require.ErrorContains(t, err, "nat64[0]: a NAT64 prefix is an IPv6 network of 32, 40, 48, 56, 64 or 96 bits")
	require.ErrorContains(t, err, "nat64[1]: a NAT64 prefix")
}

// Counters of addresses are others if the prefixes change, so limits are incomplete until their windows have passed.
func TestNAT64Succeeds(t *testing.T) {
	parse := func(prefix string) *events.Rules {
		rules, err := rulesfile.Parse([]byte("{nat64: [" + prefix + "], events: {e: {limits: [{per: ip, rate: 5/m}, {per: user, rate: 5/m}]}}}"))
		require.NoError(t, err)
		return rules
	}
	next := events.Succeed(parse(""), parse(`"2001:db8:9::/96"`), 1_000_000)
	assert.EqualValues(t, 1_000_000, next.Events["e"].Rules[0].Limits[0].Since)
	assert.Zero(t, next.Events["e"].Rules[1].Limits[0].Since)
	same := events.Succeed(parse(`"2001:db8:9::/96"`), parse(`"2001:db8:9::/96"`), 1_000_000)
	assert.Zero(t, same.Events["e"].Rules[0].Limits[0].Since)
}
