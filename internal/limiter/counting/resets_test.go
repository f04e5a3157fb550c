package counting_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// spans are calls by when they began and ended, in steps of one order.
type spans struct {
	mu   sync.Mutex
	step int64
	all  []span
}

type span struct {
	began, ended int64
	by           int64 // 0: a reset
}

func (s *spans) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step++
	return s.step
}

func (s *spans) call(by int64, do func()) {
	began := s.next()
	do()
	ended := s.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, span{began, ended, by})
}

// bounds returns what a counter holds at the least, which began after the last reset had ended, and at
// the most, which ended after it had begun.
func (s *spans) bounds() (least, most int64) {
	last := span{}
	for _, call := range s.all {
		if call.by == 0 && call.began > last.began {
			last = call
		}
	}
	for _, call := range s.all {
		if call.began > last.ended {
			least += call.by
		}
		if call.ended > last.began {
			most += call.by
		}
	}
	return least, most
}

// Resets race with hits and with late increments of two processes. Nothing that begins after a reset
// has ended is lost, and nothing that had ended before it began is left. Concurrent calls may stay.
func TestResetsRaceWithHitsAndIncrements(t *testing.T) {
	const grace = 40 * time.Second // the machine may be busy
	onEveryEngine(t, time.Now, func(t *testing.T, algorithm string, open func() store.Store) {
		processes := []process{newProcess(t, open(), nil, grace), newProcess(t, open(), nil, grace)}
		event := newEvent(t, "[{per: ip, rate: 1000000/d}]", algorithm)
		counter := counterOf(t, event, "ip", "192.0.2.1")
		features := events.Features{"ip": "192.0.2.1"}
		for round := range uint64(testkit.Times(6)) {
			var log spans
			var running sync.WaitGroup
			for i, p := range processes {
				rng := rand.New(rand.NewPCG(round, uint64(i)))
				running.Go(func() {
					for range 30 {
						by := 1 + rng.Int64N(9)
						log.call(by, func() {
							_, err := p.Increment(context.Background(), by, time.Now().Add(-time.Duration(rng.Int64N(int64(time.Hour)))), counter)
							assert.NoError(t, err)
						})
					}
				})
				running.Go(func() {
					for range 30 {
						log.call(1, func() {
							d, err := p.limiter.Hit(context.Background(), limiter.Hit{Event: event, Features: features, Cost: 1})
							assert.NoError(t, err)
							assert.True(t, d.Allowed)
						})
					}
				})
			}
			running.Go(func() {
				for i := range 3 {
					log.call(0, func() { assert.NoError(t, processes[i%2].Reset(context.Background(), counter)) })
				}
			})
			running.Wait()
			least, most := log.bounds()
			count, err := processes[round%2].Count(t.Context(), counter, 2*time.Hour, time.Now().Add(time.Second))
			require.NoError(t, err)
			require.GreaterOrEqual(t, count.Count, least)
			require.LessOrEqual(t, count.Count, most)
			// Alone, a reset leaves nothing.
			require.NoError(t, processes[0].Reset(t.Context(), counter))
			require.Zero(t, total(t, processes[0], counter))
		}
	})
}

// waiting is a store whose round trips wait until it is open.
type waiting struct {
	store.Store
	open chan struct{}
	ops  atomic.Int64
}

func (w *waiting) Do(ctx context.Context, ops ...*store.Op) {
	w.ops.Add(int64(len(ops)))
	<-w.open
	w.Store.Do(ctx, ops...)
}

// What waits is bounded over all engines: an increment is one for each counter and engine. One beyond
// the bound has done nothing.
func TestThePendingOfAllEngines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		st := &waiting{Store: storestest.Embedded(time.Now), open: make(chan struct{})}
		buckets := hierarchy.NewCounters(hierarchy.Config{Store: st})
		logs, err := eventlog.New(buckets.Base())
		require.NoError(t, err)
		p := counting.New(counting.Config{MaxPending: 5}, buckets, logs)
		both := counterOf(t, newEvent(t, "[{per: ip, rate: 9/m}, {per: ip, rate: 9/h}]", "", eventlog.Algorithm), "ip", "192.0.2.1")
		log := counterOf(t, newEvent(t, "[{per: user, rate: 9/m}]", eventlog.Algorithm), "user", "ada")
		inBuckets := counterOf(t, newEvent(t, "[{per: user, rate: 9/m}]", ""), "user", "bob")
		var running sync.WaitGroup
		running.Go(func() {
			_, err := p.Increment(context.Background(), 1, time.Time{}, both, log)
			assert.NoError(t, err)
		})
		synctest.Wait()
		require.Equal(t, engine.QueueStats{Pending: 3}, p.QueueStats())
		running.Go(func() {
			_, err := p.History(context.Background(), log, engine.Hour, time.Time{}, time.Time{})
			assert.NoError(t, err)
		})
		synctest.Wait()
		_, err = p.Increment(t.Context(), 1, time.Time{}, both)
		require.ErrorIs(t, err, engine.ErrOverload)
		require.ErrorIs(t, err, engine.ErrStore)
		require.Equal(t, engine.QueueStats{Pending: 4, Refused: 2}, p.QueueStats())
		running.Go(func() { assert.NoError(t, p.Reset(context.Background(), both)) })
		synctest.Wait()
		calls := map[string]func() error{
			"increment": func() error { _, err := p.Increment(t.Context(), 1, time.Time{}, log); return err },
			"count":     func() error { _, err := p.Count(t.Context(), log, time.Minute, time.Time{}); return err },
			"history": func() error {
				_, err := p.History(t.Context(), log, engine.Minute, time.Time{}, time.Time{})
				return err
			},
			"refund": func() error { _, err := p.Refund(t.Context(), 1, inBuckets); return err },
			"reset":  func() error { return p.Reset(t.Context(), log) },
		}
		asked := st.ops.Load()
		for name, call := range calls {
			require.ErrorIs(t, call(), engine.ErrOverload, name)
		}
		require.Equal(t, asked, st.ops.Load())
		close(st.open)
		running.Wait()
		require.Zero(t, p.QueueStats().Pending)
		for name, call := range calls {
			require.NoError(t, call(), name)
		}
	})
}
