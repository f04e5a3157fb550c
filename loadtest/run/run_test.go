package run_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// fake is a target that keeps count of what it got.
type fake struct {
	answer  func(n int64, call traffic.Call) run.Answer // nil: "200"
	take    func(n int64)                               // nil: no time
	probe   error
	read    func() run.Reading
	got     atomic.Int64
	mu      sync.Mutex
	byKind  map[traffic.Kind]int64
	moments []time.Time // when calls came
}

func (f *fake) Names() []string { return []string{"fake"} }

func (f *fake) Probe(context.Context, traffic.Call) error { return f.probe }

func (f *fake) Do(_ context.Context, n int64, call traffic.Call) run.Answer {
	f.got.Add(1)
	f.mu.Lock()
	if f.byKind == nil {
		f.byKind = map[traffic.Kind]int64{}
	}
	f.byKind[call.Kind]++
	f.moments = append(f.moments, time.Now())
	f.mu.Unlock()
	if f.take != nil {
		f.take(n)
	}
	if f.answer != nil {
		return f.answer(n, call)
	}
	return run.Answer{Status: "200"}
}

func (f *fake) Read(context.Context) run.Reading {
	if f.read == nil {
		return run.Reading{StoreNote: "it has none"}
	}
	return f.read()
}

func (f *fake) Close() error { return nil }

// source returns hits, or another mix.
func source(t *testing.T, mix traffic.Mix) *traffic.Source {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	s, err := traffic.New(traffic.Config{Event: "e", Population: traffic.NewUniform("ip", 100, rng), Mix: mix, BatchSize: 10, Rand: rng})
	require.NoError(t, err)
	return s
}

// near holds a percentile against what it should be, in milliseconds, as far as a
// histogram tells.
func near(t *testing.T, want, got float64, what string) {
	t.Helper()
	assert.InDelta(t, want, got, want/500+0.001, what)
}

// A run at 1,000 a second for 10 s sends 10,000, each when it is due, and the target has
// got as many.
func TestRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		target := &fake{take: func(n int64) { time.Sleep(time.Duration(n%100+1) * ms) }}
		report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(1000), Duration: 10 * time.Second})
		require.NoError(t, err)
		assert.EqualValues(t, 10_000, target.got.Load())
		assert.EqualValues(t, 10_000, report.Arrived)
		assert.EqualValues(t, 10_000, report.Answered)
		assert.InDelta(t, 1000, report.RateAsked, 1e-9)
		assert.InDelta(t, 1000, report.RateReached, 1e-9, "the last hundred are no slower than the first")
		for i, moment := range target.moments {
			require.Equal(t, time.Duration(i)*ms, moment.Sub(target.moments[0]))
		}
		// Latencies are known: 1 to 100 ms, all as often.
		l := report.Latency
		assert.EqualValues(t, 10_000, l.Requests)
		near(t, 50, l.P50, "p50")
		near(t, 90, l.P90, "p90")
		near(t, 99, l.P99, "p99")
		near(t, 100, l.P999, "p99.9")
		assert.InDelta(t, 100, l.Max, 0, "the greatest is exact")
		assert.Equal(t, run.Latency{Requests: 10_000}, report.Late)
		assert.Zero(t, report.Waited)
	})
}

// A target stalls for a second: the latency of each call that came due meanwhile includes
// its wait. Calls one after the other would show one slow answer.
func TestLatenciesIncludeTheWaitForAStall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		from, to := began.Add(2*time.Second), began.Add(3*time.Second)
		target := &fake{take: func(int64) {
			if now := time.Now(); !now.Before(from) && now.Before(to) {
				time.Sleep(to.Sub(now))
			}
		}}
		report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(1000), Duration: 10 * time.Second})
		require.NoError(t, err)
		l := report.Latency
		assert.InDelta(t, 1000, l.Max, 0)
		// Of 10,000 requests 1,000 have waited, 1 ms to 1 s.
		near(t, 0, l.P50, "p50")
		near(t, 900, l.P99, "p99")
		near(t, 990, l.P999, "p99.9")
		near(t, 999, l.P9999, "p99.99")
		near(t, 0, l.P90, "nine of ten have not waited")
		require.Len(t, report.Timeline, 10)
		for i, s := range report.Timeline {
			assert.EqualValues(t, 1000, s.Arrived, i)
			assert.EqualValues(t, 1000, s.Latency.Requests, i)
			want := 0.
			if i == 2 {
				want = 1000
			}
			assert.InDelta(t, want, s.Latency.Max, 0, "those due in second %d", i)
		}
		assert.Zero(t, report.Timeline[2].Answered, "none is answered in that second")
		assert.EqualValues(t, 2000, report.Timeline[3].Answered, "but in the next")
	})
}

