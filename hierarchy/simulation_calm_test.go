package hierarchy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/mutant"
)

// In a calm simulation nothing fails: hits only interleave. So it can check what other simulations cannot promise: each
// bucket that a server holds has exactly the cost that was counted, a hit that overlapped no other is admitted exactly if
// it fits, and its RetryAfter is exact.

// aloneOutcome counts what was judged.
type aloneOutcome struct {
	seeds  int // in which nothing failed
	hits   int
	denied int
	stale  int // wrongly, while denials are cached: such a denial may have counted hits that were undone since
}

// miscounts compares the buckets that the servers hold with what was counted.
func (s *simulation) miscounts() (faults []string) {
	type slot struct {
		counter string
		bucket  Bucket
	}
	want := map[slot]int64{}
	for _, op := range s.operation {
		for i, result := range op.results {
			applied, _ := op.hits[i].Event.Apply(nil, op.hits[i].Features)
			for _, a := range applied {
				if !result.Decision.Allowed && a.Rule.Count != events.CountAll {
					continue
				}
				counter := a.ID
				if s.copies != nil {
					hash := hashOf(a.ID)
					counter = string(hash[:])
				}
				for bucket := range BucketsOf(a.Counter, result.Decision.At.Unix()) {
					want[slot{counter, bucket}] += op.hits[i].Cost
				}
			}
		}
	}
	copies, found := 1, map[slot]int{}
	if s.copies != nil {
		copies = s.copies.replicas
	}
	for server, items := range s.servers() {
		for counter, buckets := range items.Of {
			for id, held := range buckets {
				bucket := bucketOf(id)
				found[slot{counter, bucket}]++
				if wanted := want[slot{counter, bucket}]; held.Value != wanted {
					faults = append(faults, fmt.Sprintf("server %d: bucket %v of %q holds %d, and %d was counted", server, bucket, counter, held.Value, wanted))
				}
			}
		}
	}
	for bucket, counted := range want {
		if found[bucket] != copies {
			faults = append(faults, fmt.Sprintf("%d servers hold bucket %v of %q, in which %d was counted", found[bucket], bucket.bucket, bucket.counter, counted))
		}
	}
	return faults
}

// servers returns what each server holds.
func (s *simulation) servers() []*storetest.Items {
	if s.copies == nil {
		return []*storetest.Items{&s.store.Items}
	}
	var items []*storetest.Items
	for _, server := range s.copies.servers {
		items = append(items, &server.Items)
	}
	return items
}

// judgeAlone judges the hits that overlapped no other, but for elastic throttles. If denials are cached, a wrong denial is
// only counted as stale.
func (s *simulation) judgeAlone(o *aloneOutcome) (faults []string) {
	for _, op := range s.operation {
		elastic := slices.ContainsFunc(op.hits[0].Event.Rules, func(r events.Rule) bool { return r.Throttle.Kind == events.Elastic })
		if len(op.results) != 1 || elastic || s.overlaps(op) {
			continue
		}
		o.hits++
		fault, denied := s.aloneFault(op), !op.results[0].Decision.Allowed
		if denied {
			o.denied++
		}
		if fault != "" && denied && !s.forgetful {
			o.stale++
		} else if fault != "" {
			faults = append(faults, fmt.Sprintf("operation %d is alone, and %s", op.id, fault))
		}
	}
	return faults
}

// aloneFault returns what is wrong with the decision of a hit that met no others, or an empty string.
func (s *simulation) aloneFault(op *operation) string {
	d := op.results[0].Decision
	at := d.At.Unix()
	if d.Allowed != s.fitsAlone(op, at) {
		return fmt.Sprintf("allowed is %t", d.Allowed)
	}
	if d.Allowed || d.RetryAfter == events.Never {
		return ""
	}
	again := at + int64(d.RetryAfter/time.Second)
	switch {
	case !s.fitsAlone(op, again):
		return fmt.Sprintf("does not fit after %s", d.RetryAfter)
	case d.RetryAfter > time.Second && s.fitsAlone(op, again-1):
		return fmt.Sprintf("fits before %s", d.RetryAfter)
	}
	return ""
}

