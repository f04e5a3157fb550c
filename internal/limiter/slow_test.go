package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/farstore"
)

// A denied hit learns when it fits, however much of its time the add and the undo took.
func TestRetryAfterIsExactOfASlowStore(t *testing.T) {
	for _, rules := range []string{
		"[{per: ip, rate: 10/m}]", "[{per: ip, rate: 10/m}, {per: user, rate: 5/h}]", "[{per: ip, rate: 10/m, algorithm: sliding-log}]",
	} {
		// A slower store has no time for the undo and two round trips of a search.
		for trip := time.Millisecond; trip < 40*time.Millisecond; trip += 2 * time.Millisecond {
			bubble.Test(t, func(t *testing.T) {
				st := farstore.New(1, 1, trip*5/12) // a message takes a fifth longer at most
				var failures []error
				counters := newCounters(st, nil)
				l, err := limiter.New(limiter.Config{OnStoreError: func(err error) { failures = append(failures, err) }}, counters, logsOf(t, counters))
				require.NoError(t, err)
				event, who := testkit.Event(t, rules), events.Features{"ip": "192.0.2.1"}
				d, err := l.Hit(t.Context(), hitOf(event, 10, who))
				require.NoError(t, err)
				require.True(t, d.Allowed, "%s at %s", rules, trip)
				time.Sleep(40 * time.Second)
				d, err = l.Hit(t.Context(), hitOf(event, 1, who))
				require.NoError(t, err)
				assert.False(t, d.Allowed)
				assert.InDelta(t, 20, d.RetryAfter.Seconds(), 1, "%s at %s", rules, trip)
				assert.Empty(t, failures, "%s at %s", rules, trip)
				st.Wait()
			})
		}
	}
}

// logsOf returns an engine of logs beside the counters.
func logsOf(t *testing.T, counters *hierarchy.Counters) *eventlog.Engine {
	t.Helper()
	logs, err := eventlog.New(counters.Base())
	require.NoError(t, err)
	return logs
}
