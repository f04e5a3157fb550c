package rls_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

const (
	minute = rlsv3.RateLimitResponse_RateLimit_MINUTE
	hour   = rlsv3.RateLimitResponse_RateLimit_HOUR
)

const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: user
    value: ada
    rate_limit: {unit: hour, requests_per_unit: 5, name: for-ada}
  - key: all
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 10}
  - key: free
    rate_limit: {unlimited: true, name: none}
  - key: tried
    rate_limit: {unit: hour, requests_per_unit: 1}
    shadow_mode: true
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: day
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: burst
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: instead
    rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: for-ada}]}
  - key: instead-of-free
    rate_limit: {unit: hour, requests_per_unit: 10, replaces: [{name: none}]}
  - key: tried-quota
    quota_mode: true
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
`

func TestADescriptorIsLimitedByItsConfiguration(t *testing.T) {
	k := newKit(t, setting{config: shop})
	answer := k.ask("shop", of("user", "bob"))
	assert.Equal(t, []any{ok, ok, uint32(2)}, says(answer))
	limit := answer.Statuses[0].CurrentLimit
	assert.EqualValues(t, 3, limit.RequestsPerUnit)
	assert.Equal(t, hour, limit.Unit)
	assert.Empty(t, limit.Name)
	assert.Equal(t, []any{ok, ok, uint32(4)}, says(k.ask("shop", of("user", "ada"))))
	assert.Equal(t, "for-ada", k.ask("shop", of("user", "ada")).Statuses[0].CurrentLimit.Name)
	limit = k.ask("shop", of("all", "")).Statuses[0].CurrentLimit
	assert.Equal(t, minute, limit.Unit)
	assert.EqualValues(t, 5, limit.UnitMultiplier.GetValue())

	k.clock.Advance(40 * time.Minute)
	assert.Equal(t, []any{ok, ok, uint32(0)}, says(k.ask("shop", costing(2, of("user", "bob")))))
	answer = k.ask("shop", of("user", "bob"))
	assert.Equal(t, []any{over, over, uint32(0)}, says(answer))
	assert.Equal(t, 20*time.Minute, answer.Statuses[0].DurationUntilReset.AsDuration(), "until it fits, as the window slides")
	assert.Equal(t, []any{"user"}, answer.DynamicMetadata.AsMap()["limits"])
	k.clock.Advance(20*time.Minute - time.Second)
	assert.Equal(t, over, k.ask("shop", of("user", "bob")).OverallCode)
	k.clock.Advance(time.Second)
	assert.Equal(t, ok, k.ask("shop", of("user", "bob")).OverallCode)
}

// What no limit applies to is admitted, and counted nowhere.
func TestWithoutALimit(t *testing.T) {
	k := newKit(t, setting{config: shop})
	for _, domain := range []string{"shop", "elsewhere"} {
		answer := k.ask(domain, of("unknown", "x"), of("user", "bob", "more", "y"), of())
		assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(0), ok, uint32(0)}, says(answer))
		assert.Nil(t, answer.Statuses[0].CurrentLimit)
	}
	assert.Equal(t, []any{ok, ok, uint32(math.MaxUint32)}, says(k.ask("shop", of("free", "x"))))
	assert.Zero(t, k.store.writes.Load())
}

// One request is one decision: if a descriptor denies, nothing is counted.
func TestADeniedRequestCountsNowhere(t *testing.T) {
	k := newKit(t, setting{config: shop})
	for range 3 {
		require.Equal(t, ok, k.ask("shop", of("user", "bob"), of("all", "")).OverallCode)
	}
	for range 4 {
		assert.Equal(t, []any{over, over, uint32(0), ok, uint32(7)}, says(k.ask("shop", of("user", "bob"), of("all", ""))))
	}
	assert.Equal(t, []any{ok, ok, uint32(2), ok, uint32(6)}, says(k.ask("shop", of("user", "eve"), of("all", ""))))
	twice := k.ask("shop", costing(2, of("user", "eve")), costing(2, of("user", "eve")))
	assert.Equal(t, []any{over, over, uint32(0), over, uint32(0)}, says(twice), "a descriptor that is there twice counts twice")
	first := k.ask("shop", costing(0, of("user", "eva")), costing(3, of("user", "eva")))
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(0)}, says(first), "a look beside a hit needs no room, and sees it")
	last := k.ask("shop", costing(3, of("user", "mia")), costing(0, of("user", "mia")))
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(0)}, says(last))
	looks := []*descriptor{costing(0, of("user", "zoe")), costing(0, of("user", "zoe")), costing(0, of("user", "zoe")), costing(0, of("user", "zoe"))}
	assert.Equal(t, ok, k.ask("shop", looks...).OverallCode, "nor do looks add up")
}

func TestHitsAddend(t *testing.T) {
	k := newKit(t, setting{config: shop})
	ask := func(hits uint32, descriptors ...*descriptor) *response {
		answer, err := k.ShouldRateLimit(t.Context(), &request{Domain: "shop", Descriptors: descriptors, HitsAddend: hits})
		require.NoError(t, err)
		return answer
	}
	assert.Equal(t, []any{ok, ok, uint32(8)}, says(ask(2, of("all", ""))))
	assert.Equal(t, []any{ok, ok, uint32(5), ok, uint32(1)}, says(ask(2, costing(3, of("all", "")), of("user", "bob"))))
	// 0 looks, and counts nothing, beside others and alone.
	assert.Equal(t, []any{ok, ok, uint32(5), ok, uint32(0)}, says(ask(1, costing(0, of("all", "")), of("user", "bob"))))
	denied := ask(1, of("all", ""), costing(0, of("user", "bob")))
	assert.Equal(t, []any{over, ok, uint32(5), over, uint32(0)}, says(denied), "bob has no room left, and nothing is counted")
	assert.Equal(t, []any{ok, ok, uint32(5)}, says(ask(1, costing(0, of("all", "")))))
	// Beside what is counted, or another look, it asks for no room of its own.
	ask(2, of("user", "eve"))
	assert.Equal(t, []any{ok, ok, uint32(1), ok, uint32(1)}, says(ask(1, costing(0, of("user", "eve")), costing(0, of("user", "eve")))))
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(0)}, says(ask(1, costing(0, of("user", "eve")), of("user", "eve"))))
	assert.Equal(t, over, ask(1, of("user", "eve"), costing(0, of("user", "eve"))).OverallCode)
}

func TestRefunds(t *testing.T) {
	k := newKit(t, setting{config: shop})
	k.ask("shop", costing(5, of("all", "")))
	assert.Equal(t, []any{ok, ok, uint32(8)}, says(k.ask("shop", refunding(3, of("all", "")))))
	answer := k.ask("shop", refunding(9, of("all", "")), of("user", "bob"))
	assert.Equal(t, []any{ok, ok, uint32(10), ok, uint32(2)}, says(answer), "no lower than 0")
	k.ask("shop", costing(2, of("user", "bob")))
	k.ask("shop", costing(4, of("all", "")))
	answer = k.ask("shop", refunding(2, of("all", "")), of("user", "bob"))
	assert.Equal(t, []any{over, ok, uint32(6), over, uint32(0)}, says(answer), "nothing is given back if a descriptor denies")
	assert.Equal(t, []any{ok, ok, uint32(5)}, says(k.ask("shop", of("all", ""))))
	k.reload("{domain: shop, descriptors: [{key: all, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 2}}]}")
	answer = k.ask("shop", refunding(1, of("all", "")))
	assert.Equal(t, []any{ok, ok, uint32(0)}, says(answer), "a refund denies nothing, also of a limit that is over")
	assert.Nil(t, answer.Statuses[0].DurationUntilReset)
	assert.NotContains(t, answer.DynamicMetadata.GetFields(), "limits")
	assert.Equal(t, over, k.ask("shop", of("all", "")).OverallCode)
	assert.Empty(t, k.log.String())
}

// A refund lowers the count, with any number of replicas, also after the list of servers has changed.
func TestRefundsOnMemcached(t *testing.T) {
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			servers := memcachedtest.StartMany(t, 3)
			fleet := storestest.Open(t, memcache.Config{Replicas: replicas, Servers: servers[:2]})
			k := newKit(t, setting{config: shop, store: fleet})
			k.clock.Set(time.Now())
			require.NoError(t, fleet.SetServers(t.Context(), servers))
			for n := range 6 {
				counter := fmt.Sprint(n)
				k.ask("shop", costing(3, of("all", counter)))
				assert.Equal(t, []any{ok, ok, uint32(9)}, says(k.ask("shop", refunding(2, of("all", counter)))))
				assert.Equal(t, []any{ok, ok, uint32(8)}, says(k.ask("shop", of("all", counter))))
			}
			assert.Empty(t, k.log.String())
		})
	}
}

// heldRollback is a store whose first rollback on a counter waits.
type heldRollback struct {
	store.Store
	of            string // is in the ID of the counter
	once          sync.Once
	held, release chan struct{}
}

func (h *heldRollback) Do(ctx context.Context, ops ...*store.Op) {
	if slices.ContainsFunc(ops, func(op *store.Op) bool { return op.Kind() == store.Subtract && strings.Contains(op.Counter, h.of) }) {
		h.once.Do(func() {
			close(h.held)
			<-h.release
		})
	}
	h.Store.Do(ctx, ops...)
}

// A refund may take what a hit in flight has added that is denied. Even so what is admitted, less what was given back,
// never exceeds the limit.
func TestARefundBesideAHitInFlight(t *testing.T) {
	k := newKit(t, setting{config: shop})
	process := newServer(t, k.store.Store, k.clock.Now, setting{timeout: 20 * time.Second}, k.limits.Load, &k.log)
	other := &kit{Server: process, t: t}
	h := &heldRollback{Store: k.store.Store, of: "all", held: make(chan struct{}), release: make(chan struct{})}
	k.store.Store = h
	k.ask("shop", costing(3, of("user", "bob")))
	var flight sync.WaitGroup
	flight.Go(func() {
		assert.Equal(t, over, k.ask("shop", costing(4, of("all", "")), of("user", "bob")).OverallCode)
	})
	<-h.held // what it has added to all is not rolled back yet
	assert.Equal(t, []any{ok, ok, uint32(10)}, says(other.ask("shop", refunding(4, of("all", "")))))
	admitted := 0
	hits := func() {
		for other.ask("shop", of("all", "")).OverallCode == ok {
			admitted++
		}
	}
	hits()
	close(h.release)
	flight.Wait()
	k.clock.Advance(time.Second) // after which no denial is remembered
	hits()
	assert.Equal(t, 10+4, admitted)
}

// A descriptor's own limit takes the place of the configured one, with a counter of its own.
func TestALimitOfItsOwn(t *testing.T) {
	k := newKit(t, setting{config: shop})
	own := func(n uint32, unit typev3.RateLimitUnit, multiplier uint32) *descriptor {
		d := of("user", "bob")
		d.Limit = &corev3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
		if multiplier > 0 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		return d
	}
	assert.Equal(t, []any{ok, ok, uint32(6)}, says(k.ask("shop", own(7, typev3.RateLimitUnit_DAY, 0))))
	assert.Equal(t, []any{ok, ok, uint32(2)}, says(k.ask("shop", of("user", "bob"))))
	answer := k.ask("shop", own(7, typev3.RateLimitUnit_DAY, 30))
	assert.EqualValues(t, 30, answer.Statuses[0].CurrentLimit.UnitMultiplier.GetValue())
	assert.EqualValues(t, 7, answer.Statuses[0].CurrentLimit.RequestsPerUnit)
	for _, wrong := range []*descriptor{
		own(7, typev3.RateLimitUnit_UNKNOWN, 0), own(7, 99, 0), own(7, 257, 0), own(7, -1, 0), own(7, typev3.RateLimitUnit_YEAR, 0),
		own(7, typev3.RateLimitUnit_DAY, 31), own(7, typev3.RateLimitUnit_SECOND, math.MaxUint32),
	} {
		wrong.HitsAddend = wrapperspb.UInt64(0)
		assert.Equal(t, []any{ok, ok, uint32(2)}, says(k.ask("shop", wrong)), "the configured one holds")
	}
	assert.Contains(t, k.log.String(), "the window of its limit is longer than 30d")

	instead := of("instead", "")
	instead.Limit = own(7, typev3.RateLimitUnit_DAY, 0).Limit
	assert.Equal(t, []any{ok, ok, uint32(4), ok, uint32(6)}, says(k.ask("shop", of("user", "ada"), instead)), "it replaces nothing")
}

func TestModes(t *testing.T) {
	k := newKit(t, setting{config: shop})
	for range 3 {
		assert.Equal(t, []any{ok, ok, uint32(0)}, says(k.ask("shop", of("tried", "x"))), "a shadow denies nothing")
	}
	assert.Equal(t, ok, k.ask("shop", of("path", "/files/a")).OverallCode)
	assert.Equal(t, ok, k.ask("shop", of("path", "/files/b")).OverallCode)
	assert.Equal(t, over, k.ask("shop", of("path", "/files/c")).OverallCode, "all files share a threshold")

	// Of two quotas one may be over.
	both := []*descriptor{of("day", ""), of("burst", "")}
	for _, want := range [][]any{
		{ok, ok, uint32(1), ok, uint32(3)}, {ok, ok, uint32(0), ok, uint32(2)},
		{ok, over, uint32(0), ok, uint32(1)}, {ok, over, uint32(0), ok, uint32(0)}, {over, over, uint32(0), over, uint32(0)},
	} {
		assert.Equal(t, want, says(k.ask("shop", both...)))
	}
	assert.Equal(t, over, k.ask("shop", of("day", "")).OverallCode, "alone it denies")
	assert.Equal(t, over, k.ask("shop", costing(0, of("burst", "")), of("day", "")).OverallCode)
	k.clock.Advance(time.Minute)
	assert.Equal(t, []any{ok, ok, uint32(4), over, uint32(0)}, says(k.ask("shop", costing(0, of("burst", "")), of("day", ""))), "one that is only looked at has room")

	shadowed := k.ask("shop", of("tried-quota", ""), of("burst", "of shadow"))
	for range 2 {
		shadowed = k.ask("shop", of("tried-quota", ""), of("burst", "of shadow"))
	}
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(1)}, says(shadowed), "nor does the shadow of a quota")

	// A limit that another one replaces does not count. One without a number is not replaced.
	assert.Equal(t, []any{ok, ok, uint32(9), ok, uint32(math.MaxUint32)}, says(k.ask("shop", of("instead-of-free", ""), of("free", "x"))))
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(8)}, says(k.ask("shop", of("user", "ada"), of("instead", ""))))
	assert.Equal(t, []any{ok, ok, uint32(4)}, says(k.ask("shop", of("user", "ada"))))
}

// Keys and values are any text: no two descriptors share a counter that differ.
func TestNoDescriptorsShareACounter(t *testing.T) {
	k := newKit(t, setting{config: `
