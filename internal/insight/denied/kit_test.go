package denied_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process decides hits, and keeps the history of those denied.
type process struct {
	*denied.History
	limiter  *limiter.Limiter
	counters *counting.Counters
	writes   *writes
	rules    *events.Rules
}

// writes are the increments of a history.
type writes struct {
	denied.Config
	mu     sync.Mutex
	of     map[string][]time.Time // when each counter was written
	before func(context.Context) error
}

func (w *writes) Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error) {
	w.mu.Lock()
	for _, counter := range counters {
		w.of[counter.ID()] = append(w.of[counter.ID()], time.Now())
	}
	before := w.before
	w.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return w.Counters.Increment(ctx, by, at, counters...)
}

// onEach sets what is called before each increment.
func (w *writes) onEach(before func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

func rulesOf(tb testing.TB, limits string) *events.Rules {
	tb.Helper()
	rules, err := rulesfile.Parse([]byte("events: {login: {limits: " + limits + "}}"))
	require.NoError(tb, err)
	return rules
}

// newProcess returns a process on the store. Its test calls Close.
func newProcess(tb testing.TB, st store.Store, limits string) *process {
	tb.Helper()
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: st, Grace: 40 * time.Second, CacheBytes: 1 << 19})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(tb, err)
	p := &process{counters: counting.New(counting.Config{}, buckets, logs), rules: rulesOf(tb, limits)}
	p.writes = &writes{Config: denied.Config{Counters: p.counters}, of: map[string][]time.Time{}}
	p.History = denied.Start(denied.Config{Rules: func() *events.Rules { return p.rules }, Counters: p.writes})
	p.limiter, err = limiter.New(limiter.Config{Timeout: 20 * time.Second, OnDecision: p.OnDecision}, buckets, logs)
	require.NoError(tb, err)
	return p
}

// hit returns whether the hit of a user was admitted.
func (p *process) hit(tb testing.TB, user string) bool {
	tb.Helper()
	d, err := p.limiter.Hit(tb.Context(), limiter.Hit{Event: p.rules.Events["login"], Features: events.Features{"user": user}, Cost: 1})
	require.NoError(tb, err)
	require.False(tb, d.Unavailable)
	return d.Allowed
}

// deny counts a denied hit of a user, without a limiter.
func (p *process) deny(user string) {
	counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", user})
	p.OnDecision(context.Background(), limiter.Hit{Event: p.rules.Events["login"]},
		&events.Decision{Limits: []events.LimitState{{Feature: counter.Feature}}}, limiter.CallHit)
}

func (p *process) counterOf(user string) events.Counter {
	counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", user})
	return denied.CounterOf(p.rules.Events["login"], counter.Feature)
}

// history returns the sums of all buckets of a user at a level that are not empty, by their beginnings.
func (p *process) history(tb testing.TB, user string, level engine.Level) map[int64]int64 {
	tb.Helper()
	history, err := p.counters.History(tb.Context(), p.counterOf(user), level, time.Time{}, time.Time{})
	require.NoError(tb, err)
	sums := map[int64]int64{}
	for _, interval := range history.Intervals {
		if interval.Count != 0 {
			sums[interval.First] = interval.Count
		}
	}
	return sums
}

// total returns how many denied hits of a user there were in a day.
func (p *process) total(tb testing.TB, user string) (sum int64) {
	tb.Helper()
	for _, n := range p.history(tb, user, engine.Minute) {
		sum += n
	}
	return sum
}

// userOf returns the user of a number.
func userOf(n int) string { return fmt.Sprintf("user%07d", n) }

// settle waits until all that was gathered by now must be written.
func settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}
