package rls_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
)

// Whatever value a client chooses is counted, as any other: it switches off neither its own limit nor another one.
func TestNoValueOfAClientSwitchesALimitOff(t *testing.T) {
	s := setting{config: shop, rules: `
events:
  login:
    limits:
      - {per: all, rate: 9/h}
      - {per: user, rate: 2/h}
      - {per: [agent, ip], rate: 2/h}
`}
	long := strings.Repeat("x", 1025)
	onMemcached(t, s, func(t *testing.T, k *kit) {
		for name, pairs := range map[string][]string{
			"empty":                     {"user", ""},
			"long":                      {"user", long},
			"as long as headers may be": {"user", strings.Repeat("x", 60<<10)},
			"another":                   {"user", long + "y"},
			"no address":                {"agent", "a", "ip", "nonsense"},
			"an address with a port":    {"agent", "a", "ip", "192.0.2.1:80"},
			"no address at all":         {"agent", long, "ip", ""},
			"a network":                 {"agent", "a", "ip", "2001:db8::/48"},
			"a hash":                    {"agent", "a", "ip", "sha256:" + strings.Repeat("0", 64)},
			"a key of no rule":          {"agent", "a", "ip", "192.0.2.1", "X-Any", ""},
			"many keys":                 {"user", "bob", "a", "", "b", "", "c", "", "d", "", "e", "", "f", "", "g", "", "h", "", "i", "", "j", "", "k", "", "l", "", "m", "", "n", "", "o", "", "p", ""},
			"a key twice with a value":  {"user", "eve", "user", "eve"},
		} {
			all := of("all", name)
			for left := uint32(2); left > 0; left-- {
				assert.Equal(t, []any{ok, ok, 6 + left, ok, left - 1}, says(k.ask("login", all, of(pairs...))), name)
			}
			assert.Equal(t, []any{over, ok, uint32(7), over, uint32(0)}, says(k.ask("login", all, of(pairs...))), name)
		}
		assert.Empty(t, k.log.String())
	})
}

// A descriptor that cannot be decided is decided by on_error, and the others as ever.
func TestAFaultyDescriptor(t *testing.T) {
	k := newKit(t, setting{config: shop, rules: `
events:
  open: {limits: [{per: ip, rate: 2/h}, {per: user, rate: 9/h}, {per: log, rate: 9/h, algorithm: sliding-log}]}
  closed: {limits: [{per: ip, rate: 2/h}, {per: used, rate: 9/h, count: all}, {per: user, rate: 9/h, on_error: deny}]}
  leases: {limits: [{per: ip, rate: 2/h}, {per: user, concurrent: 2, lease: 30s}]}
`})
	limit := &corev3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_HOUR}
	withLimit := of("user", "ada")
	withLimit.Limit = limit
	for name, faulty := range map[string]*descriptor{"a limit": withLimit, "a key twice": of("user", "ada", "user", "bob")} {
		ip := of("ip", "192.0.2."+map[string]string{"a limit": "1", "a key twice": "2"}[name])
		for left := uint32(2); left > 0; left-- {
			assert.Equal(t, []any{ok, ok, uint32(0), ok, left - 1}, says(k.ask("open", faulty, ip)), name)
		}
		assert.Equal(t, []any{over, ok, uint32(0), over, uint32(0)}, says(k.ask("open", faulty, ip)), name)
		for used := range uint32(3) {
			assert.Equal(t, []any{over, over, uint32(0), ok, uint32(2), ok, 8 - used}, says(k.ask("closed", faulty, ip, of("used", name))), name)
		}
	}
	assert.Equal(t, []any{ok, ok, uint32(1), ok, uint32(0)}, says(k.ask("leases", of("ip", "192.0.2.1"), of("user", "ada"))))
	assert.Equal(t, []any{ok, ok, uint32(1), ok, uint32(0)}, says(k.ask("open", of("ip", "192.0.2.7"), refunding(1, of("log", "x")))), "a log gives nothing back")
	text := k.log.String()
	for _, reason := range []string{"a limit of its own", "key twice", "leases", "in a log"} {
		assert.Contains(t, text, reason)
	}

	// A limit of its own that is none leaves the configured one in force.
	own := of("user", "bob")
	own.Limit = &corev3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 99}
	assert.Equal(t, []any{ok, ok, uint32(2), ok, uint32(9)}, says(k.ask("shop", own, of("all", ""))))

	// More counters than a decision has.
	many := make([]*descriptor, 1000)
	for i := range many {
		many[i] = of("user", strings.Repeat("x", i), "used", strings.Repeat("y", i))
	}
	answer := k.ask("closed", many...)
	assert.Equal(t, over, answer.OverallCode)
}