domain: d
descriptors:
  - key: a
    rate_limit: &one {unit: hour, requests_per_unit: 1}
    descriptors: [{key: a, rate_limit: *one, descriptors: [{key: a, rate_limit: *one}]}]
  - {key: a_b, rate_limit: *one}
`})
	long := strings.Repeat("x", 5000)
	for _, d := range []*descriptor{
		of("a", ""), of("a", "b"), of("a_b", ""), of("a", "b_c"), of("a_b", "c"), of("a", "a", "a", ""), of("a", "", "a", "a"), of("a", "a"),
		of("a", "a a"), of("a", "a\x00"), of("a", "é"), of("a", "e\u0301"), of("a", long), of("a", long+"y"),
		of("a", "1", "a", "2", "a", "3"), of("a", "3", "a", "2", "a", "1"),
	} {
		assert.Equal(t, []any{ok, ok, uint32(0)}, says(k.ask("d", d)), "%v", d)
		assert.Equal(t, over, k.ask("d", d).OverallCode, "%v", d)
	}
}

// Without a configuration of its own a domain is an event of the rules, and entries are features.
func TestADomainIsAnEvent(t *testing.T) {
	k := newKit(t, setting{config: shop, rules: `
events:
  login:
    limits:
      - {per: ip, rate: [3/m, 5/h]}
      - {per: [ip, user], rate: 2/h, name: pair}
  log: {limits: [{per: user, rate: 9/h, algorithm: sliding-log}]}
