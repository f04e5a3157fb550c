package replay_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/replay"
	"github.com/counterd/counterd/memcache"
)

// realServer is all of counterd in process, on the embedded store.
func realServer(t *testing.T, event events.Event, clock func() time.Time) http.Handler {
	rules := &events.Rules{Events: map[string]*events.Event{event.Name: &event}}
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(t, err)
	decider, err := limiter.New(limiter.Config{}, buckets, logs)
	require.NoError(t, err)
	counting, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: counting.New(counting.Config{}, buckets, logs),
		Limiter:  decider,
	})
	require.NoError(t, err)
	return api.NewServerHandler(api.ServerConfig{Service: counting})
}

// The purpose of it all: the server counts a real log exactly.
func TestServerCountsTheRealLog(t *testing.T) {
	log := readRealLog(t)
	perIP := []string{"ip"}
	inLogs := []events.Rule{{Per: perIP, Limits: []events.Limit{{N: 1000, Window: 59 * time.Second, Algorithm: eventlog.Algorithm}}}}
	const hour = time.Hour
	for name, c := range map[string]struct {
		event                      events.Event
		windows                    []time.Duration // nil: the default
		events, counters, compared int
	}{
		"a day": {event: events.Event{Name: "e"}, events: 2821, counters: 543, compared: 543 * (4*4 + 1)},
		"the whole log": {
			event: events.Event{Name: "e", Retention: 96 * hour}, windows: []time.Duration{24 * hour, 96 * hour},
			events: 10_000, counters: 1753, compared: 1753 * (4 + 1),
		},
		// In so short a time two of the nine questions are the same one.
		"an hour": {event: events.Event{Name: "e", Retention: hour}, events: 86, counters: 25, compared: 25 * 8},
		"to the minute": {
			event:   events.Event{Name: "e", Rules: []events.Rule{{Per: perIP, Precision: events.Minute}}},
			windows: []time.Duration{10 * time.Second, 24 * hour}, events: 2821, counters: 543, compared: 543 * 5,
		},
		"to the hour": {
			event:   events.Event{Name: "e", Rules: []events.Rule{{Per: perIP, Precision: events.Hour}}},
			windows: []time.Duration{90 * time.Minute, 24 * hour}, events: 2821, counters: 543, compared: 543 * 5,
		},
		"in a log": {
			event: events.Event{Name: "e", Retention: 24 * hour, Rules: inLogs}, windows: []time.Duration{10 * time.Second, 24 * hour},
			events: 2821, counters: 543, compared: 543 * 5,
		},
		"in a log, by milliseconds": {
			event: events.Event{Name: "e", Retention: 59 * time.Second, Rules: inLogs}, windows: []time.Duration{59 * time.Second},
			events: 79, counters: 23, compared: 23,
		},
	} {
		if slow := c.events > 1000; slow && name != "to the minute" && !testkit.Thorough() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			config := configWithin(t, realServer(t, c.event, stopped))
			config.Windows = c.windows
			result, err := replay.Run(t.Context(), config, log)
			require.NoError(t, err)
			assert.Equal(t, 10_000, result.Lines)
			assert.Zero(t, result.Malformed)
			assert.Equal(t, c.events, result.Events)
			assert.Equal(t, 10_000-c.events, result.Skipped)
			assert.Equal(t, c.counters, result.Counters)
			assert.EqualValues(t, c.compared, result.Comparisons)
			assert.Zero(t, result.Differences, "%v", result.FirstDifferences)
		})
	}
}

// The same on a clock that runs, and again over what the first run has left.
func TestServerOnARunningClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := readRealLog(t)
		server := realServer(t, events.Event{Name: "e", Retention: 2 * time.Hour}, time.Now)
		config := configWithin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Millisecond)
			server.ServeHTTP(w, r)
		}))
		config.Clock = time.Now
		for _, reset := range []bool{false, true} {
			config.Reset = reset
			config.Windows = []time.Duration{time.Second, 90 * time.Second, 2 * time.Hour}
			result, err := replay.Run(t.Context(), config, log)
			require.NoError(t, err)
			assert.Equal(t, 10_000, result.Events+result.Skipped)
			assert.NotZero(t, result.Comparisons)
			assert.Zero(t, result.Differences, "%v", result.FirstDifferences)
		}
	})
}

// Every feature and every pair of the real log's last day.
func TestServerCountsTheRealLogByKinds(t *testing.T) {
	log := readInput(t, "ip=host,agent=agent", accesslog.File(realLog))
	rules := []events.Rule{{Per: []string{"agent", "ip"}}, {Per: []string{"agent"}, Precision: events.Minute}}
	config := configWithin(t, realServer(t, events.Event{Name: "e", Rules: rules}, stopped))
	config.Windows = []time.Duration{time.Hour, 24 * time.Hour}
	result, err := replay.Run(t.Context(), config, log)
	require.NoError(t, err)
	assert.Equal(t, 2821, result.Events)
	// 543 addresses, 224 agents, 565 pairs of them.
	assert.Equal(t, 1332, result.Counters)
	assert.EqualValues(t, 1332*5, result.Comparisons)
	assert.Zero(t, result.Differences, "%v", result.FirstDifferences)
}
