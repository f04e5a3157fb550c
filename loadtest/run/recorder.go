package run

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/traffic"
)

// maxNames bounds the names of statuses and limits, which a target may invent; further ones
// are counted as otherNames.
const (
	maxNames   = 1000
	otherNames = "other"
)

// recorder records a run.
type recorder struct {
	mu        sync.Mutex
	report    Report // its counts
	all       *histogram
	kinds     map[traffic.Kind]*histogram
	late      *histogram    // until sent, with a place in flight
	waited    *histogram    // until sent, after a wait for one
	fastest   time.Duration // of the successes
	lastly    time.Duration // the fastest of the last hundredth of the requests
	statuses  map[string]int64
	limits    map[string]Limit
	timeline  *timeline
	calls     int64 // also each hit of a batch
	otherThan bool  // some calls were no hits
}

func newRecorder() *recorder {
	return &recorder{
		all: newHistogram(3), late: newHistogram(3), waited: newHistogram(3), kinds: map[traffic.Kind]*histogram{},
		fastest: math.MaxInt64, lastly: math.MaxInt64,
		statuses: map[string]int64{}, limits: map[string]Limit{}, timeline: newTimeline(),
	}
}

// sample is one request. Moments are times since the beginning.
type sample struct {
	kind            traffic.Kind
	hits            int  // of a batch
	waited          bool // for a place in flight
	last            bool // of the last hundredth
	due, sent, done time.Duration
	answer          Answer
}

func (r *recorder) record(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.time(s)
	r.count(s)
}

// time records the latency of a request.
func (r *recorder) time(s sample) {
	latency := s.done - s.due
	r.all.record(latency)
	if r.kinds[s.kind] == nil {
		r.kinds[s.kind] = newHistogram(3)
	}
	r.kinds[s.kind].record(latency)
	if s.waited {
		r.waited.record(s.sent - s.due)
	} else {
		r.late.record(s.sent - s.due)
	}
	r.timeline.at(s.due).latency.record(latency)
}

// count counts an answer.
func (r *recorder) count(s sample) {
	r.report.Answered++
	r.statuses[known(r.statuses, s.answer.Status)]++
	then := r.timeline.at(s.done)
	then.answered++
	if s.answer.Failed {
		r.report.Failed++
		then.failed++
	} else {
		r.fastest = min(r.fastest, s.done-s.due)
		if s.last {
			r.lastly = min(r.lastly, s.done-s.due)
		}
	}
	r.calls += int64(max(s.hits, 1))
	r.otherThan = r.otherThan || s.kind != traffic.Hit && s.kind != traffic.Batch
	for _, result := range s.answer.Results {
		r.decided(result)
	}
}

// known returns the name, or otherNames if the map is full.
func known[V any](names map[string]V, name string) string {
	if _, known := names[name]; !known && len(names) >= maxNames {
		return otherNames
	}
	return name
}

// decided counts the decision of a hit. A limit that was decided without the store said nothing.
func (r *recorder) decided(result wire.Result) {
	hits := &r.report.Hits
	switch {
	case result.Status == http.StatusServiceUnavailable:
		hits.Unavailable++
		return
	case result.Decision == nil:
		hits.Faults++
		return
	case result.Allowed:
		hits.Admitted++
	default:
		hits.Denied++
	}
	onError := false
	for i := range result.Limits {
		said := &result.Limits[i]
		if said.OnError != "" {
			onError = true
			continue
		}
		name := known(r.limits, said.Name)
		limit := r.limits[name]
		limit.Name = name
		switch {
		case said.Allowed:
			limit.Admitted++
		case said.Shadow:
			limit.ShadowDenied++
		default:
			limit.Denied++
		}
		r.limits[name] = limit
	}
	if onError {
		hits.OnError++
	}
}

// unsent records a request that waited in vain until the end.
func (r *recorder) unsent(due, end time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Unsent++
	r.time(sample{waited: true, due: due, sent: end, done: end})
}

// breakOff records a request that an interrupt broke off, with its latency until now: a target
// that hangs must not look fast.
func (r *recorder) breakOff(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.BrokenOff++
	r.time(s)
}

// behind returns the target's backlog at the end: how much slower than the fastest of all
// requests the fastest of the last hundredth was. Without a success among these it is the time
// that the last answers took.
func (r *recorder) behind(span, elapsed time.Duration) time.Duration {
	if r.lastly == math.MaxInt64 {
		return max(elapsed-span, 0)
	}
	return r.lastly - r.fastest
}

// finish returns the report of a run with arrivals during span.
func (r *recorder) finish(tally arrival.Tally, p arrival.Profile, span time.Duration) *Report {
	report := &r.report
	report.Seconds, report.Arrived = span.Seconds(), tally.Arrived
	report.Latency, report.Late, report.Waited = r.all.latency(), r.late.latency(), r.waited.latency()
	report.Kinds = map[traffic.Kind]Latency{}
	for _, kind := range traffic.Kinds() {
		if h := r.kinds[kind]; h != nil {
			report.Kinds[kind] = h.latency()
		}
	}
	for name, n := range r.statuses {
		report.Statuses = append(report.Statuses, Status{name, n})
	}
	slices.SortFunc(report.Statuses, func(a, b Status) int { // the most frequent first
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
	report.Limits = slices.SortedFunc(maps.Values(r.limits), func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	report.Timeline = r.timeline.report(p, span, tally.Elapsed)
	if span > 0 {
		report.RateAsked = float64(tally.Arrived) / span.Seconds()
		report.RateReached = float64(report.Answered-report.Failed) / (span + r.behind(span, tally.Elapsed)).Seconds()
	}
	return report
}