`})
	ip := of("ip", "192.0.2.1")
	answer := k.ask("login", ip, of("user", "ada", "ip", "192.0.2.1"), of("color", "red"))
	assert.Equal(t, []any{ok, ok, uint32(2), ok, uint32(1), ok, uint32(0)}, says(answer), "the limit per ip counts once")
	assert.Equal(t, minute, answer.Statuses[0].CurrentLimit.Unit)
	assert.Equal(t, "pair", answer.Statuses[1].CurrentLimit.Name)
	assert.Equal(t, []any{ok, ok, uint32(1), ok, uint32(0)}, says(k.ask("login", ip, of("user", "ada", "ip", "192.0.2.1"))))
	assert.Equal(t, []any{over, ok, uint32(1), over, uint32(0)}, says(k.ask("login", ip, of("user", "ada", "ip", "192.0.2.1"))))
	assert.Equal(t, []any{ok, ok, uint32(3)}, says(k.ask("login", refunding(7, of("ip", "192.0.2.1")))))
	assert.Equal(t, []any{ok, ok, uint32(8)}, says(k.ask("log", of("user", "ada"))))

}

// Rules per the same kinds have one counter. The second descriptor costs more of it than the first.
func TestRulesThatShareACounterCountOnce(t *testing.T) {
	k := newKit(t, setting{rules: "events: {e: {limits: [{per: user, rate: 9/h}, {per: user, rate: 20/d}, {per: user, rate: 12/d, algorithm: sliding-log}]}}"})
	assert.Equal(t, []any{ok, ok, uint32(8)}, says(k.ask("e", of("user", "ann"))))
	assert.Equal(t, []any{ok, ok, uint32(5), ok, uint32(5)}, says(k.ask("e", of("user", "ann"), costing(3, of("user", "ann")))))
	assert.Equal(t, []any{ok, ok, uint32(0)}, says(k.ask("e", costing(5, of("user", "ann")))))
	assert.Equal(t, []any{over, over, uint32(0)}, says(k.ask("e", of("user", "ann"))))

	k = newKit(t, setting{rules: "events: {e: {limits: [{per: user, rate: 9/h}, {per: user, rate: 20/d, shadow: true}]}}"})
	k.ask("e", costing(8, of("user", "ann")))
	assert.Equal(t, []any{ok, ok, uint32(4)}, says(k.ask("e", refunding(3, of("user", "ann")))))
	assert.Equal(t, []any{ok, ok, uint32(4)}, says(k.ask("e", costing(0, of("user", "ann")))))
}

// What only looks adds nothing, to a log either, beside what is counted: also if the hit is denied, where denied hits
// count.
func TestLooksByRules(t *testing.T) {
	k := newKit(t, setting{rules: "events: {e: {limits: [{per: ip, rate: 3/h, algorithm: sliding-log}, {per: user, rate: 4/h, count: all}]}}"})
	ask := func(ofIP, ofUser uint64) []any {
		return says(k.ask("e", costing(ofIP, of("ip", "192.0.2.1")), costing(ofUser, of("user", "ann"))))
	}
	assert.Equal(t, []any{ok, ok, uint32(3), ok, uint32(3)}, ask(0, 1))
	assert.Equal(t, []any{ok, ok, uint32(2), ok, uint32(3)}, ask(1, 0))
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(3)}, ask(2, 0))
	for left := range uint32(3) {
		assert.Equal(t, []any{over, over, uint32(0), ok, 2 - left}, ask(0, 1))
	}
	assert.Equal(t, []any{over, over, uint32(0), over, uint32(0)}, ask(0, 0))
	k.clock.Advance(time.Hour)
	assert.Equal(t, []any{ok, ok, uint32(3), ok, uint32(4)}, ask(0, 0))
}

func TestFaultsOfRequests(t *testing.T) {
	k := newKit(t, setting{config: shop})
	many := make([]*descriptor, limiter.MaxHits+1)
	for i := range many {
		many[i] = of("user", "bob")
	}
	for reason, in := range map[string]*request{
		"the domain is missing":       {Descriptors: []*descriptor{of("user", "bob")}},
		"the descriptors are missing": {Domain: "shop"},
		"at most 1000":                {Domain: "shop", Descriptors: many},
	} {
		k.refused(codes.InvalidArgument, reason, in)
	}
	assert.Zero(t, k.store.writes.Load())
	assert.Equal(t, ok, k.ask("shop", nil).OverallCode)
	_, err := rls.New(rls.Config{})
	assert.ErrorContains(t, err, "a Service and a Gate")
}

func TestTokens(t *testing.T) {
	tokens, err := service.ParseTokens([]byte("edge decide edge-edge-edge-edge\nreader read read-read-read-read"))
	require.NoError(t, err)
	gate := service.GateConfig{Tokens: func() *service.Tokens { return tokens }, MaxRequests: 1}
	k := newKit(t, setting{config: shop, gate: gate})
	for _, test := range []struct {
		code codes.Code
		md   metadata.MD
	}{
		{codes.OK, metadata.Pairs("authorization", "Bearer edge-edge-edge-edge")},
		{codes.OK, metadata.Pairs("counterd-token", "edge-edge-edge-edge", "authorization", "Bearer of-another-server")},
		{codes.Unauthenticated, nil},
		{codes.Unauthenticated, metadata.Pairs("authorization", "Bearer edge-edge-edge-edgy")},
		{codes.Unauthenticated, metadata.Pairs("authorization", "Basic edge-edge-edge-edge")},
		{codes.Unauthenticated, metadata.Pairs("counterd-token", "edge-edge-edge-edge", "counterd-token", "edge-edge-edge-edge")},
		{codes.PermissionDenied, metadata.Pairs("authorization", "Bearer read-read-read-read")},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), test.md)
		_, err := k.ShouldRateLimit(ctx, &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
		assert.Equal(t, test.code, statusOf(err), "%v", test.md)
	}
}

// A store that fails fails no request: the rules' on_error decides.
func TestAStoreThatFails(t *testing.T) {
	k := newKit(t, setting{config: shop, rules: `
