package counterd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/markedtest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const reservingRules = `events:
  chat:
    limits:
      - {per: user, rate: 100/d, on_error: deny}
      - {per: user, rate: 90/h, algorithm: sliding-log, on_error: deny}
      - {per: user, concurrent: 2, lease: 1m, on_error: deny}
  export:
    limits: [{per: user, concurrent: 1, lease: 1m, on_error: deny}]
  report:
    limits:
      - {per: user, rate: 1/m, queue: 2, on_error: deny}
      - {per: user, rate: 100/h, algorithm: sliding-log, on_error: deny}
      - {per: user, rate: 100/d, on_error: deny}
      - {per: user, concurrent: 9, lease: 3m, on_error: deny}
`

var bob = counterd.Features{"user": "bob"}

// fleets calls test with two limiters that share counters: on servers with replicas and a secret, and as one limiter with
// the embedded store.
func fleets(t *testing.T, test func(t *testing.T, one, other *counterd.Limiter)) {
	t.Run("embedded", func(t *testing.T) {
		l := start(t, parse(t, reservingRules))
		test(t, l, l)
	})
	t.Run("servers", func(t *testing.T) {
		options := append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, 2)...), counterd.WithReplicas(2), counterd.WithKeySecret(testkit.SecretFile(t, "0123456789abcdef\n")))
		test(t, start(t, parse(t, reservingRules), options...), start(t, parse(t, reservingRules), options...))
	})
}

// asBob has a middleware's requests be bob's.
var asBob = counterd.FeatureFrom("user", func(*http.Request) (string, error) { return "bob", nil })

// A middleware reserves the cost, and the handler settles it, on any process. The lease stays with the middleware.
func TestMiddlewareReserves(t *testing.T) {
	fleets(t, func(t *testing.T, one, other *counterd.Limiter) {
		var reservation string
		h := one.Middleware("chat", counterd.ReserveFor(time.Minute),
			asBob, counterd.CostOf(func(*http.Request) int64 { return 80 }),
		)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d, found := counterd.DecisionOf(r.Context())
			require.True(t, found)
			reservation = d.Reservation
			require.NoError(t, other.Settle(r.Context(), reservation, 7))
			limits := stateOf(t, one, "chat").Limits
			assert.EqualValues(t, []int64{7, 7, 1}, []int64{limits[0].Count, limits[1].Count, limits[2].Count}, "the lease is held")
		}))
		assert.Equal(t, 200, serveOnce(h, httptest.NewRequestWithContext(ctx, "POST", "/", nil)).Code)
		require.NotEmpty(t, reservation)
		require.NoError(t, one.Settle(ctx, reservation, 7))
		require.ErrorIs(t, one.Settle(ctx, reservation, 8), counterd.ErrSettled)
		assert.Zero(t, stateOf(t, other, "chat").Limits[2].Count, "the lease is released")
		denied := serveOnce(one.Middleware("chat", counterd.ReserveFor(time.Minute), counterd.CostOf(func(*http.Request) int64 { return 101 }),
			asBob)(h), httptest.NewRequestWithContext(ctx, "POST", "/", nil))
		assert.Equal(t, 429, denied.Code)
	})
}

// Without ReserveFor the cost is final, and so it is for a handler without a middleware.
func TestMiddlewareReservesOnlyByOption(t *testing.T) {
	l := start(t, parse(t, reservingRules))
	h := l.Middleware("chat", asBob)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := counterd.DecisionOf(r.Context())
		assert.Empty(t, d.Reservation)
	}))
	assert.Equal(t, 200, serveOnce(h, httptest.NewRequestWithContext(ctx, "POST", "/", nil)).Code)
}