// With one connection the same: the wait for a place in flight is latency, too, and it is
// said how many waited.
func TestWhoFindsNoPlaceInFlightWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		target := &fake{take: func(n int64) {
			if n == 100 {
				time.Sleep(time.Second)
			}
		}}
		report, err := run.Run(t.Context(), run.Config{
			Target: target, Source: source(t, nil), Profile: arrival.Constant(100), Duration: 5 * time.Second, InFlight: 1,
		})
		require.NoError(t, err)
		assert.InDelta(t, 1000, report.Latency.Max, 0)
		assert.InDelta(t, 100, report.Waited.Requests, 1)
		near(t, 990, report.Waited.Max, "the first after it")
		assert.InDelta(t, 500, report.Waited.P50, 11)
		assert.InDelta(t, 400, report.Late.Requests, 1)
		assert.Zero(t, report.Late.Max)
		assert.Contains(t, text(t, report), " waited for one of 1 places")
	})
}

// Unsent calls are reported, and have waited as long as there was time.
func TestUnsent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		target := &fake{take: func(int64) { time.Sleep(time.Second) }}
		report, err := run.Run(t.Context(), run.Config{
			Target: target, Source: source(t, nil), Profile: arrival.Constant(10), Duration: time.Second, InFlight: 2, Drain: 1500 * ms,
		})
		require.NoError(t, err)
		assert.EqualValues(t, 10, report.Arrived)
		assert.EqualValues(t, 6, report.Answered)
		assert.EqualValues(t, 4, report.Unsent)
		assert.EqualValues(t, 10, report.Latency.Requests)
		assert.InDelta(t, 2500, report.Latency.Max, 100)
		assert.Contains(t, text(t, report), "4 not sent")
	})
}

// What a request is sent late by is the generator's own share, and latency, too.
func TestLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		naps := 0
		report, err := run.Run(t.Context(), run.Config{
			Target: &fake{take: func(int64) { time.Sleep(20 * ms) }}, Source: source(t, nil), Profile: arrival.Constant(10), Duration: 10 * time.Second,
			Pause: func(d time.Duration) {
				time.Sleep(d)
				if naps++; naps == 50 {
					time.Sleep(30 * ms)
				}
			},
		})
		require.NoError(t, err)
		assert.InDelta(t, 30, report.Late.Max, 0)
		near(t, 0, report.Late.P90, "few are late")
		assert.InDelta(t, 50, report.Latency.Max, 0)
		near(t, 20, report.Latency.P90, "p90")
		assert.Contains(t, text(t, report), "\nlate")
	})
}

