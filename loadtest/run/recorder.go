package run

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/traffic"
)

// maxNames bounds the names of statuses and limits: a target may make them up.
const maxNames = 1000

// otherNames is what those beyond are counted as.
const otherNames = "other"

// recorder keeps what is seen of a run.
type recorder struct {
	mu       sync.Mutex
	all      *histogram
	kinds    map[traffic.Kind]*histogram
	late     *histogram // until they were sent that found a place in flight
	waited   *histogram // until they were sent that did not
	statuses map[string]int64
	failed   int64
	broken   int64 // in flight when the run was interrupted
	answered int64 // of all, whatever the answer
	// Of those that were no failures: when they came, and the least latency.
	came      *histogram
	fastest   time.Duration
	hits      Hits
	limits    map[string]*Limit
	timeline  *timeline
	calls     int64 // hits, those of batches by themselves, checks, increments and counts
	otherThan bool  // there were others than hits among them
}

func newRecorder() *recorder {
	return &recorder{
		came: newHistogramTo(longestMoment, 4), fastest: math.MaxInt64,
		all: newHistogram(3), late: newHistogram(3), waited: newHistogram(3), kinds: map[traffic.Kind]*histogram{},
		statuses: map[string]int64{}, limits: map[string]*Limit{}, timeline: newTimeline(),
	}
}

// sample is what was seen of one request. Moments are lengths of time since the beginning.
type sample struct {
	kind            traffic.Kind
	hits            int  // of a batch
	waited          bool // for a place in flight
	due, sent, done time.Duration
	answer          Answer
}

func (r *recorder) record(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.time(s)
	r.count(s)
}

// time notes how long a request took.
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

// count counts an answer by what it says.
func (r *recorder) count(s sample) {
	r.answered++
	name := s.answer.Status
	if _, known := r.statuses[name]; !known && len(r.statuses) >= maxNames {
		name = otherNames
	}
	r.statuses[name]++
	then := r.timeline.at(s.done)
	if s.answer.Failed {
		r.failed++
		then.failed++
	} else {
		then.answered++
		r.came.record(s.done)
		r.fastest = min(r.fastest, s.done-s.due)
	}
	r.calls += int64(max(s.hits, 1))
	r.otherThan = r.otherThan || s.kind != traffic.Hit && s.kind != traffic.Batch
	for _, d := range s.answer.Decided {
		r.decided(d)
	}
}

func (r *recorder) decided(d Decided) {
	switch d.Verdict {
	case Admitted:
		r.hits.Admitted++
	case Denied:
		r.hits.Denied++
	case Unavailable:
		r.hits.Unavailable++
	case Fault:
		r.hits.Faults++
	}
	if d.OnError {
		r.hits.OnError++
	}
	for _, said := range d.Limits {
		limit := r.limit(said.Limit)
		switch said.Verdict {
		case Admitted:
			limit.Admitted++
		case ShadowDenied:
			limit.ShadowDenied++
		default:
			limit.Denied++
		}
	}
}

func (r *recorder) limit(name string) *Limit {
	if r.limits[name] == nil && len(r.limits) >= maxNames {
		name = otherNames
	}
	if r.limits[name] == nil {
		r.limits[name] = &Limit{Name: name}
	}
	return r.limits[name]
}

// unsent notes a request that waited in vain until the run was over.
func (r *recorder) unsent(due, end time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.record(end - due)
	r.waited.record(end - due)
	r.timeline.at(due).latency.record(end - due)
}

// breakOff notes a request of which nobody knows how it would have been answered. It has
// taken as long as until now: to leave out what hangs would make a target that does look
// fast.
func (r *recorder) breakOff(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.time(s)
	r.broken++
}

// soFar returns how many were answered.
func (r *recorder) soFar() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered
}

// behind returns by how much the target was behind in the end: how much later 99% of the
// answers were there than if each had taken as long as the fastest. That all take their time
// is no backlog, and nor is it that a few take long.
func (r *recorder) behind(p arrival.Profile, arrived int64) time.Duration {
	const percent = 99
	if r.came.counts.TotalCount() == 0 {
		return 0
	}
	due := p.Due(max((arrived*percent+99)/100-1, 0))
	return max(r.came.at(percent)-due-r.fastest, 0)
}

// sortedLimits returns the limits by name.
func (r *recorder) sortedLimits() []Limit {
	var list []Limit
	for _, name := range slices.Sorted(maps.Keys(r.limits)) {
		list = append(list, *r.limits[name])
	}
	return list
}

// sortedStatuses returns the statuses, the most frequent first.
func (r *recorder) sortedStatuses() []Status {
	var list []Status
	for name, n := range r.statuses {
		list = append(list, Status{name, n})
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
	return list
}
