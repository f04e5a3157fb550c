package verify

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

const (
	maxCounters = 300 // that are counted in the end
	moments     = 2   // past ones that each is counted as of, beside now
)

// closing asks for the counts and the histories of counters when all clients have stopped, up
// to the end of the context.
func (r *run) closing(ctx context.Context) {
	_, counters := r.log.Size()
	order := rand.New(rand.NewPCG(r.config.Seed, 1<<40)).Perm(counters)
	order = order[:min(len(order), maxCounters)]
	bar := progress.Or(r.config.Progress)
	bar.Start("counting", len(order))
	var closed atomic.Int64
	var group errgroup.Group
	group.SetLimit(r.config.Clients)
	for n, id := range order {
		group.Go(func() error {
			if ctx.Err() == nil && r.close(ctx, n, int32(id)) {
				closed.Add(1)
			}
			bar.Add(1)
			return nil
		})
	}
	_ = group.Wait() // it has no errors: a count without an answer is noted
	r.report.CountersClosed += int(closed.Load())
}

// close counts every window of one counter's limits, and more, as of now and of past moments of
// the run, and of its last late increment, and reads its history at each level. It reports whether all
// of that was answered.
func (r *run) close(ctx context.Context, n int, id int32) bool {
	rng := rand.New(rand.NewPCG(r.config.Seed, 1<<40|uint64(id)+1))
	all, past := true, r.log.Counter(id).Late
	windows := []int64{60, 3600}
	for _, l := range r.Limits {
		windows = append(windows, l.Length)
	}
	slices.Sort(windows)
	began, now := r.log.Began.Unix(), time.Now().Unix()
	oldest := now - r.Retention + contract.Margin
	for i, window := range slices.Compact(windows) {
		ends := []int64{0}
		if window < r.Retention-3600 { // else of a past moment it would begin before the retention
			for range moments {
				ends = append(ends, began+rng.Int64N(max(now-began, 1)))
			}
			if past-window > oldest {
				ends = append(ends, min(past+rng.Int64N(window), now))
			}
		}
		for _, end := range ends {
			if window <= r.Retention {
				all = r.count(ctx, r.closer(n+i), id, window, end) && all
			}
		}
	}
	for _, level := range contract.Levels {
		if level.Length < r.log.Counter(id).Rule.Step || level.Length > r.Retention {
			continue
		}
		all = r.history(ctx, r.closer(n), id, level, max(began-1, now-9000), now) && all
		if past > oldest {
			all = r.history(ctx, r.closer(n), id, level, past-1, min(past+1, now)) && all
		}
	}
	return all
}

// closer is a call of the end, to one target after the other.
func (r *run) closer(n int) judge.Call { return judge.Call{Target: uint16(n % len(r.targets))} }
