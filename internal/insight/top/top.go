// Package top finds which features had the most hits in the last hour, admitted or denied, as one process has decided
// them, in bounded memory.
//
// For each minute it has the counters of the Space-Saving algorithm (A. Metwally, D. Agrawal, A. El Abbadi: "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005). A feature that had more than one in so many
// hits as there are counters has one of them, and its count says by how much it may be too high.
//
// Beside them each minute has how many hits each limit denied: these counts are exact.
package top

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

const (
	// Longest is the longest window.
	Longest = time.Hour
	// DefaultSize is how many counters a minute has, for each outcome, where nothing else is set: some 10 MB in all, or
	// 40 MB where all features are as long as they may be.
	DefaultSize = 256

	// maxLimits bounds the limits that have counts of their own.
	maxLimits = 64

	slots  = int64(Longest / time.Minute)
	shards = 16
)

// Outcome is what was decided of the hits that are counted.
type Outcome uint8

// The outcomes.
const (
	Admitted Outcome = iota
	Denied
	outcomes
)

var outcomeNames = [...]string{Admitted: "admitted", Denied: "denied"}

// String returns admitted or denied.
func (o Outcome) String() string { return outcomeNames[o] }

// Key is what is counted.
type Key struct {
	Event   string
	Feature events.Feature
}

// Top counts hits by their features. It is safe for concurrent use.
type Top struct {
	now    func() time.Time
	seed   maphash.Seed
	size   int // of the counters of a shard, in each minute
	shards [shards]shard
}

// shard has the keys of some hashes.
type shard struct {
	mu    sync.Mutex
	slots [outcomes][slots]slot
	_     [64]byte // no cache line is of two
}

// Config says how much a Top keeps.
type Config struct {
	Size  int              // counters for each minute and outcome, rounded up to a multiple of 16; 0: DefaultSize
	Clock func() time.Time // nil: time.Now
}

// New returns a Top that has counted nothing.
func New(config Config) *Top {
	t := &Top{now: config.Clock, seed: maphash.MakeSeed(), size: (cmp.Or(config.Size, DefaultSize) + shards - 1) / shards}
	if t.now == nil {
		t.now = time.Now
	}
	return t
}

// Add counts a hit. denying names the limits that denied it.
func (t *Top) Add(outcome Outcome, key Key, denying ...string) { t.add(outcome, key, denying, denying) }

// add counts a hit of a key, which limits denied, and one that each of the counted limits denied. The event as a whole
// is no feature: there only limits are counted.
func (t *Top) add(outcome Outcome, key Key, denying, counted []string) {
	minute := t.now().Unix() / 60
	s := &t.shards[maphash.Comparable(t.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.slots[outcome][minute%slots]
	if at.at == nil {
		at.at = make(map[Key]int32, t.size)
	}
	if at.minute != minute {
		at.begin(minute)
	}
	if key.Feature != (events.Feature{}) {
		at.add(key, denying, t.size)
	}
	at.deny(key.Event, counted)
}

// OnDecision counts a hit, for a limiter.Config: one that is admitted for each of its features with limits, one that
// is denied for each feature of which a limit denies it. The event as a whole is no feature.
func (t *Top) OnDecision(_ context.Context, h limiter.Hit, d *events.Decision, call limiter.Call) {
	if call != limiter.CallHit || d.Unavailable || h.Event == nil {
		return
	}
	outcome := Admitted
	if !d.Allowed {
		outcome = Denied
	}
	for i := range d.Limits {
		feature := d.Limits[i].Feature
		if outcome == Admitted && feature == (events.Feature{}) || isOf(d.Limits[:i], feature) {
			continue
		}
		var names, unique [4]string
		denying, counted := names[:0], unique[:0]
		for k := i; outcome == Denied && k < len(d.Limits); k++ {
			if s := &d.Limits[k]; s.Feature == feature && s.Vetoes() {
				denying = append(denying, s.Name)
				if !denies(d.Limits[:k], s.Name) {
					counted = append(counted, s.Name)
				}
			}
		}
		if outcome == Admitted || len(denying) > 0 {
			t.add(outcome, Key{h.Event.Name, feature}, denying, counted)
		}
	}
}

// denies reports whether one of the limits has the name and denies the hit.
func denies(limits []events.LimitState, name string) bool {
	for i := range limits {
		if limits[i].Name == name && limits[i].Vetoes() {
			return true
		}
	}
	return false
}

// isOf reports whether one of the limits is of the feature.
func isOf(limits []events.LimitState, feature events.Feature) bool {
	for i := range limits {
		if limits[i].Feature == feature {
			return true
		}
	}
	return false
}

// Query says what is asked for.
type Query struct {
	Outcome Outcome
	Event   string        // empty: of any
	N       int           // so many at the most
	Window  time.Duration // in whole minutes, up to Longest: this minute and those before
}

// Entry is a feature, and its hits: at most Count, and at least Count - Error.
type Entry struct {
	Key
	Count, Error int64
	// Limits are the limits that denied, in the order of their names, each with how many hits it denied at the least. A
	// hit that several limits denied counts for each of them.
	Limits []LimitCount
}

// LimitCount is how many hits a limit denied.
type LimitCount struct {
	Limit string
	Count int64
}

// List are the features with the most hits.
type List struct {
	Entries []Entry // the most frequent first, by their counts
	Rest    int64   // the most hits that a feature has had that is not among them
}

// List returns the features whose counts may be the highest.
func (t *Top) List(q Query) List {
	last := t.now().Unix() / 60
	first := last - min(max(int64(q.Window/time.Minute), 1), slots) + 1
	var list List
	for i := range t.shards {
		var unknown int64
		list.Entries, unknown = t.shards[i].appendAll(list.Entries, q, first, last, t.size)
		list.Rest = max(list.Rest, unknown)
	}
	slices.SortFunc(list.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Event, b.Event),
			cmp.Compare(a.Feature.String(), b.Feature.String()))
	})
	if n := max(q.N, 0); n < len(list.Entries) {
		list.Rest = max(list.Rest, list.Entries[n].Count)
		list.Entries = slices.Clone(list.Entries[:n])
	}
	return list
}

// appendAll appends what the shard has counted from the first minute to the last. It returns also the most hits that
// a key has had that is not among them.
func (s *shard) appendAll(all []Entry, q Query, first, last int64, size int) (entries []Entry, unknown int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[Key]*Entry{}
	for i := range s.slots[q.Outcome] {
		at := &s.slots[q.Outcome][i]
		if at.at == nil || at.minute < first || at.minute > last {
			continue
		}
		floor := at.floor(size)
		unknown += floor
		for _, c := range at.counters {
			if q.Event != "" && q.Event != c.key.Event {
				continue
			}
			sum := sums[c.key]
			if sum == nil {
				sum = &Entry{Key: c.key}
				sums[c.key] = sum
			}
			sum.Count, sum.Error = sum.Count+c.count-floor, sum.Error+c.error-floor
			for _, one := range c.limits {
				(*limits)(&sum.Limits).add(one.Limit, one.Count)
			}
		}
	}
	for _, sum := range sums {
		sum.Count, sum.Error = sum.Count+unknown, sum.Error+unknown // in the minutes without a counter of its own
		slices.SortFunc(sum.Limits, func(a, b LimitCount) int { return cmp.Compare(a.Limit, b.Limit) })
		all = append(all, *sum)
	}
	return all, unknown
}
