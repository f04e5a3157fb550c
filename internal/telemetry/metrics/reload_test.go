package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/telemetry/metrics"
)

// A hit of new rules is counted while a scrape is in the middle of sending series.
func TestNoHitWaitsForAScrape(t *testing.T) {
	var collectors []prometheus.Collector
	m := metrics.On(func(more ...prometheus.Collector) { collectors = append(collectors, more...) })
	rules := make([]*events.Rules, 2)
	for i := range rules {
		w := watch(t, fmt.Sprintf("events: {a: {limits: [{per: ip, rate: 9/h}]}, b%d: {limits: [{per: ip, rate: 9/h}]}}", i))
		rules[i] = w.rules.Load()
	}
	inForce := rules[0]
	m.Watch(metrics.Process{Rules: func() []*events.Rules { return []*events.Rules{inForce} }, Generation: func() int64 { return 1 }})
	sent := make(chan prometheus.Metric) // without room: the first collector waits in the middle of its series
	go func() {
		defer close(sent)
		for _, c := range collectors {
			c.Collect(sent)
		}
	}()
	defer func() {
		for range sent {
		}
	}()
	<-sent

	inForce = rules[1]
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		hit := limiter.Hit{Event: inForce.Events["b1"], Cost: 1}
		m.OnDecision(t.Context(), hit, &events.Decision{Allowed: true, Limits: []events.LimitState{{Name: "ip-9-per-1h", Allowed: true, Limit: 9}}}, limiter.CallHit)
	}()
	select {
	case <-counted:
	case <-time.After(10 * time.Second):
		for range sent { // or the hit never ends
		}
		require.Fail(t, "the hit waited for the scrape")
	}
}

// A limit keeps its series if a reload changes its rate, and so its name.
func TestAChangedRateKeepsItsSeries(t *testing.T) {
	rules := func(n int) string {
		return fmt.Sprintf(`events:
  a:
    limits:
      - {per: ip, rate: [%[1]d/m, %[1]d/d], overrides: {192.0.2.1: %[2]d/m, 192.0.2.2: %[2]d/h}}
      - {per: user, rate: [%[1]d/m, %[1]d/d], name: users}
      - {per: key, rate: %[1]d/s, burst: %[1]d}
      - {per: job, rate: %[1]d/s, queue: %[1]d}
      - {per: org, concurrent: %[1]d, lease: 30s}
      - {per: team, rate: %[1]d/h, calendar: UTC}
`, n, n+3)
	}
	w := watch(t, rules(50))
	w.hit("a", "192.0.2.7")
	before := w.series()
	require.Contains(t, before, `counterd_limit_near_total{event="a",limit="ip-per-1m"}`)
	for _, limit := range []string{"ip-per-1h", "ip-per-24h", "users-per-1m", "users-per-24h", "key-burst", "job-queue", "org-concurrent", "team-per-hour"} {
		assert.Contains(t, before, fmt.Sprintf(`counterd_limit_near_total{event="a",limit=%q}`, limit))
	}
	w.reload(rules(60))
	assert.Equal(t, before, w.series())
	w.hit("a", "192.0.2.7")
	line := `counterd_limit_decisions_total{event="a",limit="ip-per-1m",verdict="allowed"} 2`
	assert.Equal(t, []string{line}, w.scrape(line))
}

// If two limits of an event would share a series, both have their whole names.
func TestLimitsDoNotShareSeries(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 5/m}, {per: ip, rate: [3/m, 3/h], shadow: true}, {per: ip, rate: 9/h, count: admitted, name: ip-per-1h}]}}")
	var limits []string
	for _, line := range w.scrape("counterd_limit_near_total{") {
		_, limit, _ := strings.Cut(line, "limit=")
		limits = append(limits, limit)
	}
	assert.Equal(t, []string{`"ip-3-per-1h"} 0`, `"ip-3-per-1m"} 0`, `"ip-5-per-1m"} 0`, `"ip-per-1h"} 0`}, limits)
}

// Counters of events and limits that reloads have removed take bounded memory, also if nobody scrapes.
func TestReloadsWithoutAScrapeTakeBoundedMemory(t *testing.T) {
	for name, rules := range map[string]string{
		"events": "events: {a: {limits: [{per: ip, rate: 9/h}]}, b%d: {limits: [{per: ip, rate: 9/h}]}}",
		"limits": "events: {a: {limits: [{per: ip, rate: 9/h}, {per: ip, rate: 8/m, name: n%d}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, fmt.Sprintf(rules, 0))
			const reloads = 1000
			for i := range reloads {
				w.reload(fmt.Sprintf(rules, i))
				for _, event := range w.rules.Load().Events {
					d := &events.Decision{Allowed: true}
					for _, rule := range event.Rules {
						for _, l := range rule.Limits {
							d.Limits = append(d.Limits, events.LimitState{Name: l.Name, Series: l.Series, Allowed: true, Limit: 9})
						}
					}
					w.OnDecision(t.Context(), limiter.Hit{Event: event, Cost: 1}, d, limiter.CallHit)
				}
			}
			assert.Less(t, w.Counted(), 300)
			line := `counterd_decisions_total{call="hit",event="a",verdict="allowed"} 1000`
			assert.Equal(t, []string{line}, w.scrape(line), "what is in force is kept")
			assert.Less(t, w.Counted(), 5)
		})
	}
}

// manyLimits returns rules with that many events, each with two limits.
func manyLimits(n, rate int) string {
	var b strings.Builder
	b.WriteString("events:\n")
	for i := range n {
		fmt.Fprintf(&b, "  e%d: {limits: [{per: ip, rate: [%d/m, %d/h], name: n%d-%d}]}\n", i, rate, rate*9, i, rate)
	}
	return b.String()
}

// BenchmarkReload is a hit and a scrape after a reload that renames all limits.
func BenchmarkReload(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := watch(b, manyLimits(n, 1))
			var versions []*events.Rules
			for rate := range 2 {
				w.reload(manyLimits(n, rate+2))
				versions = append(versions, w.rules.Load())
			}
			var took, scrapes []time.Duration
			for i := 0; b.Loop(); i++ {
				w.rules.Store(versions[i%2])
				began := time.Now()
				w.OnDecision(b.Context(), limiter.Hit{Event: versions[i%2].Events["e1"], Cost: 1}, &events.Decision{Allowed: true}, limiter.CallHit)
				took = append(took, time.Since(began))
				w.scrape("counterd_rules")
				scrapes = append(scrapes, time.Since(began))
			}
			b.ReportMetric(float64(slices.Max(took).Microseconds()), "µs/hit")
			b.ReportMetric(float64(slices.Max(scrapes).Milliseconds()), "ms/scrape")
		})
	}
}