// What is counted of answers, hits and limits is what the target gave.
func TestAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		admits, denies, shadow, onError := wire.LimitState{Allowed: true}, wire.LimitState{}, wire.LimitState{Shadow: true}, wire.LimitState{Allowed: true, OnError: "allow"}
		// said is a decision; the limits have the names a and b.
		said := func(status int, limits ...wire.LimitState) wire.Result {
			limits = slices.Clone(limits)
			for i := range limits {
				limits[i].Name = string(rune('a' + i))
			}
			return wire.Result{Status: status, Decision: &wire.Decision{Allowed: status == 200, Limits: limits}}
		}
		answers := []run.Answer{
			{Status: "200", Results: []wire.Result{said(200, admits, admits)}},
			{Status: "200", Results: []wire.Result{said(200, admits, onError)}},
			{Status: "429", Results: []wire.Result{said(429, denies, admits)}},
			{Status: "429", Results: []wire.Result{said(429, denies, shadow)}},
			{Status: "503", Failed: true, Results: []wire.Result{said(503, denies)}},
			{Status: "timeout", Failed: true},
			{Status: "200", Results: []wire.Result{{Status: 404}, said(429, denies)}},
			{Status: "200"},
			{Status: "200"},
			{Status: "200"},
		}
		target := &fake{answer: func(n int64, _ traffic.Call) run.Answer { return answers[n%10] }}
		report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(100), Duration: 10 * time.Second})
		require.NoError(t, err)
		assert.Equal(t, []run.Status{{Name: "200", Requests: 600}, {Name: "429", Requests: 200}, {Name: "503", Requests: 100}, {Name: "timeout", Requests: 100}}, report.Statuses)
		assert.Equal(t, run.Hits{Admitted: 200, Denied: 300, Unavailable: 100, Faults: 100, OnError: 100}, report.Hits)
		assert.Equal(t, []run.Limit{{Name: "a", Admitted: 200, Denied: 300}, {Name: "b", Admitted: 200, ShadowDenied: 100}}, report.Limits)
		assert.EqualValues(t, 200, report.Failed)
		near(t, 800/10., report.RateReached, "failures are not reached")
		for _, s := range report.Timeline {
			assert.EqualValues(t, 20, s.Failed)
		}
	})
}

// A target that makes up names does not fill this process.
func TestNamesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		name := func(n int64) string { return time.Duration(n).String() }
		target := &fake{answer: func(n int64, _ traffic.Call) run.Answer {
			return run.Answer{Status: name(n), Results: []wire.Result{{Decision: &wire.Decision{Limits: []wire.LimitState{{Name: name(n)}}}}}}
		}}
		report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(1000), Duration: 3 * time.Second})
		require.NoError(t, err)
		assert.Len(t, report.Limits, 1001)
		assert.Equal(t, run.Status{Name: "other", Requests: 2000}, report.Statuses[0])
	})
}

// The warm-up is the beginning of the profile, and is not measured.
func TestWarmUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for profile, want := range map[arrival.Profile]int64{
			arrival.Constant(100):                              200,
			arrival.Ramp{From: 50, To: 150, Over: time.Second}: 250,
			arrival.Ramp{From: 0, To: 100, Over: time.Second}:  150,
		} {
			began := time.Now()
			target := &fake{take: func(int64) {
				if time.Since(began) < 2*time.Second {
					time.Sleep(100 * ms)
				}
			}}
			report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: profile, Duration: time.Second, WarmUp: 2 * time.Second})
			require.NoError(t, err)
			assert.Equal(t, want+report.Arrived, target.got.Load(), profile)
			assert.Zero(t, report.Latency.Max)
			assert.Equal(t, report.Arrived, report.Latency.Requests)
		}
	})
}

// An interrupted run reports its measurements so far.
func TestInterrupted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2005*ms)
		defer cancel()
		target := &fake{take: func(int64) { time.Sleep(10 * ms) }}
		target.answer = func(int64, traffic.Call) run.Answer {
			if ctx.Err() != nil {
				return run.Answer{Status: "no answer", Failed: true}
			}
			return run.Answer{Status: "200"}
		}
		report, err := run.Run(ctx, run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(100), Duration: time.Hour})
		require.NoError(t, err)
		assert.True(t, report.Interrupted)
		assert.InDelta(t, 2.005, report.Seconds, 0.006)
		assert.EqualValues(t, 201, report.Arrived)
		assert.EqualValues(t, 200, report.Answered)
		assert.EqualValues(t, 1, report.BrokenOff)
		assert.Zero(t, report.Failed)
		assert.InDelta(t, 100, report.RateAsked, 0.5)
		near(t, 10, report.Latency.Max, "max")
		require.Len(t, report.Timeline, 3)
		assert.InDelta(t, 0.005, report.Timeline[2].Seconds, 0.006)
		assert.Contains(t, text(t, report), "; interrupted\n")
	})
}

func text(t *testing.T, r interface{ WriteText(io.Writer) error }) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}