// What one process reserves another one settles, once, in buckets and in a log, and its lease is free.
func TestReserveAndSettle(t *testing.T) {
	fleets(t, func(t *testing.T, one, other *counterd.Limiter) {
		d, err := one.Reserve(ctx, "chat", bob, 80, time.Minute)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NotEmpty(t, d.Reservation)
		var marks markedtest.Marks
		marked, err := one.Reserve(ctx, "chat", counterd.Features{"user": marks.Word()}, 1, time.Minute)
		require.NoError(t, err)
		require.NotEmpty(t, marked.Reservation)
		marks.Absent(t, "a reservation", marked.Reservation)
		assert.EqualValues(t, []int64{80, 80, 1}, []int64{d.Limits[0].Count, d.Limits[1].Count, d.Limits[2].Count}, "a hit takes one lease")
		denied, err := one.Reserve(ctx, "chat", bob, 30, time.Minute)
		require.NoError(t, err)
		assert.False(t, denied.Allowed)
		assert.Empty(t, denied.Reservation)

		for range 3 {
			require.NoError(t, other.Settle(ctx, d.Reservation, 7))
			require.NoError(t, one.Settle(ctx, d.Reservation, 7))
		}
		require.ErrorIs(t, one.Settle(ctx, d.Reservation, 8), counterd.ErrSettled)
		require.ErrorIs(t, one.Settle(ctx, d.Reservation[1:], 7), counterd.ErrOutOfRange)
		require.ErrorIs(t, one.Settle(ctx, d.Reservation, 1_000_001), counterd.ErrOutOfRange)
		require.ErrorIs(t, one.Settle(ctx, "", 0), counterd.ErrOutOfRange)
		for _, limit := range stateOf(t, one, "chat").Limits[:2] {
			assert.EqualValues(t, 7, limit.Count, "%+v", limit)
		}
		assert.Zero(t, stateOf(t, other, "chat").Limits[2].Count)

		more, err := other.Reserve(ctx, "chat", bob, 10, time.Minute) // it used more
		require.NoError(t, err)
		require.NoError(t, one.Settle(ctx, more.Reservation, 40))
		require.NoError(t, other.Settle(ctx, more.Reservation, 40))
		for _, limit := range stateOf(t, one, "chat").Limits[:2] {
			assert.EqualValues(t, 47, limit.Count)
		}
		given, err := other.Reserve(ctx, "chat", bob, 10, time.Minute)
		require.NoError(t, err)
		require.NoError(t, one.Release(ctx, given.Reservation))
		require.ErrorIs(t, other.Settle(ctx, given.Reservation, 10), counterd.ErrSettled)
		for _, limit := range stateOf(t, other, "chat").Limits[:2] {
			assert.EqualValues(t, 47, limit.Count)
		}
	})
}

// stateOf returns the state of bob's limits.
func stateOf(t *testing.T, l *counterd.Limiter, event string) counterd.Decision {
	t.Helper()
	d, err := l.Check(ctx, event, bob)
	require.NoError(t, err)
	assert.Empty(t, d.Reservation, "a check takes nothing")
	return d
}

// A shorter lease is in force for those taken before, and a renewal says so; a longer one is, too.
func TestARenewalIsByTheLeaseInForce(t *testing.T) {
	rules := func(lease string) counterd.Rules {
		return parse(t, "events: {export: {limits: [{per: user, concurrent: 1, lease: "+lease+"}]}}")
	}
	bubble.Test(t, func(t *testing.T) {
		l := start(t, rules("60s"))
		d, err := l.Hit(ctx, "export", bob)
		require.NoError(t, err)
		require.NoError(t, l.SetRules(rules("10s")))
		held := func(want bool) {
			t.Helper()
			h, err := l.Hit(ctx, "export", bob)
			require.NoError(t, err)
			require.Equal(t, want, !h.Allowed, "%+v", h.Limits)
		}
		held(true)
		time.Sleep(5 * time.Second)
		renewed, err := l.Renew(ctx, d.Reservation, 30*time.Second)
		require.NoError(t, err)
		_, err = l.Renew(ctx, renewed, 30*time.Second)
		require.ErrorIs(t, err, counterd.ErrOutOfRange, "it is at most 10s long")
		time.Sleep(8 * time.Second)
		held(true)
		renewed, err = l.Renew(ctx, renewed, 10*time.Second)
		require.NoError(t, err)
		require.NoError(t, l.SetRules(rules("2m")))
		held(true)
		time.Sleep(5 * time.Second)
		renewed, err = l.Renew(ctx, renewed, 10*time.Second)
		require.NoError(t, err)
		time.Sleep(9 * time.Second)
		renewed, err = l.Renew(ctx, renewed, 2*time.Minute)
		require.NoError(t, err, "the token has the longer lease")
		time.Sleep(110 * time.Second)
		held(true)
		require.NoError(t, l.Release(ctx, renewed))
		held(false)
	})
}

