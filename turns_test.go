package counterd_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
)

// A middleware has requests wait for their turns, which are 50 ms apart, and denies what the queue has no
// room for.
func TestAMiddlewareWaits(t *testing.T) {
	limiter := start(t, parse(t, "events: {login: {limits: [{per: ip, rate: 20/s, queue: 4}]}}"), counterd.WithGrace(5*time.Second), counterd.WithTimeout(2500*time.Millisecond))
	var mu sync.Mutex
	served := map[time.Duration]bool{}
	handler := limiter.Middleware("login")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, found := counterd.DecisionOf(r.Context())
		assert.True(t, found)
		mu.Lock()
		defer mu.Unlock()
		served[d.Wait.Round(50*time.Millisecond)] = true
	}))
	begin := time.Now()
	statuses := map[int]int{}
	var running sync.WaitGroup
	for range 5 { // of which no more than one turn is over before the last has come
		running.Go(func() {
			request := httptest.NewRequest("GET", "/", nil)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request)
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
		})
	}
	running.Wait()
	require.Equal(t, map[int]int{200: 5}, statuses)
	var longest time.Duration
	for wait := range served {
		longest = max(longest, wait)
	}
	assert.GreaterOrEqual(t, time.Since(begin), longest)
	assert.LessOrEqual(t, longest, 200*time.Millisecond, "the queue by the rate")
}
