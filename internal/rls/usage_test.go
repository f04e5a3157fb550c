package rls_test

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// onMemcached runs a test of a server on Memcached with one replica, and with two.
func onMemcached(t *testing.T, s setting, test func(t *testing.T, k *kit)) {
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			s.store = storestest.Open(t, memcache.Config{Replicas: replicas, Servers: memcachedtest.StartMany(t, 2)})
			k := newKit(t, s)
			k.clock.Set(time.Now())
			test(t, k)
		})
	}
}

// Use that a limit without count: all does not count is logged, if the limit is looked at before.
func TestReportsThatAreNotCountedAreLogged(t *testing.T) {
	k := newKit(t, setting{config: shop})
	denied := func() { assert.Equal(t, over, k.ask("shop", costing(4, of("user", "bob"))).OverallCode) }
	denied()
	assert.Empty(t, k.log.String(), "a cost that is known before")
	k.ask("shop", costing(0, of("user", "eve")))
	k.ask("shop", of("user", "eve"))
	assert.Empty(t, k.log.String())
	denied()
	assert.Contains(t, k.log.String(), `msg="use that was reported is not counted: set count: all for the limit" domain=shop limit=user suppressed=0`)
}

// Use that is reported after the answer always counts, also beyond the limit, and the next look is denied: of a limit of
// 1,000 reports of 600 are served twice.
func TestReportsOfUseCount(t *testing.T) {
	s := setting{
		config: `
domain: tokens
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000, count: all}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 1}}
`,
		rules: `
events:
  answer: {limits: [{per: user, rate: [1000/h, 2000/d], count: all}, {per: all, rate: 1/h}]}
  buckets: {limits: [{per: user, rate: 1000/h, burst: 1000, count: all}]}
`,
	}
	onMemcached(t, s, func(t *testing.T, k *kit) {
		for _, domain := range []string{"tokens", "answer", "buckets"} {
			served := 0
			for range 20 {
				if k.ask(domain, costing(0, of("user", "ada"))).OverallCode == ok {
					served += 600
					k.ask(domain, costing(600, of("user", "ada")))
				}
			}
			assert.Equal(t, 1200, served, domain)

			// A report larger than the limit, and larger than one hit may be.
			k.ask(domain, costing(5_000_000, of("user", "eve")))
			assert.Equal(t, over, k.ask(domain, costing(0, of("user", "eve"))).OverallCode, domain)
		}
		for _, domain := range []string{"tokens", "answer"} {
			// Beside a descriptor that is denied.
			k.ask(domain, of("all", "x"))
			assert.Equal(t, over, k.ask(domain, of("all", "x"), costing(900, of("user", "bob"))).OverallCode)
			assert.EqualValues(t, 100, k.ask(domain, costing(0, of("user", "bob"))).Statuses[0].LimitRemaining)
			assert.Equal(t, over, k.ask(domain, costing(0, of("all", "x"))).OverallCode)
		}
		own := func(cost uint64) *descriptor {
			d := costing(cost, of("user", "with a limit of its own"))
			d.Limit = &corev3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 500, Unit: typev3.RateLimitUnit_HOUR}
			return d
		}
		k.ask("tokens", own(700))
		assert.Equal(t, over, k.ask("tokens", own(0)).OverallCode)
		assert.Empty(t, k.log.String())
	})
}
