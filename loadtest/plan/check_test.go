package plan

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// given are costs that nobody has to measure.
var given = Costs{MemcachedHit: 10 * time.Microsecond, CounterdHit: 10 * time.Microsecond}

func rulesOf(t *testing.T, text string) *events.Rules {
	t.Helper()
	rules, err := events.ParseRules([]byte(text))
	require.NoError(t, err)
	return rules
}

// hold holds a plan against real servers: all but CPU times.
func hold(t *testing.T, config Config, within float64) *Checked {
	t.Helper()
	config.Costs = given
	checked, err := RunCheck(t.Context(), CheckConfig{Plan: config, Seed: 7})
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	require.Zero(t, checked.Denied)
	require.Len(t, checked.Rows, 10)
	for _, row := range checked.Rows {
		require.Positive(t, row.Measured, row.Name)
		if !row.Timed {
			assert.InDelta(t, 1, row.Ratio, within, "%s: planned %g, measured %g", row.Name, row.Planned, row.Measured)
		}
	}
	assert.Empty(t, checked.Off())
	return checked
}

const fourLimits = "events: {hit: {limits: [{per: ip, rate: [1000/s, 10000/m, 100000/h, 1000000/d]}]}}"

// A million counters on a real Memcached take what was planned. All figures are wanted
// within 15%; they are nearer.
func TestAMillionCounters(t *testing.T) {
	checked := hold(t, Config{
		Rules: rulesOf(t, fourLimits), Replicas: 1, Features: Amounts{"": millions}, Events: Amounts{"": millions * 5 / 4},
	}, 0.03)
	assert.EqualValues(t, millions, checked.Features)
	assert.Greater(t, checked.Rows[0].Measured, 4.*millions)
}

// by returns the amounts divided by n.
func (a Amounts) by(n float64) Amounts {
	less := Amounts{}
	for name, amount := range a {
		less[name] = amount / n
	}
	return less
}

func TestPlansHoldOnMemcached(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		config Config
		within float64
	}{
		"one limit a day, several events a feature": {
			rules:  "events: {hit: {limits: [{per: user, rate: 1000000/d}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 2000}, Events: Amounts{"": 40_000}},
		},
		"sessions": {
			rules: fourLimits,
			config: Config{Replicas: 1, Features: Amounts{"": 4000}, Events: Amounts{"": 40_000},
				Sessions: Sessions{Events: 5, Length: 10 * time.Minute}},
		},
		"precision of a minute": {
			rules:  "events: {hit: {limits: [{per: ip, rate: [10000/15m, 100000/d], precision: minute}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 5000}, Events: Amounts{"": 30_000}},
		},
		"a retention of two hours": {
			rules:  "events: {hit: {limits: [{per: ip, rate: [1000/10s, 100000/2h]}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 20_000}, Events: Amounts{"": 400_000}},
		},
		"two kinds, and both together": {
			rules: "events: {hit: {limits: [{per: ip, rate: 100000/h}, {per: user, rate: [10000/m, 1000000/d]}, {per: [ip, user], rate: 100000/d}]}}",
			config: Config{Replicas: 1, Features: Amounts{"ip": 6000, "user": 4000, "ip+user": 12_000},
				Events: Amounts{"": 24_000}},
		},
		"the whole event, too": {
			rules:  "events: {hit: {limits: [{per: [], rate: [1000000/s, 10000000/d]}, {per: ip, rate: 100000/h}]}}",
			config: Config{Replicas: 1, Features: Amounts{"": 5000}, Events: Amounts{"": 40_000}},
		},
		"two copies on three servers": {
			rules:  fourLimits,
			config: Config{Replicas: 2, Features: Amounts{"": 10_000}, Events: Amounts{"": 20_000}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Rules = rulesOf(t, c.rules)
			c.config.Features, c.config.Events = c.config.Features.by(fewer), c.config.Events.by(fewer)
			checked := hold(t, c.config, 0.1)
			if c.config.Replicas == 2 {
				alone := c.config
				alone.Replicas = 1
				one, err := Run(t.Context(), alone)
				require.NoError(t, err)
				two, err := Run(t.Context(), c.config)
				require.NoError(t, err)
				assert.InEpsilon(t, 2*one.Total.Items, two.Total.Items, 1e-9)
				assert.Equal(t, 3, checked.Servers)
			}
		})
	}
}

// A plan that is wrong is found out.
func TestACheckFindsAWrongPlan(t *testing.T) {
	checked := Checked{Rows: []Row{{Name: "items", Planned: 100, Measured: 116, Ratio: 1.16}, {Name: "adds", Ratio: 0.86}, {Name: "cpu", Ratio: 9, Timed: true}}}
	require.Len(t, checked.Off(), 1)
	assert.Equal(t, "items", checked.Off()[0].Name)
	var text bytes.Buffer
	require.NoError(t, checked.WriteText(&text))
	assert.Contains(t, text.String(), "more than 15% off: 1 of them")
}

// What a check cannot play it says, and it says which hits were denied.
func TestWhatACheckCannotPlay(t *testing.T) {
	amounts := Amounts{"": 1000}
	for want, rules := range map[string]string{
		"would expire":          "events: {hit: {limits: [{per: ip, rate: 10/s}]}}",
		"that has limits":       "events: {hit: {}}",
		"none of which is 0":    "events: {hit: {limits: [{per: ip, rate: 0/d}]}}",
		"say which":             "events: {hit: {limits: [{per: ip, rate: 1/d}]}, other: {limits: [{per: ip, rate: 1/d}]}}",
		"hundred hits at least": "events: {hit: {retention: 2m, limits: [{per: ip, rate: 10/s}]}}",
	} {
		config := CheckConfig{Plan: Config{Rules: rulesOf(t, rules), Features: amounts, Events: amounts, Costs: given}}
		assert.ErrorContains(t, config.Check(), want)
	}
	checked, err := RunCheck(t.Context(), CheckConfig{Plan: Config{
		Rules: rulesOf(t, "events: {hit: {limits: [{per: ip, rate: 2/d}]}}"), Replicas: 1, Features: Amounts{"": 100}, Events: Amounts{"": 400}, Costs: given,
	}})
	require.NoError(t, err)
	assert.Equal(t, 200, checked.Denied)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = RunCheck(ctx, CheckConfig{Plan: Config{Rules: rulesOf(t, fourLimits), Features: amounts, Events: amounts, Costs: given}})
	assert.Error(t, err)
}

// CPU times are measured with a part of the traffic, and are the plan's.
func TestCalibrate(t *testing.T) {
	config := CheckConfig{Plan: Config{Rules: rulesOf(t, fourLimits), Replicas: 1, Features: Amounts{"": 1000}, Events: Amounts{"": 2000}}}
	costs, err := Calibrate(t.Context(), config)
	require.NoError(t, err)
	assert.Positive(t, costs.MemcachedHit)
	assert.Greater(t, costs.CounterdHit, costs.Request)
	assert.Contains(t, costs.From, "measured here")
	config.Plan.Costs = costs
	report, err := Run(t.Context(), config.Plan)
	require.NoError(t, err)
	assert.InEpsilon(t, costs.MemcachedHit.Seconds()*2000/daySeconds, report.Total.Average.MemcachedCPU, 1e-9)
	assert.Contains(t, report.Assumptions, costs.From)
}
