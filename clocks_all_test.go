//go:build testall

package counterd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const clockRules = `events:
  window:   {limits: [{per: ip, rate: 5/1h, on_error: deny}]}
  calendar: {limits: [{per: ip, rate: 5/month, calendar: Europe/Berlin, on_error: deny}]}
  log:      {limits: [{per: ip, rate: 5/1h, algorithm: sliding-log, on_error: deny}]}
  bucket:   {limits: [{per: ip, rate: 1/h, burst: 5, on_error: deny}]}
`

// One of three processes has a wrong clock, while new visitors come all the time: that process alone
// says so, and of the hits that are not incomplete no window holds more than its limit.
func TestThreeProcessesAndAWrongClock(t *testing.T) {
	for side, off := range map[string]time.Duration{"ahead of": 5 * time.Second, "behind": -5 * time.Second} {
		t.Run(side, func(t *testing.T) {
			leaktest.Check(t)
			servers := counterd.WithMemcached(memcachedtest.StartMany(t, 3)...)
			var all []*counterd.Limiter
			for i := range 3 {
				options := []counterd.Option{servers, counterd.WithReplicas(2), counterd.WithTimeout(2 * time.Second), counterd.WithGrace(4 * time.Second)}
				if i == 1 {
					options = append(options, func(c *assembly.Config) { c.Settings.Clock = func() time.Time { return time.Now().Add(off) } })
				}
				all = append(all, start(t, parse(t, clockRules), options...))
			}
			visitors := 0
			visit := func(most int64) {
				visitors++
				visitAll(t, all, counterd.Features{"ip": fmt.Sprintf("192.0.%d.%d", visitors/250, visitors%250)}, most)
			}
			testkit.Await(t, time.Minute, "the wrong clock is noticed", func() bool {
				visit(10) // what is wrong is not known yet
				return clockOf(t, all[1]) != ""
			})
			assert.Regexp(t, `^at least [0-9.]+ s `+side+` the other processes$`, clockOf(t, all[1]))
			for range 10 {
				visit(5)
			}
			for _, right := range []int{0, 2} {
				assert.Empty(t, clockOf(t, all[right]), "process %d", right)
			}
			d, err := all[1].Check(ctx, "window", visitor)
			require.NoError(t, err)
			assert.True(t, d.Limits[0].Incomplete)
			d, err = all[0].Check(ctx, "window", visitor)
			require.NoError(t, err)
			assert.False(t, d.Limits[0].Incomplete)
		})
	}
}

// clockOf returns what readyz says of the clock.
func clockOf(t *testing.T, l *counterd.Limiter) string {
	t.Helper()
	w := httptest.NewRecorder()
	handlerOf(l).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	var health wire.Health
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &health))
	return health.Clock
}

// visitAll has one visitor hit each event on all processes at once, of which no more are admitted and
// not incomplete.
func visitAll(t *testing.T, all []*counterd.Limiter, features counterd.Features, most int64) {
	for _, event := range []string{"window", "calendar", "log", "bucket"} {
		var said atomic.Int64
		var hits sync.WaitGroup
		for i := range 30 {
			hits.Go(func() {
				d, err := all[i%len(all)].Hit(ctx, event, features)
				assert.NoError(t, err)
				if d.Allowed && !d.Limits[0].Incomplete {
					said.Add(1)
				}
			})
		}
		hits.Wait()
		assert.LessOrEqual(t, said.Load(), most, event)
	}
}
