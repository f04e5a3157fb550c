package rls_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"

	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// Faults of calls are counted under the domain of their call, and logged.
func TestFaultsOfCallsAreReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var calls, faults []string
		k := newKit(t, setting{
			config: shop, rules: "events: {login: {limits: [{per: user, rate: 9/h}]}}",
			onCall:  func(domain, code string, _ time.Duration) { calls = append(calls, domain+" "+code) },
			onFault: func(domain, fault string) { faults = append(faults, domain+" "+fault) },
		})
		many := slices.Repeat([]*descriptor{of("user", "bob")}, 1001)
		twice := of("user", "bob", "user", "eve")
		for _, in := range []*request{
			{Domain: "shop"}, {Domain: "login", Descriptors: many}, {Descriptors: many[:1]},
			{Domain: "shopp", Descriptors: many[:1]}, {Domain: "shoppp", Descriptors: many[:1]}, {Domain: "login", Descriptors: []*descriptor{twice, twice}},
		} {
			_, _ = k.ShouldRateLimit(t.Context(), in)
		}
		k.ask("shop", of("user", "bob"))
		assert.Equal(t, []string{"shop InvalidArgument", "login InvalidArgument", "other InvalidArgument", "other OK", "other OK", "login OK", "shop OK"}, calls)
		assert.Equal(t, []string{"shop call", "login call", "other call", "other domain", "other domain", "login descriptor"}, faults)
		text := k.log.String()
		for _, want := range []string{
			`msg="a call is faulty" domain=shop error="the descriptors are missing`, `msg="a call is faulty" domain=login error="there are too many descriptors`,
			`domain=other error="the domain is missing`, `msg="a call names an unknown domain: it passes" name=shopp suppressed=0`, `domain=login error="it has an entry's key twice`, "descriptor=0",
		} {
			assert.Contains(t, text, want)
		}
		assert.Equal(t, 1, strings.Count(text, "unknown domain"), "one line a minute")
		time.Sleep(time.Minute)
		k.ask(strings.Repeat("x", 100), of("user", "bob"))
		assert.Contains(t, k.log.String(), fmt.Sprintf("name=%s suppressed=1\n", strings.Repeat("x", 64)))
	})
}

// A call without a token is counted under its domain, too.
func TestRefusedCallsHaveTheirDomain(t *testing.T) {
	var calls []string
	k := newKit(t, setting{
		config: shop, onCall: func(domain, code string, _ time.Duration) { calls = append(calls, domain+" "+code) },
		gate: service.GateConfig{Tokens: func() *service.Tokens { return &service.Tokens{} }},
	})
	k.refused(codes.Unauthenticated, "", &request{Domain: "shop", Descriptors: []*descriptor{of("user", "bob")}})
	k.refused(codes.Unauthenticated, "", &request{Domain: "made up", Descriptors: []*descriptor{of("user", "bob")}})
	assert.Equal(t, []string{"shop Unauthenticated", "other Unauthenticated"}, calls)
}
