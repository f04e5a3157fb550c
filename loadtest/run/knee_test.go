package run_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/traffic"
)

// servers returns a target of so many servers with one queue, each of which takes as long
// as take says.
func servers(n int, take func() time.Duration) *fake {
	free := make(chan struct{}, n)
	for range n {
		free <- struct{}{}
	}
	return &fake{take: func(int64) {
		<-free
		time.Sleep(take())
		free <- struct{}{}
	}}
}

// Of four servers that take 100 ms each, 40 requests a second are the most. Below it none
// waits; above it the queue grows by what is too much, and its p99 after 30 s is that of
// a hundredth of the time before the end.
func TestTheKneeIsWhereQueueingSays(t *testing.T) {
	for _, c := range []struct {
		start float64
		bound time.Duration
		knee  float64
	}{
		{10, 500 * ms, 40},
		{5, 110 * ms, 40},
		{300, 500 * ms, 40}, // from above
		// A request that is due after t has to wait for t (r/40 - 1): 5.94 s of 29.7 at 48.
		{10, 5940 * ms, 48},
	} {
		bubble.Test(t, func(t *testing.T) {
			target := servers(4, func() time.Duration { return 100 * ms })
			knee, err := run.FindMax(t.Context(), run.Config{Target: target, Source: source(t, nil), InFlight: 100_000, Drain: time.Hour},
				run.Search{P99: c.bound, Trial: 30 * time.Second, Start: c.start})
			require.NoError(t, err)
			// A rate that is not reached is too high, too: 3% are the most that lack.
			want := min(c.knee, 40/0.97)
			assert.InEpsilon(t, want, knee.Rate, 0.1, "start %v, bound %v", c.start, c.bound)
			assert.True(t, knee.Found())
			assert.Greater(t, knee.TooHigh, knee.Rate)
			assert.LessOrEqual(t, knee.TooHigh, knee.Rate*1.05)
			assert.InDelta(t, c.start, knee.Trials[0].Rate, 0)
			assert.Less(t, len(knee.Trials), 40)
			for _, trial := range knee.Trials {
				assert.InEpsilon(t, trial.Rate, trial.Report.RateAsked, 0.02)
			}
			assert.Contains(t, text(t, knee), "The knee is at ")
		})
	}
}

// What other programs and the host take of the machine is said, of a run and of a search.
func TestABusyMachineIsSaid(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		others := 0.3
		began := time.Now()
		config := run.Config{Target: &fake{}, Source: source(t, nil), Profile: arrival.Constant(100), Duration: time.Second}
		config.Machine = func() (process.Times, error) {
			// Two CPUs.
			past := time.Since(began).Seconds()
			of := func(part float64) time.Duration { return time.Duration(part * past * 2 * float64(time.Second)) }
			return process.Times{Busy: of(others), Stolen: of(0.1), Total: of(1)}, nil
		}
		report, err := run.Run(t.Context(), config)
		require.NoError(t, err)
		require.NotNil(t, report.Machine)
		assert.InDelta(t, 0.3, report.Machine.Programs, 0.01)
		// This program is real, and took some of it.
		assert.LessOrEqual(t, report.Machine.Others, report.Machine.Programs)
		assert.InDelta(t, 0.1, report.Machine.Stolen, 0.01)

		report.Machine.Others = 0.3
		assert.Contains(t, text(t, report), "programs took 30% of its CPU time, 30% those other than loadtest and its target; its host took 10%")
		assert.Contains(t, text(t, report), "this machine was busy")
		report.Machine.Others = 0.1
		assert.NotContains(t, text(t, report), "this machine was busy")

		others = 20 // of which this program's part is small, whatever it takes
		config.Target = servers(1, func() time.Duration { return 20 * ms })
		knee, err := run.FindMax(t.Context(), config, run.Search{P99: 10 * ms, Trial: time.Second, Start: 1})
		require.NoError(t, err)
		assert.Contains(t, text(t, knee), "trials this machine was busy")

		config.Machine = func() (process.Times, error) { return process.Times{}, errors.New("no /proc") }
		report, err = run.Run(t.Context(), config)
		require.NoError(t, err)
		assert.Nil(t, report.Machine)
		assert.NotContains(t, text(t, report), "machine")
	})
}

func TestWhyARateIsTooHigh(t *testing.T) {
	find := func(t *testing.T, target *fake, search run.Search) *run.Knee {
		t.Helper()
		knee, err := run.FindMax(t.Context(), run.Config{Target: target, Source: source(t, nil), InFlight: 50, Drain: time.Second}, search)
		require.NoError(t, err)
		return knee
	}
	bubble.Test(t, func(t *testing.T) {
		slow := servers(1, func() time.Duration { return 20 * ms })
		knee := find(t, slow, run.Search{P99: 10 * ms, Trial: time.Second, Start: 8})
		assert.Zero(t, knee.Rate)
		assert.InDelta(t, 1, knee.TooHigh, 0)
		assert.Equal(t, run.ReasonP99, knee.Trials[0].TooHigh)
		assert.False(t, knee.Found())
		assert.Contains(t, text(t, knee), "Not even 1/s are borne.\n")
		assert.Regexp(t, `\n1 +1 +20.0 +20.0 +0 +p99 too long\n`, text(t, knee))

		// 50 a second are the most, and p99 may be what it likes.
		knee = find(t, slow, run.Search{P99: time.Hour, Trial: 10 * time.Second, Start: 10})
		assert.InEpsilon(t, 50, knee.Rate, 0.1)
		assert.Equal(t, run.ReasonRate, worst(knee).TooHigh)
		assert.Contains(t, text(t, knee), " rate not reached\n")

		began := time.Now()
		failing := &fake{}
		failing.answer = func(int64, traffic.Call) run.Answer {
			n := failing.got.Load() // rates above 200 a second fail
			return run.Answer{Status: "503", Failed: time.Since(began) > time.Second && n%20 == 0 && rateOf(failing) > 200}
		}
		knee = find(t, failing, run.Search{P99: time.Second, Trial: 10 * time.Second, Start: 100})
		assert.InEpsilon(t, 200, knee.Rate, 0.1)
		assert.Equal(t, run.ReasonFailed, worst(knee).TooHigh)
		assert.Contains(t, text(t, knee), " too many failed\n")
	})
}

// rateOf returns the rate of the last two calls.
func rateOf(f *fake) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.moments[max(len(f.moments)-2, 0):]
	return 1 / max(last[len(last)-1].Sub(last[0]).Seconds(), 1e-9)
}

// worst returns the trial at the lowest rate that was too high.
func worst(k *run.Knee) run.Trial {
	for _, trial := range k.Trials {
		if trial.Rate == k.TooHigh {
			return trial
		}
	}
	return run.Trial{}
}
