//go:build testall

package verify

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// builtCounterd is the program, built once.
var builtCounterd string

func TestMain(m *testing.M) {
	flag.Parse()
	// They mostly wait, for clocks to tick: more of them at a time than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	builttest.Main(m, func(path string) { builtCounterd = path })
}

// What is wrong only now and then takes longer to be found.
func TestTargetsThatAreWrongAtTimes(t *testing.T) {
	t.Parallel()
	findWrong(t, map[string]wrong{
		"fixed windows": {&target{fixedWindows: true}, judge.Windows, "user-5-per-3s"},
		"counts of seconds, where the rules say minutes": {
			&target{rules: minuteRules, countsPrecisely: true}, judge.Counts, "a count of",
		},
		"windows of a log that are too long":                    {&target{rules: logRules, longer: 300}, judge.Denials, "is denied, and"},
		"counts of seconds, where a log slides by milliseconds": {&target{rules: logRules, countsPrecisely: true}, judge.Counts, "a count of"},
		"windows of a log beside buckets that are too long":     {&target{rules: bothRules, longer: 300}, judge.Denials, "is denied, and"},
		"fixed windows that slide":                              {&target{rules: fixedRules, slides: true}, judge.Denials, "is denied, and"},
		"a calendar that turns a second early":                  {&target{rules: calendarRules, turnsLate: -1}, judge.Windows, "admitted in the hour"},
		"a bucket that more returns to":                         {&target{rules: bucketRules, refills: 50}, judge.Windows, " ms of "},
		"leases that end late":                                  {&target{rules: leaseRules, leasesEnd: 500}, judge.Denials, "is denied, and"},
		"leases that end early":                                 {&target{rules: leaseRules, leasesEnd: -500}, judge.Windows, "leases that are live at"},
		"renewals that last longer":                             {&target{rules: leaseRules, renewsLonger: 500}, judge.Denials, "is denied, and"},
	})
}

// Processes of counterd pass, on Memcached servers and with every protocol, also while servers die.
func TestCounterdOnServers(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../deploy/rules/rules.yaml")
	require.NoError(t, err)
	for name, config := range map[string]Config{
		"embedded":          {Store: Embedded},
		"fixed, chaos":      {Chaos: true, Fleet: fleet.Config{Rules: ownFixed}},
		"fixed, replicas":   {Chaos: true, Fleet: fleet.Config{Rules: ownFixed, Servers: 3, Replicas: 2}},
		"one log":           {Fleet: fleet.Config{Rules: ownLog, Processes: 3}},
		"buckets, chaos":    {Chaos: true, Fleet: fleet.Config{Rules: ownBuckets}},
		"buckets, replicas": {Chaos: true, Fleet: fleet.Config{Rules: ownBuckets, Servers: 3, Replicas: 2}},
		"logs, classic":     {Fleet: fleet.Config{Rules: ownLogs, Servers: 1, Protocol: "classic"}},
		"logs, chaos":       {Chaos: true, Fleet: fleet.Config{Rules: ownLogs}},
		"logs, replicas":    {Chaos: true, Fleet: fleet.Config{Rules: ownLogs, Servers: 3, Replicas: 2}},
		"the example":       {Event: "url_shorten", Fleet: fleet.Config{Rules: string(example)}}, // has costs that never fit
		"one server":        {Fleet: fleet.Config{Servers: 1, Processes: 1, Protocol: "meta"}},
		"meta":              {Fleet: fleet.Config{Servers: 3, Protocol: "meta"}},
		"chaos":             {Chaos: true},
		"chaos, classic":    {Chaos: true, Fleet: fleet.Config{Servers: 1, Protocol: "classic"}},
		"chaos, replicas":   {Chaos: true, Fleet: fleet.Config{Servers: 3, Replicas: 2}},
	} {
		if bubble.RaceDetector && !slices.Contains([]string{"embedded", "one log", "buckets, replicas", "logs, chaos", "chaos, replicas"}, name) {
			continue // the servers are not built with it: these are all cases of the judge
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Fleet.Counterd, config.Fleet.Memcached = builtCounterd, "memcached"
			config.Duration, config.Clients, config.Features, config.Rate, config.Seed = 5*time.Second, 6, 12, 200, 1
			report, text := reportOf(t, config)
			require.True(t, report.OK(), text)
			assert.Positive(t, report.Admitted)
			assert.Positive(t, report.Denied)
			assert.Equal(t, config.Chaos, len(report.Kills) > 0)
			if config.Fleet.Processes == 1 || config.Store == Embedded {
				assert.Zero(t, report.Excused.Repeated, "one process knows what it has admitted")
			}
			if name == "one log" {
				assert.Zero(t, report.Excused.Overshoot, text)
			}
			if !config.Chaos || config.Fleet.Replicas > 1 {
				assert.Zero(t, report.Excused.Windows+report.Excused.LowCounts, text)
			}
		})
	}
}

func soakOf(config Config) Config {
	config.Fleet.Counterd, config.Fleet.Memcached = builtCounterd, "memcached"
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
}

// Garbage is no leak, and what a process keeps is.
func TestALeak(t *testing.T) {
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Config{
		Counterd: builtCounterd, Processes: 1, Timeout: ownTimeout, Rules: "events: {e: {retention: 30d, limits: [{per: user, rate: 1/d}]}}",
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