events:
  closed: {limits: [{per: user, rate: 9/h, on_error: deny}]}
  open: {limits: [{per: user, rate: 9/h, on_error: allow}]}
`})
	k.store.fails = errors.New("down")
	assert.Equal(t, []any{over, over, uint32(0)}, says(k.ask("closed", of("user", "ada"))))
	assert.Equal(t, []any{ok, ok, uint32(0)}, says(k.ask("open", of("user", "ada"))))
	assert.Nil(t, k.ask("shop", of("user", "ada")).Statuses[0].CurrentLimit, "what remains is not known")
	assert.Equal(t, ok, k.ask("shop", refunding(2, of("user", "ada"))).OverallCode)
	assert.Equal(t, 1, strings.Count(k.log.String(), "stays counted"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.ShouldRateLimit(ctx, &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
	assert.Equal(t, codes.Canceled, statusOf(err))
}

// A store that hangs fails no request either: it is answered before its deadline, be that before the timeout or not.
func TestAStoreThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newKit(t, setting{config: shop})
		k.store.hangs = true
		for _, within := range []time.Duration{20 * time.Millisecond, time.Second, time.Hour} {
			for _, d := range []*descriptor{of("user", "bob"), costing(0, of("user", "bob")), refunding(1, of("user", "bob"))} {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				answer, err := k.ShouldRateLimit(ctx, &request{Domain: "shop", Descriptors: []*descriptor{d, of("all", "")}})
				require.NoError(t, err)
				require.NoError(t, ctx.Err())
				assert.Equal(t, ok, answer.OverallCode)
			}
		}
	})
}

// Responses have the headers that the rules choose, also with names that no header has as they are; requests of a
// leaky bucket how long they wait.
func TestHeaders(t *testing.T) {
	const config = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 2, name: 'é\"'}}]}"
	headersOf := func(r *response) (all []string) {
		for _, header := range r.ResponseHeadersToAdd {
			all = append(all, header.Key+": "+header.Value)
		}
		return all
	}
	k := newKit(t, setting{config: config, rules: "{events: {queued: {limits: [{per: user, rate: 2/s, queue: 3}]}}, headers: [ratelimit, x-ratelimit]}"})
	k.ask("shop", of("user", "bob"))
	assert.Equal(t, []string{
		`Ratelimit-Policy: "%C3%A9\"";q=2;w=3600`, `Ratelimit: "%C3%A9\"";r=0`, "X-Ratelimit-Limit: 2", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 0",
	}, headersOf(k.ask("shop", of("user", "bob"))))
	assert.Equal(t, "Retry-After: 3600", headersOf(k.ask("shop", of("user", "bob")))[0])
	k.ask("queued", of("user", "bob"))
	wait := k.ask("queued", of("user", "bob")).RequestHeadersToAdd
	require.Len(t, wait, 1)
	assert.Equal(t, "Counterd-Wait: 0.5", wait[0].Key+": "+wait[0].Value)

	k = newKit(t, setting{config: config, rules: "{events: {unused: {}}, headers: none}"})
	assert.Empty(t, headersOf(k.ask("shop", of("user", "bob"))))
}

// The metadata of the limits that apply is that of the response, the later one's where two have the same.
func TestMetadataOfLimits(t *testing.T) {
	k := newKit(t, setting{config: `