// A request whose lease is lost learns of it: the store has forgotten it, or does not answer until it ends.
func TestTheMiddlewareCancelsWhatHasLostItsLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, "events: {e: {limits: [{per: user, concurrent: 1, lease: 4s, on_error: deny}]}}"))
		began := time.Now()
		h := l.Middleware("e", asBob)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(9 * time.Second)
			assert.NoError(t, r.Context().Err())
			assert.NoError(t, l.Reset(ctx, "e", bob))
			<-r.Context().Done()
			assert.ErrorIs(t, context.Cause(r.Context()), counterd.ErrEnded)
			assert.LessOrEqual(t, time.Since(began), 12*time.Second)
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	})
}

// The middleware releases what a request has taken, also if its handler panics.
func TestTheMiddlewareReleases(t *testing.T) {
	l := start(t, parse(t, reservingRules))
	var inner http.HandlerFunc
	h := l.Middleware("export", asBob)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner(w, r) }))
	serve := func() (status int, fault any) {
		defer func() { fault = recover() }()
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		return answer.Code, nil
	}
	inner = func(w http.ResponseWriter, _ *http.Request) {
		before := inner
		defer func() { inner = before }()
		inner = func(http.ResponseWriter, *http.Request) { t.Error("there is one lease") }
		status, _ := serve()
		w.WriteHeader(status)
	}
	for range 3 {
		status, fault := serve()
		assert.Nil(t, fault)
		assert.Equal(t, http.StatusTooManyRequests, status, "while it is served another one is denied")
	}
	ok := inner
	for range 3 {
		inner = func(http.ResponseWriter, *http.Request) { panic("broken") }
		_, fault := serve()
		assert.Equal(t, "broken", fault)
	}
	inner = ok
	_, fault := serve()
	assert.Nil(t, fault)
	assert.Zero(t, stateOf(t, l, "export").Limits[0].Count)
}

// The client reserves, settles, renews and releases over HTTP.
func TestSettleByHTTP(t *testing.T) {
	c := serveAll(t, start(t, parse(t, reservingRules)))
	d, err := c.Reserve(ctx, "chat", bob, 50, 30*time.Second)
	require.NoError(t, err)
	require.NoError(t, c.Settle(ctx, d.Reservation, 3))
	require.ErrorIs(t, c.Settle(ctx, d.Reservation, 4), client.ErrConflict)
	require.ErrorIs(t, c.Release(ctx, d.Reservation[:20]), client.ErrInvalid)
	lease, err := c.Hit(ctx, "export", bob, 1)
	require.NoError(t, err)
	renewed, err := c.Renew(ctx, lease.Reservation, time.Minute)
	require.NoError(t, err)
	require.NoError(t, c.Release(ctx, renewed))
	_, err = c.Renew(ctx, lease.Reservation, time.Minute)
	require.ErrorIs(t, err, client.ErrEnded)
	reserve := "1m"
	results, err := c.Batch(ctx, []wire.BatchHit{
		{Event: "chat", Features: bob, Reserve: &reserve}, {Event: "chat", Features: bob}, {Event: "chat", Features: bob, Reserve: new("soon")},
	})
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, results[2].Status)
	require.NoError(t, c.Settle(ctx, results[0].Reservation, 5))
	require.NoError(t, c.Release(ctx, results[1].Reservation), "it takes a lease")
}

// Clients with tokens could alter what others have reserved: that needs the secret.
func TestReservationsNeedASecretBesideTokens(t *testing.T) {
	tokens := func(c *assembly.Config) { c.Unsealed = true }
	_, err := counterd.New(parse(t, reservingRules), tokens)
	require.ErrorContains(t, err, "WithKeySecret")
	l := start(t, parse(t, "events: {e: {limits: [{per: user, rate: 5/m}]}}"), tokens)
	_, err = l.Reserve(ctx, "e", bob, 1, time.Minute)
	require.ErrorIs(t, err, counterd.ErrOutOfRange)
	require.ErrorContains(t, l.SetRules(parse(t, reservingRules)), "WithKeySecret")
	_, err = l.Hit(ctx, "e", bob)
	require.NoError(t, err)
}

// What was reserved by older rules is settled in what it was added to: the reservation says how its counter
// was kept.
func TestSettlingAfterAReload(t *testing.T) {
	l := start(t, parse(t, "events: {e: {limits: [{per: user, rate: 100/m}, {per: user, rate: 50/m, algorithm: sliding-log}]}}"))
	d, err := l.Reserve(ctx, "e", bob, 20, time.Minute)
	require.NoError(t, err)
	require.NoError(t, l.SetRules(parse(t, "events: {e: {limits: [{per: user, rate: [100/m, 200/3d]}, {per: user, rate: [50/m, 70/h], algorithm: sliding-log}]}}")))
	_, err = l.HitN(ctx, "e", bob, 3)
	require.NoError(t, err)
	require.NoError(t, l.Settle(ctx, d.Reservation, 5))
	for _, limit := range stateOf(t, l, "e").Limits {
		want := int64(8)
		if limit.Window == 72*time.Hour { // days were not kept
			want = 3
			assert.True(t, limit.Incomplete)
		}
		assert.Equal(t, want, limit.Count, "%+v", limit)
	}
}

