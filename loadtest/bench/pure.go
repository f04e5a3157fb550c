package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/memcache"
)

func pureRows() []row {
	return []row{
		{id: "D1", name: "CoverOf a day", stage: stagePure, callers: 1, prepare: prepareCover},
		{id: "D2", name: "Increment, embedded store, 1 goroutine", stage: stagePure, callers: 1, prepare: prepareIncrement},
		{id: "D3", name: "Increment, embedded store, 16 goroutines", stage: stagePure, callers: 16, prepare: prepareIncrement, against: []string{"D2"}},
	}
}

func prepareCover(context.Context, *stage, row) (*subject, error) {
	w := hierarchy.WindowAt(opened, 24*time.Hour)
	return &subject{inProcess: true, steps: func() ([]step, error) {
		return []step{func() (int, error) {
			if n := hierarchy.CoverOf(w, hierarchy.Second, hierarchy.Day).Len(); n != 142 {
				return 1, fmt.Errorf("the cover of a day has %d buckets", n)
			}
			return 1, nil
		}}, nil
	}}, nil
}

func prepareIncrement(_ context.Context, s *stage, r row) (*subject, error) {
	store := &counted.Store{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now})}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: s.now})
	list, err := countersOf(eventName(r), s.config.sizes.people)
	if err != nil {
		return nil, err
	}
	added := make([]atomic.Int64, len(list))
	return &subject{
		counted: &store.Counts, inProcess: true,
		steps: func() ([]step, error) {
			steps := make([]step, r.callers)
			for i := range steps {
				random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
				steps[i] = func() (int, error) {
					i := random.IntN(len(list))
					_, err := counters.Increment(context.Background(), 1, time.Time{}, list[i])
					added[i].Add(1)
					return 1, err
				}
			}
			return steps, nil
		},
		verify: func(ctx context.Context) error {
			return verifySome(added, func(i int) (int64, error) {
				count, err := counters.Count(ctx, list[i], 24*time.Hour, time.Time{})
				return count.Count, err
			})
		},
	}, nil
}
