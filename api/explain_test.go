package api_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// Logs and token buckets know when room returns to the millisecond, and the contract has whole seconds: it names the
// second by which the room is there, once.
func TestRoomHasReturnedByTheSecondNamed(t *testing.T) {
	start := time.Date(2026, 11, 21, 4, 52, 20, 0, time.UTC)
	type step struct {
		after time.Duration // since start
		count int64
	}
	for name, test := range map[string]struct {
		limits string
		hits   []time.Duration // since start
		want   []step
	}{
		"sliding log": {
			"[{per: ip, rate: 9/30s, algorithm: sliding-log}]", // windows from a minute on slide by seconds
			[]time.Duration{250 * time.Millisecond, 750 * time.Millisecond, time.Second, 2 * time.Second, 2001 * time.Millisecond},
			[]step{{31 * time.Second, 3}, {32 * time.Second, 1}, {33 * time.Second, 1}},
		},
		"token bucket": {
			"[{per: ip, rate: 2/s, burst: 4}]",
			[]time.Duration{250 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond},
			[]step{{time.Second, 1}, {2 * time.Second, 2}, {3 * time.Second, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock(start)
			store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now})
			h := newLogServer(t, store, clock.Now, test.limits)
			for _, at := range test.hits {
				clock.Set(start.Add(at))
				require.Equal(t, 200, request(t, h, "POST", "/v1/events/e/hit", who).Code)
			}
			w := request(t, h, "GET", "/v1/events/e/explain?feature=ip:203.0.113.9", "")
			require.Equal(t, 200, w.Code, w.Body)
			var explained wire.Explained
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &explained))
			var got []step
			for _, freed := range explained.Limits[0].Frees {
				got = append(got, step{freed.At.Sub(start), freed.Count})
			}
			assert.Equal(t, test.want, got, w.Body)
		})
	}
}
