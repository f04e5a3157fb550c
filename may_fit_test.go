package counterd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const mayFitRules = `events:
  buckets: {limits: [{per: user, rate: 5/15m, on_error: deny}]}
  log: {limits: [{per: user, rate: 5/15m, algorithm: sliding-log, on_error: deny}]}
  tokens: {limits: [{per: user, rate: 5/15m, algorithm: token-bucket, burst: 5, on_error: deny}]}
  leases: {limits: [{per: user, concurrent: 5, lease: 15m, on_error: deny}]}
  both: {limits: [{per: user, rate: 5/15m}, {per: user, rate: 5/10m, algorithm: sliding-log, name: other}]}
`

// mayFit returns the denial of a hit on the event that reserves.
func mayFit(t *testing.T, l *counterd.Limiter, event string) counterd.Decision {
	t.Helper()
	d, err := l.Reserve(ctx, event, bob, 1, 30*time.Second)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	return d
}

// A denied hit may fit as soon as a reservation or a lease is given back, on whichever process that is.
func TestMayFitAfter(t *testing.T) {
	test := func(t *testing.T, one, other *counterd.Limiter) {
		for _, event := range []string{"buckets", "log", "tokens", "leases", "both"} {
			var open []string
			for i := range 5 {
				d, err := []*counterd.Limiter{one, other}[i%2].Reserve(ctx, event, bob, 1, 30*time.Second)
				require.NoError(t, err)
				require.True(t, d.Allowed)
				open = append(open, d.Reservation)
			}
			for _, l := range []*counterd.Limiter{one, other} {
				d := mayFit(t, l, event)
				assert.Greater(t, d.RetryAfter, 100*time.Second, "%s: if nobody gives back", event)
				assert.Equal(t, time.Second, d.MayFitAfter, event)
				again := mayFit(t, l, event)
				assert.Equal(t, time.Second, again.MayFitAfter, "%s: also of a cached denial", event)
			}
			if event == "leases" {
				continue
			}
			for i, reservation := range open {
				require.NoError(t, []*counterd.Limiter{other, one}[i%2].Settle(ctx, reservation, 1))
			}
			d := mayFit(t, one, event)
			assert.Zero(t, d.MayFitAfter, "%s: what is settled stays", event)
		}
	}
	t.Run("embedded", func(t *testing.T) {
		l := start(t, parse(t, mayFitRules))
		test(t, l, l)
	})
	for replicas, protocol := range map[int]string{1: "classic", 2: "meta"} {
		t.Run(fmt.Sprint(replicas, " ", protocol), func(t *testing.T) {
			options := append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, replicas)...),
				counterd.WithReplicas(replicas), counterd.WithProtocol(protocol),
				counterd.WithKeySecret(testkit.SecretFile(t, "0123456789abcdef\n")))
			test(t, start(t, parse(t, mayFitRules), options...), start(t, parse(t, mayFitRules), options...))
		})
	}
}

// A process that has reserved nothing itself learns of the reservations of others by the check that denies its first hit.
func TestMayFitAfterOfAnotherProcess(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			options := append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, replicas)...), counterd.WithReplicas(replicas))
			one := start(t, parse(t, mayFitRules), options...)
			for _, event := range []string{"buckets", "log", "tokens", "both"} {
				for range 5 {
					d, err := one.Reserve(ctx, event, bob, 1, 30*time.Second)
					require.NoError(t, err)
					require.True(t, d.Allowed)
				}
				testkit.Await(t, 30*time.Second, event+" of another process", func() bool { // the list is written in the background
					other := start(t, parse(t, mayFitRules), options...)
					d, err := other.Hit(ctx, event, bob)
					require.NoError(t, err)
					require.False(t, d.Allowed)
					return d.MayFitAfter == time.Second
				})
			}
		})
	}
}

// Of eight at once those that are denied may try again at once, not after the window.
func TestEightRightPasswordsAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, mayFitRules))
		decide := l.Middleware("buckets", asBob, counterd.ReserveFor(30*time.Second))
		h := decide(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond) // checks the password
			d, _ := counterd.DecisionOf(r.Context())
			assert.NoError(t, l.Release(ctx, d.Reservation))
		}))
		var mu sync.Mutex
		var after []string
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				answer := serveOnce(h, httptest.NewRequestWithContext(ctx, "POST", "/", nil))
				mu.Lock()
				defer mu.Unlock()
				if answer.Code == 429 {
					after = append(after, answer.Header().Get("Retry-After"))
					assert.Contains(t, answer.Body.String(), `"may_fit_after":1,`)
				}
			})
		}
		all.Wait()
		assert.Equal(t, []string{"1", "1", "1"}, after)
	})
}

// A reservation counts as open in the windows that hold it, until it ends or its counter is reset.
func TestMayFitAfterOfWhatIsOpen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, `events:
  short: {limits: [{per: user, rate: 2/10s}]}
  log: {limits: [{per: user, rate: 2/10s, algorithm: sliding-log}]}
  long: {limits: [{per: user, rate: 2/15m}]}
  longlog: {limits: [{per: user, rate: 2/15m, algorithm: sliding-log}]}
`))
		reserve := func(event string, lasts time.Duration) {
			d, err := l.Reserve(ctx, event, bob, 1, lasts)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		hit := func(event string) {
			d, err := l.Hit(ctx, event, bob)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		for _, event := range []string{"short", "log"} {
			reserve(event, time.Hour)
		}
		time.Sleep(11 * time.Second)
		for _, event := range []string{"short", "log"} {
			hit(event)
			hit(event)
			assert.Zero(t, mayFit(t, l, event).MayFitAfter, "the reservation has left the window of %s", event)
		}
		for _, event := range []string{"long", "longlog"} {
			reserve(event, 30*time.Second)
			reserve(event, 60*time.Second)
			d, err := l.Reserve(ctx, event, bob, 2, time.Second)
			require.NoError(t, err)
			assert.Equal(t, time.Second, d.MayFitAfter, event)
		}
		time.Sleep(31 * time.Second)
		for _, event := range []string{"long", "longlog"} {
			assert.Equal(t, time.Second, mayFit(t, l, event).MayFitAfter, "%s: one is open", event)
			d, err := l.Reserve(ctx, event, bob, 2, time.Second)
			require.NoError(t, err)
			assert.Zero(t, d.MayFitAfter, "%s: one is too few", event)
		}
		time.Sleep(30 * time.Second)
		for _, event := range []string{"long", "longlog"} {
			assert.Zero(t, mayFit(t, l, event).MayFitAfter, "%s: both have ended", event)
			require.NoError(t, l.Reset(ctx, event, bob))
			reserve(event, time.Minute)
			require.NoError(t, l.Reset(ctx, event, bob))
			hit(event)
			hit(event)
			assert.Zero(t, mayFit(t, l, event).MayFitAfter, "%s was reset", event)
		}
	})
}
