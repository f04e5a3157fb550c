package counterd_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// onMemcached runs a test on Memcached without replicas and with them.
func onMemcached(t *testing.T, test func(t *testing.T, options ...counterd.Option)) {
	for name, n := range map[string]int{"one server": 1, "replicas": 2} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			test(t, append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, n)...), counterd.WithReplicas(n))...)
		})
	}
}

// callKey marks the context of a call.
type callKey struct{}

// A hit that has made one of its round trips when Close is called makes the others, and is counted.
func TestCloseWaitsForHits(t *testing.T) {
	rules := parse(t, "events: {login: {limits: [{per: ip, rate: 3/d, algorithm: sliding-log, on_error: allow}]}}")
	onMemcached(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, rules, options...)
		var first atomic.Bool
		made, goOn := make(chan struct{}), make(chan struct{})
		limiter.Parts().Observe(assembly.Hooks{OnRoundTrip: func(ctx context.Context, _ memcache.RoundTrip) {
			if ctx.Value(callKey{}) != nil && first.CompareAndSwap(false, true) {
				close(made)
				<-goOn
			}
		}})
		var running sync.WaitGroup
		running.Go(func() {
			d, err := limiter.Hit(context.WithValue(ctx, callKey{}, "hit"), "login", visitor)
			assert.NoError(t, err)
			assert.False(t, d.Limits[0].Failed)
		})
		<-made
		running.Go(func() { assert.NoError(t, limiter.Close()) })
		testkit.Await(t, time.Minute, "Close has begun", func() bool {
			return errors.Is(second(limiter.Check(ctx, "login", visitor)), counterd.ErrClosed)
		})
		close(goOn)
		running.Wait()
		count, err := start(t, rules, options...).Count(ctx, "login", visitor, time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, count)
	})
}

// After Close each call is ErrClosed, and each request a 503.
func TestCallsAfterClose(t *testing.T) {
	rules := parse(t, `events: {login: {limits: [{per: ip, rate: 3/d, on_error: allow}]}}`)
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		limiter, err := counterd.New(rules, append(options, counterd.WithLog(slog.New(slog.DiscardHandler)))...)
		require.NoError(t, err)
		middleware := limiter.Middleware("login")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was served") }))
		routes, operators := api.NewHandler(limiter, api.Config{}), api.NewOperatorHandler(limiter, api.Config{})
		require.NoError(t, limiter.Close())

		ip := counterd.Override{Event: "login", Kind: "ip", Value: "192.0.2.1", Rates: []events.Limit{{N: 5, Window: 24 * time.Hour}}, Until: time.Now().Add(time.Hour)}
		for name, err := range map[string]error{
			"SetRules":       limiter.SetRules(rules),
			"Hit":            second(limiter.Hit(ctx, "login", visitor)),
			"Hits":           second(limiter.Hits(ctx, []counterd.Hit{{Event: "login", Features: visitor}})),
			"Check":          second(limiter.Check(ctx, "login", visitor)),
			"Reserve":        second(limiter.Reserve(ctx, "login", visitor, 1, time.Minute)),
			"Settle":         limiter.Settle(ctx, "r", 1),
			"Release":        limiter.Release(ctx, "r"),
			"Renew":          second(limiter.Renew(ctx, "r", time.Minute)),
			"Count":          second(limiter.Count(ctx, "login", visitor, time.Hour)),
			"History":        second(limiter.History(ctx, "login", visitor, counterd.Hour, time.Time{}, time.Time{})),
			"Increment":      limiter.Increment(ctx, "login", visitor, 1, time.Time{}),
			"Reset":          limiter.Reset(ctx, "login", visitor),
			"SetOverride":    limiter.SetOverride(ctx, ip),
			"RemoveOverride": second(limiter.RemoveOverride(ctx, "login", "ip", "192.0.2.1")),
		} {
			assert.ErrorIs(t, err, counterd.ErrClosed, name)
		}
		const event = "/v1/events/login"
		for _, r := range []struct {
			by                   http.Handler
			method, target, body string
		}{
			{middleware, "GET", "/", ""},
			{routes, "POST", event + "/hit", `{"features": {"ip": "192.0.2.1"}}`},
			{routes, "POST", "/v1/batch", `{"hits": [{"event": "login", "features": {"ip": "192.0.2.1"}}]}`},
			{routes, "POST", "/v1/settle", `{"reservation": "r", "cost": 1}`},
			{routes, "GET", event + "/check?feature=ip:192.0.2.1", ""},
			{routes, "GET", event + "/count?feature=ip:192.0.2.1&window=1h", ""},
			{routes, "GET", event + "/history?feature=ip:192.0.2.1&level=hour", ""},
			{routes, "GET", event + "/history?feature=ip:192.0.2.1&level=hour&outcome=denied", ""},
			{routes, "POST", event + "/increment", `{"features": {"ip": "192.0.2.1"}}`},
			{routes, "GET", "/v1/authorize/login", ""},
			{operators, "GET", event + "/explain?feature=ip:192.0.2.1", ""},
			{operators, "DELETE", event + "/counters?feature=ip:192.0.2.1", ""},
			{operators, "POST", event + "/override", `{"features": {"ip": "192.0.2.1"}, "rates": ["5/d"], "for": "1h"}`},
			{operators, "DELETE", event + "/override?feature=ip:192.0.2.1", ""},
			{operators, "GET", "/readyz", ""},
		} {
			request := httptest.NewRequest(r.method, r.target, strings.NewReader(r.body))
			request.Header.Set("Content-Type", "application/json")
			answer := serveOnce(r.by, request)
			assert.Equal(t, http.StatusServiceUnavailable, answer.Code, "%s %s: %s", r.method, r.target, answer.Body)
		}
	})
}