// fitsAlone reports whether the hits that ended before leave room for the operation's hit at that second.
func (s *simulation) fitsAlone(op *operation, second int64) bool {
	h, d := op.hits[0], op.results[0].Decision
	applied, _ := h.Event.Apply(nil, h.Features)
	for _, a := range applied {
		if a.Rule.Shadow {
			continue
		}
		var entries []admission
		for _, other := range s.operation {
			for i, result := range other.results {
				if other.ended < op.begun && isCounted(other.hits[i], result.Decision, a.ID) {
					entries = append(entries, admission{other, result.Decision.At.Unix(), other.hits[i].Cost})
				}
			}
		}
		if !d.Allowed && a.Rule.Count == events.CountAll && second > d.At.Unix() {
			entries = append(entries, admission{op, d.At.Unix(), h.Cost})
		}
		for _, limit := range a.Rule.LimitsOf(a.Counter.Feature) {
			first, last := limit.Windows().Around(second)
			first -= first % int64(a.Rule.Precision.Length()/time.Second)
			sum := h.Cost
			for _, e := range entries {
				if e.stamp >= first && e.stamp <= last {
					sum += e.cost
				}
			}
			if sum > a.Rule.Throttle.Ceiling(limit.N) {
				return false
			}
		}
	}
	return true
}

// isCounted reports whether the hit counts on the counter.
func isCounted(h limiter.Hit, d events.Decision, counter string) bool {
	applied, _ := h.Event.Apply(nil, h.Features)
	return slices.ContainsFunc(applied, func(a events.Applied) bool {
		return a.ID == counter && (d.Allowed || a.Rule.Count == events.CountAll)
	})
}

// overlaps reports whether another operation was under way at the same time.
func (s *simulation) overlaps(op *operation) bool {
	return slices.ContainsFunc(s.operation, func(other *operation) bool {
		return other != op && other.begun <= op.ended && (other.ended == 0 || other.ended >= op.begun)
	})
}

// hasFailures reports whether anything failed or was unfinished, so that the promises above do not hold.
func (s *simulation) hasFailures() bool {
	return s.copies != nil && s.copies.left.Load() || slices.ContainsFunc(s.operation, func(op *operation) bool {
		return op.ended == 0 || slices.ContainsFunc(op.results, func(r limiter.Result) bool {
			return r.Err != nil || slices.ContainsFunc(r.Decision.Limits, func(s events.LimitState) bool { return s.Failed })
		})
	})
}

// calmFaults runs one calm simulation, and judges it.
func calmFaults(t *testing.T, seed uint64, world sabotage, o *aloneOutcome) []string {
	world.calm = true
	s := simulateOne(t, seed, world)
	faults, _, _ := s.judge()
	if s.hasFailures() {
		return faults
	}
	o.seeds++
	return append(append(faults, s.miscounts()...), s.judgeAlone(o)...)
}

// Nothing leaks, a hit that overlaps no other is denied only without room, and RetryAfter is exact.
func TestCalm(t *testing.T) {
	for name, world := range map[string]sabotage{
		"sliding": {}, "fixed": {algorithm: "fixed-window"}, "calendar": {algorithm: "fixed-window", zone: "Europe/Berlin"},
		"replicas": {copies: func(c *simReplicas) { c.replicas, c.handover, c.faults, c.weather = 2, false, 0, 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			var o aloneOutcome
			for seed := range mutant.Seeds(t, testkit.Seeds(8000)) {
				assert.Empty(t, calmFaults(t, seed, world, &o), "seed %d", seed)
			}
			if mutant.Tested() {
				return
			}
			t.Logf("%d seeds: %d hits met no others, %d of them were denied, %d by a stale cache", o.seeds, o.hits, o.denied, o.stale)
			require.Positive(t, o.denied, "limits that do not bind prove nothing")
		})
	}
}