// Increments take no leases, and a count is of the other limits. Of leases alone it counts the live ones.
func TestCountsBesideLeases(t *testing.T) {
	l := start(t, parse(t, reservingRules))
	require.NoError(t, l.Increment(ctx, "chat", bob, 40, time.Time{}))
	d, err := l.HitN(ctx, "chat", bob, 9)
	require.NoError(t, err)
	assert.EqualValues(t, []int64{49, 49, 1}, []int64{d.Limits[0].Count, d.Limits[1].Count, d.Limits[2].Count})
	n, err := l.Count(ctx, "chat", bob, time.Hour)
	require.NoError(t, err)
	assert.EqualValues(t, 49, n)
	require.NoError(t, l.Reset(ctx, "chat", bob))
	assert.Zero(t, stateOf(t, l, "chat").Limits[2].Count, "a reset forgets leases, too")

	_, err = l.Hit(ctx, "export", bob)
	require.NoError(t, err)
	n, err = l.Count(ctx, "export", bob, time.Minute)
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
}

// A hit that is admitted without the store has reserved nothing, and says so.
func TestReservingWithoutAStore(t *testing.T) {
	rules := "events: {e: {limits: [{per: user, rate: 100/m, on_error: local}, {per: user, concurrent: 1, lease: 1m, on_error: allow}]}}"
	l := start(t, parse(t, rules), counterd.WithMemcached("127.0.0.1:1"))
	for range 3 {
		d, err := l.Reserve(ctx, "e", bob, 20, time.Minute)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Empty(t, d.Reservation)
		for _, limit := range d.Limits {
			require.True(t, limit.Unreserved)
		}
	}
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Settle(ctx, "x", 5), counterd.ErrClosed)
}

// A request that takes longer than its lease keeps it by renewals, and no longer than it takes.
func TestTheMiddlewareRenews(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, "events: {e: {limits: [{per: [], concurrent: 1, lease: 2s, on_error: deny}]}}"))
		var long time.Duration
		h := l.Middleware("e")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(long) }))
		serve := func() int {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			return answer.Code
		}
		long = 10 * time.Second
		done := make(chan int)
		go func() { done <- serve() }()
		for range 19 {
			time.Sleep(500 * time.Millisecond)
			assert.Equal(t, http.StatusTooManyRequests, serve())
		}
		assert.Equal(t, http.StatusOK, <-done)
		long = 0
		assert.Equal(t, http.StatusOK, serve())
		assert.Equal(t, http.StatusOK, serve())
	})
}

// A log over half its bound takes no more reservations. A hit says so: it has none to settle, and its cost stays.
func TestALogThatReservesNoMoreSaysSo(t *testing.T) { bubble.Test(t, reserveUntilFull) }

func reserveUntilFull(t *testing.T) {
	l := start(t, parse(t, "events: {chat: {limits: [{per: user, rate: 1/m, burst: 1000}, {per: user, rate: 1000/d}]}}"))
	stays := int64(0)
	for range 900 {
		d, err := l.Reserve(ctx, "chat", bob, 1, time.Hour)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NotEmpty(t, d.Reservation, "the other counter has room")
		require.False(t, d.Limits[1].Unreserved)
		if d.Limits[0].Unreserved {
			stays++
		}
		require.NoError(t, l.Settle(ctx, d.Reservation, 0))
	}
	d := stateOf(t, l, "chat")
	assert.Equal(t, stays, d.Limits[0].Count)
	assert.Zero(t, d.Limits[1].Count)
	assert.NotZero(t, stays)

	l = start(t, parse(t, "events: {chat: {limits: [{per: user, rate: 1/m, burst: 1000}]}}"))
	for stays = 0; stays == 0; {
		d, err := l.Reserve(ctx, "chat", bob, 1, time.Hour)
		require.NoError(t, err)
		require.Equal(t, d.Reservation == "", d.Limits[0].Unreserved)
		if d.Reservation == "" {
			stays = d.Limits[0].Count
		}
	}
	require.ErrorIs(t, l.Settle(ctx, "", 0), counterd.ErrOutOfRange, "nothing is settled")
}