domain: shop
descriptors:
  - {key: a, metadata: {team: one, list: [1, true]}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: b, metadata: {team: two}, rate_limit: {unlimited: true}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 1}}
`})
	assert.Nil(t, k.ask("shop", of("c", "")).DynamicMetadata)
	assert.Equal(t, map[string]any{"domain": "shop", "metadata": map[string]any{"team": "two", "list": []any{1.0, true}}},
		k.ask("shop", of("a", ""), of("b", "")).DynamicMetadata.AsMap())
	assert.Equal(t, []any{"a"}, k.ask("shop", of("a", "")).DynamicMetadata.AsMap()["limits"])
}

// Of a request that would count on very many counters, on_error decides those beyond the most that a decision has.
func TestVeryManyCounters(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("events:\n  many:\n    limits:\n")
	for n := range 60 {
		fmt.Fprintf(&rules, "      - {per: user, rate: 9/%ds}\n", n+1)
	}
	k := newKit(t, setting{rules: rules.String()})
	in := &request{Domain: "many"}
	for n := range 16 {
		in.Descriptors = append(in.Descriptors, of("user", fmt.Sprint(n)))
	}
	answer, err := k.ShouldRateLimit(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, ok, answer.OverallCode)
	in.Descriptors = append(in.Descriptors, of("user", "one"))
	answer, err = k.ShouldRateLimit(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, ok, answer.OverallCode)
	assert.Contains(t, k.log.String(), "with it the request counts on more than 1000 counters")
}

// A limit that a reload has added says that it is incomplete, until its window has passed.
func TestAfterAReload(t *testing.T) {
	k := newKit(t, setting{config: shop})
	before := k.limits.Load()
	k.reload("{domain: shop, descriptors: [{key: fresh, rate_limit: {unit: minute, requests_per_unit: 9}}]}")
	k.limits.Load().Succeed(before, k.clock.Now())
	assert.Equal(t, []any{"fresh"}, k.ask("shop", of("fresh", "")).DynamicMetadata.AsMap()["incomplete"])
	k.clock.Advance(61 * time.Second)
	assert.Nil(t, k.ask("shop", of("fresh", "")).DynamicMetadata)
}

// Two addresses of one network have one counter, and each has its own place on the rule's lists.
func TestListsOfDescriptorsOnOneCounter(t *testing.T) {
	k := newKit(t, setting{rules: "events: {e: {limits: [{per: ip, rate: 3/h, allow: ['2001:db8::1'], deny: ['2001:db8::2']}]}}"})
	allowed, denied, unlisted := of("ip", "2001:db8::1"), of("ip", "2001:db8::2"), of("ip", "2001:db8::3")
	assert.Equal(t, over, k.ask("e", unlisted, denied).OverallCode)
	assert.Equal(t, over, k.ask("e", denied, unlisted).OverallCode)
	assert.Equal(t, ok, k.ask("e", costing(0, allowed), costing(2, unlisted)).OverallCode)
	assert.Equal(t, []any{ok, ok, uint32(0), ok, uint32(0)}, says(k.ask("e", allowed, costing(1, unlisted))))
	assert.Equal(t, over, k.ask("e", allowed, unlisted).OverallCode)
	assert.Equal(t, over, k.ask("e", unlisted, allowed).OverallCode)
	assert.Equal(t, ok, k.ask("e", allowed).OverallCode)
}

// If the store answers for some counters alone, those count, also beside a descriptor that looks.
func TestAStoreThatFailsInPart(t *testing.T) {
	k := newKit(t, setting{config: shop})
	k.store.fails, k.store.of = errors.New("down"), "bob"
	for left := range uint32(10) {
		assert.Equal(t, []any{ok, ok, uint32(0), ok, 9 - left}, says(k.ask("shop", costing(0, of("user", "bob")), of("all", ""))))
	}
	assert.Equal(t, over, k.ask("shop", costing(0, of("user", "bob")), of("all", "")).OverallCode)
}
