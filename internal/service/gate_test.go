package service_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
)

func given(text string) service.Token { return service.Token{Text: text, Given: true} }

// A gate admits by class, counts what it refuses, and knows its clients.
func TestTheGateAdmitsByClass(t *testing.T) {
	var tokens atomic.Pointer[service.Tokens]
	parsed, err := service.ParseTokens([]byte("edge decide,read edge-edge-edge-edge\nops operate ops-ops-ops-ops-ops"))
	require.NoError(t, err)
	tokens.Store(parsed)
	var refusals service.Refusals
	gate := service.NewGate(service.GateConfig{Tokens: tokens.Load, Refusals: &refusals})
	for _, test := range []struct {
		class  service.Class
		token  service.Token
		client string
		reason string
	}{
		{service.ClassPublic, service.Token{}, "", ""},
		{service.ClassDecide, given("edge-edge-edge-edge"), "edge", ""},
		{service.ClassRead, given("edge-edge-edge-edge"), "edge", ""},
		{service.ClassOperate, given("edge-edge-edge-edge"), "edge", "forbidden"},
		{service.ClassOperate, given("ops-ops-ops-ops-ops"), "ops", ""},
		{service.ClassDecide, service.Token{}, "", "missing"},
		{service.ClassDecide, given(""), "", "unknown"},
		{service.ClassDecide, given("edge"), "", "unknown"},
		{0, given("edge-edge-edge-edge"), "edge", "forbidden"},
	} {
		admission, err := gate.Admit(test.class, test.token)
		admission.Release()
		assert.Equal(t, test.client, admission.Client)
		if test.reason == "" {
			assert.NoError(t, err)
			continue
		}
		var refusal *service.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, service.Refusal{Class: test.class, Reason: refusal.Reason, Client: test.client}, *refusal)
		assert.Equal(t, test.reason, refusal.Reason.String())
		if test.reason == "forbidden" {
			assert.ErrorIs(t, err, service.ErrForbidden)
		} else {
			assert.ErrorIs(t, err, service.ErrUnauthorized)
		}
	}
	counted := map[string]int64{}
	for _, of := range refusals.All() {
		assert.NotEqual(t, service.ClassPublic, of.Class)
		if of.N > 0 {
			counted[of.Class.String()+" "+of.Reason.String()] = of.N
		}
	}
	assert.Equal(t, map[string]int64{"operate forbidden": 1, "decide missing": 1, "decide unknown": 2}, counted)
	tokens.Store(nil)
	_, err = gate.Admit(service.ClassDecide, given("edge-edge-edge-edge"))
	assert.ErrorIs(t, err, service.ErrUnauthorized, "no tokens in force admit no request")
}

// Without tokens every request is admitted, but for those beyond the bound. Public ones are
// not among them.
func TestTheGateBoundsRequests(t *testing.T) {
	gate := service.NewGate(service.GateConfig{MaxRequests: 2})
	admit := func(class service.Class) (service.Admission, error) { return gate.Admit(class, service.Token{}) }
	first, err := admit(service.ClassDecide)
	require.NoError(t, err)
	second, err := admit(service.ClassRead)
	require.NoError(t, err)
	for range 3 {
		third, err := admit(service.ClassDecide)
		require.ErrorIs(t, err, service.ErrOverload)
		third.Release()
		public, err := admit(service.ClassPublic)
		require.NoError(t, err)
		public.Release()
	}
	first.Release()
	third, err := admit(service.ClassDecide)
	require.NoError(t, err)
	third.Release()
	second.Release()
	(&service.Admission{}).Release()
}

// Requests share 64 MiB, beyond 20 KiB of each, and give back what they held.
func TestTheGateBoundsMemory(t *testing.T) {
	gate := service.NewGate(service.GateConfig{})
	admit := func() service.Admission {
		a, err := gate.Admit(service.ClassDecide, service.Token{})
		require.NoError(t, err)
		return a
	}
	for range 2 {
		large, small := admit(), admit()
		require.NoError(t, large.Hold(10<<10))
		require.NoError(t, large.Hold(64<<20+10<<10), "all there is")
		assert.ErrorIs(t, large.Hold(1), service.ErrOverload)
		require.NoError(t, small.Hold(20<<10))
		assert.ErrorIs(t, small.Hold(1), service.ErrOverload)
		small.Release()
		large.Release()
	}
}
