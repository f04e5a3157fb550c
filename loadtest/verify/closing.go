package verify

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/loadtest/progress"
)

const (
	// maxCounters is how many counters are counted in the end.
	maxCounters = 300
	// moments is how many past ones each is counted as of, beside now.
	moments = 2
	// levels of a history, by their lengths.
	day = 86400
)

// closing asks for the counts and the histories of counters when all clients have stopped, up
// to the end of the context.
func (r *run) closing(ctx context.Context) {
	counters := r.users.allCounters()
	r.pasts = r.latest()
	order := rand.New(rand.NewPCG(r.config.Seed, 1<<40)).Perm(len(counters))
	order = order[:min(len(order), maxCounters)]
	bar := progress.Or(r.config.Progress)
	bar.Start("counting", len(order))
	var closed atomic.Int64
	var group errgroup.Group
	group.SetLimit(r.config.clients())
	for n, id := range order {
		group.Go(func() error {
			rng := rand.New(rand.NewPCG(r.config.Seed, 1<<40|uint64(id)+1))
			if ctx.Err() == nil && r.closeOne(ctx, n, int32(id), counters[id], rng) {
				closed.Add(1)
			}
			bar.Add(1)
			return nil
		})
	}
	_ = group.Wait() // it has no errors: a count without an answer is noted
	r.report.CountersClosed += int(closed.Load())
}

// closeOne counts every window of one counter's limits, and more, as of now and of past
// moments of the run, and reads its history at each level. It reports whether all of that
// was answered.
func (r *run) closeOne(ctx context.Context, n int, id int32, of counter, rng *rand.Rand) bool {
	all := true
	windows := []int64{60, 3600}
	for _, l := range r.contract.limits {
		windows = append(windows, l.length)
	}
	slices.Sort(windows)
	began, now := r.began.Unix(), time.Now().Unix()
	for i, window := range slices.Compact(windows) {
		if window > r.contract.retention {
			continue
		}
		target := (n + i) % len(r.caller.targets)
		all = r.caller.count(ctx, 0, target, id, of, window, 0) && all
		if window >= r.contract.retention-seconds(time.Hour) {
			continue // of a past moment it would begin before the retention
		}
		for range moments {
			all = r.caller.count(ctx, 0, target, id, of, window, began+rng.Int64N(max(now-began, 1))) && all
		}
		if at, found := r.pasts[id]; found && at-window > now-r.contract.retention+margin {
			all = r.caller.count(ctx, 0, target, id, of, window, min(at+rng.Int64N(window), now)) && all
		}
	}
	for _, level := range []struct {
		name   string
		length int64
	}{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", day}} {
		if level.length >= of.step && level.length <= r.contract.retention {
			all = r.caller.history(ctx, 0, n%len(r.caller.targets), id, of, level.name, level.length, max(began-1, now-9000), now) && all
			if at, found := r.pasts[id]; found && at > now-r.contract.retention+margin {
				all = r.caller.history(ctx, 0, n%len(r.caller.targets), id, of, level.name, level.length, at-1, min(at+1, now)) && all
			}
		}
	}
	return all
}

// latest returns, of each counter that something was added to late, the second of the last such
// increment.
func (r *run) latest() map[int32]int64 {
	pasts := map[int32]int64{}
	for _, e := range r.log.entries {
		if e.kind == late && e.stamp != 0 {
			for _, id := range r.users.who(e.who).counters {
				pasts[id] = e.stamp
			}
		}
	}
	return pasts
}