// Whatever a rules file allows, and for whatever features, a hit reserves, and is settled, renewed and released.
func TestWhateverIsReservedIsSettled(t *testing.T) {
	rounds := testkit.Fifth(100)
	bubble.Test(t, func(t *testing.T) { reserveByAnyRules(t, rounds) })
}

func reserveByAnyRules(t *testing.T, rounds int) {
	limits := []string{
		"rate: 1000/month, calendar: UTC, precision: hour", "rate: 1000/month, calendar: Europe/Berlin, precision: hour", "rate: 1000/30d, precision: hour", "rate: 1000/d",
		"rate: 500/month, algorithm: sliding-log", "rate: 500/month, calendar: Europe/Berlin", "rate: 1/d, burst: 30", "rate: 1/d, queue: 29", "rate: 100/s, burst: 100",
		"concurrent: 5, lease: 24h", "concurrent: 100, lease: 1s",
	}
	rnd := rand.New(rand.NewPCG(3, 16))
	for range rounds {
		kinds, features := strings.Split("abcdefghijklmnop"[:1+rnd.IntN(16)], ""), counterd.Features{}
		for _, kind := range kinds {
			features[kind] = strings.Repeat("x", 1+rnd.IntN(testkit.Pick(rnd, 1, 100, 1024)))
		}
		var rules []string
		leases, retention := false, testkit.Pick(rnd, "", ", retention: 32d")
		for i := range 1 + rnd.IntN(testkit.Pick(rnd, 3, 60)) {
			rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			limit := testkit.Pick(rnd, limits...)
			rule := fmt.Sprintf("{per: [%s], name: l%d, %s}", strings.Join(kinds[:rnd.IntN(len(kinds)+1)], ","), i, limit)
			all := append(slices.Clone(rules), rule)
			if _, err := counterd.ParseRules([]byte("events: {api: {limits: [" + strings.Join(all, ", ") + "]" + retention + "}}")); err == nil {
				rules, leases = all, leases || strings.Contains(limit, "lease")
			}
		}
		if len(rules) == 0 {
			continue
		}
		text := "events: {api: {limits: [" + strings.Join(rules, ", ") + "]" + retention + "}}"
		l := start(t, parse(t, text))
		time.Sleep(time.Hour) // the moment is another one
		settle := func() {
			d, err := l.Reserve(ctx, "api", namedIn(text, features), 1, time.Minute)
			require.NoError(t, err)
			require.True(t, d.Allowed, "%s: %+v", text, d)
			require.NotEmpty(t, d.Reservation, text)
			if leases {
				d.Reservation, err = l.Renew(ctx, d.Reservation, time.Second)
				require.NoError(t, err, text)
			}
			require.NoError(t, l.Settle(ctx, d.Reservation, 0), text)
			require.NoError(t, l.Release(ctx, d.Reservation), text)
		}
		settle()
		settle()
	}
}

// namedIn returns the features that rules have limits per.
func namedIn(rules string, features counterd.Features) counterd.Features {
	named := counterd.Features{}
	for kind, value := range features {
		if regexp.MustCompile(`per: \[[^]]*\b` + kind + `\b`).MatchString(rules) {
			named[kind] = value
		}
	}
	return named
}

// A limit of leases counts concurrent requests, in no window.
func TestTheHeadersOfLeases(t *testing.T) {
	l := start(t, parse(t, "events: {e: {limits: [{per: ip, concurrent: 2, lease: 30s}, {per: ip, rate: 5/m}]}}"))
	for _, state := range []string{`"ip-2-concurrent";r=1, "ip-5-per-1m";r=4`, `"ip-2-concurrent";r=0, "ip-5-per-1m";r=3`} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/events/e/hit", strings.NewReader(`{"features": {"ip": "192.0.2.1"}}`))
		r.Header.Set("Content-Type", "application/json")
		handlerOf(l).ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, `"ip-2-concurrent";q=2;qu="concurrent-requests", "ip-5-per-1m";q=5;w=60`, w.Header().Get("RateLimit-Policy"))
		assert.Equal(t, state, w.Header().Get("RateLimit"))
		_, err := httpsfv.UnmarshalList(w.Header().Values("RateLimit-Policy"))
		assert.NoError(t, err)
	}
}
