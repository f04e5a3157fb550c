package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/memcache"
)

// BenchmarkHit is what a hit with four limits on the embedded store costs without metrics
// and with them.
func BenchmarkHit(b *testing.B) {
	rules, err := rulesfile.Parse([]byte(fourLimits))
	require.NoError(b, err)
	for _, counted := range []bool{false, true} {
		name := map[bool]string{false: "without", true: "with"}[counted]
		b.Run(name, func(b *testing.B) {
			counters := hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})})
			var config limiter.Config
			if counted {
				m := metrics.New()
				m.Watch(metrics.Process{
					Rules:          func() []*events.Rules { return []*events.Rules{rules} },
					Generation:     func() int64 { return 1 },
					ReloadFailures: func() int64 { return 0 },
				})
				config.OnDecision = m.OnDecision
			}
			decider, err := limiter.New(config, counters)
			require.NoError(b, err)
			hit := limiter.Hit{Event: rules.Events["e"], Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decider.Hit(b.Context(), hit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOnDecision is what of that is to count the decision.
func BenchmarkOnDecision(b *testing.B) {
	w := watch(b, fourLimits)
	hit, decision := w.decided(b)
	b.ReportAllocs()
	for b.Loop() {
		w.OnDecision(b.Context(), hit, &decision, limiter.CallHit)
	}
}

func BenchmarkOnRoundTrip(b *testing.B) {
	w := watch(b, fourLimits)
	b.ReportAllocs()
	for b.Loop() {
		w.trip("one:11211")
	}
}

const fourLimits = "events: {e: {limits: [{per: ip, rate: [1000000000/s, 1000000001/m, 1000000002/h, 1000000003/d]}]}}"

// decided returns a hit and the decision on it.
func (w *watched) decided(t testing.TB) (limiter.Hit, events.Decision) {
	hit := limiter.Hit{Event: w.rules.Load().Events["e"], Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
	d, err := w.limiter.Hit(t.Context(), hit)
	require.NoError(t, err)
	require.Len(t, d.Limits, 4)
	return hit, d
}

// To count allocates nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	w := watch(t, fourLimits)
	hit, decision := w.decided(t)
	ctx := t.Context()
	allocs := testing.AllocsPerRun(100, func() {
		w.OnDecision(ctx, hit, &decision, limiter.CallHit)
		w.trip("one:11211")
		w.OnRequest("/v1/batch", "POST", 200, time.Millisecond)
	})
	require.Zero(t, allocs)
}
