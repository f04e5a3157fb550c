package verify

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

func soakOf(config Config) Config {
	config.Fleet.Counterd, config.Fleet.Memcached = counterd, "memcached"
	config.Soak, config.Duration, config.Clients, config.Features, config.Seed = true, minSoak, 4, 12, 1
	config.maxSlack = time.Hour // a busy machine is slow
	return config
}

// A server is killed and comes back, and nothing is wrong.
func TestASoak(t *testing.T) {
	t.Parallel()
	report, text := reportOf(t, soakOf(Config{Fleet: fleet.Config{Servers: 3, Replicas: 2}, Chaos: true}))
	require.True(t, report.OK(), text)
	assert.NotEmpty(t, report.Kills)
	assert.Positive(t, report.Admitted)
	assert.Positive(t, report.Denied)
	assert.Zero(t, report.Excused.Windows+report.Excused.LowCounts, text)
	require.NotNil(t, report.Soak)
	assert.Len(t, report.Soak.Before, 2)
	assert.Len(t, report.Soak.After, 2)
	assert.Len(t, report.Soak.Slowest, 1)
	assert.Positive(t, report.Soak.Slowest[0])
	assert.Contains(t, text, "after a third of the time")
	t.Logf("\n%s", text)
}

// Garbage is no leak, and what a process keeps is.
func TestALeak(t *testing.T) {
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Config{
		Counterd: counterd, Processes: 1, Timeout: ownTimeout, Rules: "events: {e: {retention: 30d, limits: [{per: user, rate: 1/d}]}}",
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	s := &Soak{fleet: f}
	s.Before, err = s.measure()
	require.NoError(t, err)
	hit := func(users int) {
		for from := 0; from < users; from += 1000 { // not by the client, which takes minutes under the race detector
			var hits strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&hits, `,{"event":"e","features":{"user":"%d"}}`, from+i)
			}
			answer, err := http.Post("http://"+f.Processes[0].Addr+"/v1/batch", "application/json", strings.NewReader(`{"hits":[`+hits.String()[1:]+"]}"))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, answer.Body)
			require.NoError(t, errors.Join(err, answer.Body.Close()))
			require.Equal(t, http.StatusOK, answer.StatusCode)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	const connections = 20 // of the client, and more
	hit(1000)
	require.NoError(t, s.settled(connections))
	assert.InDelta(t, s.Before[0].Heap, s.After[0].Heap, 4<<20, "what it had allocated since its last collection was measured, too")
	hit(60_000)
	require.ErrorContains(t, s.settled(connections), "the live heap grew")
}

// Calls that are too slow in two loads are a violation; in one they are not.
func TestSlowCalls(t *testing.T) {
	t.Parallel()
	config := soakOf(Config{Store: Embedded})
	config.maxSlack = 1 - ownTimeout
	report, text := reportOf(t, config)
	assert.Equal(t, 1, report.Wrong[judge.Processes], text)
	assert.Contains(t, text, "in 2 of 2 loads one took more than 1ns")
	assert.GreaterOrEqual(t, report.Duration, minSoak)
}

// A log that is full is judged, and the calls go on with a new one.
func TestOneLogAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target *target
		right  bool
	}{
		"right":                           {&target{}, true},
		"with a limit of the whole event": {&target{rules: wholeRules}, true},
		"wrong":                           {&target{readThenIncrement: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				config := against(c.target)
				config.maxEvents = 1000
				r := newRun(config)
				r.alone = true
				require.NoError(t, r.prepare(t.Context(), config.URLs))
				require.NoError(t, r.load(t.Context(), 15*time.Second))
				report := r.finish(t.Context())
				assert.Equal(t, c.right, report.OK(), "%v", report.Violations)
				assert.Greater(t, r.rounds, 2)
				assert.Greater(t, report.Calls["hit"]+report.Calls["count"], 2*int64(config.maxEvents))
				assert.Positive(t, report.Checked.Predictions)
			})
		})
	}
}
