package counterd_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const logRules = `events:
  login:
    limits:
      - {per: ip, rate: 10/d, algorithm: sliding-log}
      - {per: user, rate: 15/d, throttle: soft 10%}
`

// onLogs runs a test on each store that keeps logs.
func onLogs(t *testing.T, test func(t *testing.T, options ...counterd.Option)) {
	t.Run("embedded", func(t *testing.T) { test(t, onBusyMachine...) })
	for _, protocol := range []string{"meta", "classic"} {
		t.Run(protocol, func(t *testing.T) {
			test(t, append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, 2)...), counterd.WithProtocol(protocol))...)
		})
		t.Run(protocol+" replicas", func(t *testing.T) {
			test(t, append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, 2)...), counterd.WithProtocol(protocol), counterd.WithReplicas(2))...)
		})
	}
}

// Of many hits at once exactly as many are admitted as the log has room for.
func TestALogAdmitsExactly(t *testing.T) {
	onLogs(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, parse(t, logRules), options...)
		var running sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		for range 60 {
			running.Go(func() {
				d, err := limiter.Hit(ctx, "login", visitor)
				assert.NoError(t, err)
				assert.Equal(t, "sliding-log", d.Limits[0].Algorithm)
				assert.Empty(t, d.Limits[0].OnError)
				assert.False(t, d.Limits[0].Incomplete)
				mu.Lock()
				defer mu.Unlock()
				if d.Allowed {
					admitted++
				}
			})
		}
		running.Wait()
		assert.Equal(t, 10, admitted)
	})
}

// Rules that the limiter cannot keep are refused at the start and by SetRules.
func TestLogsThatCannotBeKept(t *testing.T) {
	const burstRules, fault = "events: {login: {limits: [{per: ip, rate: 100/s, algorithm: sliding-log}]}}", "login, per ip: a log of the 100 hits in 1s, the retention, takes up to"
	late := counterd.WithGrace(20 * time.Second)
	_, err := counterd.New(parse(t, burstRules), late)
	require.ErrorIs(t, err, counterd.ErrInvalid)
	require.ErrorContains(t, err, fault)
	require.ErrorContains(t, start(t, parse(t, someRules), late).SetRules(parse(t, burstRules)), fault)
}
