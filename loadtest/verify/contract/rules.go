// Package contract is what the rules of an event promise, and finds what is wrong with a single
// answer: its headers, and its body, by itself and by the rules. It makes no calls.
package contract

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// ErrRules is returned for an event without limits, or with rules unknown here.
var ErrRules = errors.New("verify: this event cannot be verified")

// MadeUp are the addresses that calls may be made for.
var MadeUp = netip.MustParsePrefix("10.0.0.0/8")

const (
	// Grace is how far ahead of its stamp a decision looks, in seconds: counterd's default.
	Grace = 2
	// Margin is how much sooner than the retention ends what is asked for lies, in seconds: a
	// call takes its time.
	Margin = 30
	// maxLimits is how many limits an event may have: an entry of the log has a bit for each.
	maxLimits = 64
)

// Level is one of the lengths of buckets, in seconds.
type Level struct {
	Name   string
	Length int64
}

// Levels are all of them, the finest first.
var Levels = []Level{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}}

// Contract is what the rules in force promise of an event. It is safe for concurrent use.
type Contract struct {
	Event     string
	Retention int64    // seconds
	Past      int64    // how far back increments may be, in seconds: token buckets remember no more than they count
	Kinds     []string // all that the rules name, sorted: every hit carries all of them
	Rules     []Rule
	Limits    []Limit // in the order of a decision

	families atomic.Pointer[families]
}

// Rule is one of the event's. Two with the same kinds share their counter, if both or none count in a log,
// or leases.
type Rule struct {
	Index    int // among the event's rules
	Per      []string
	Step     int64 // of the precision, in seconds
	CountAll bool
	Shadow   bool
	Elastic  bool
	Log      bool // it counts in a log
	Leases   bool // in one of leases: each hit takes one
}

// Limit is one of a rule's.
type Limit struct {
	Rule
	events.Limit
	Ceiling int64
	Length  int64 // of the window, at the most, in seconds; of a token bucket until it is full again
}

// New reads the rules as GET /v1/events/{event} tells them.
func New(event wire.Event) (*Contract, error) {
	retention, err := events.ParseDuration(event.Retention)
	if err != nil {
		return nil, fmt.Errorf("%w: its retention: %w", ErrRules, err)
	}
	c := &Contract{Event: event.Name, Retention: Seconds(retention)}
	for i, r := range event.Rules {
		if err := c.add(i, r); err != nil {
			return nil, fmt.Errorf("%w: rule %d: %w", ErrRules, i, err)
		}
	}
	if n := len(c.Limits); n == 0 || n > maxLimits {
		return nil, fmt.Errorf("%w: it has %d limits, not 1 to %d", ErrRules, n, maxLimits)
	}
	c.Past = c.Retention
	for _, l := range c.Limits {
		if l.Burst > 0 && c.Counting(l.Per) < 0 {
			c.Past = min(c.Past, l.Length)
		}
	}
	slices.Sort(c.Kinds)
	c.Kinds = slices.Compact(c.Kinds)
	if len(c.Kinds) == 0 {
		c.Kinds = []string{"user"} // a hit carries a feature, also where only the whole event is counted
	}
	return c, nil
}

// Of returns what an event of a rules file promises.
func Of(event *events.Event) (*Contract, error) {
	out := wire.Event{Name: event.Name, Retention: events.FormatDuration(event.Remembered())}
	for _, r := range event.Rules {
		rule := wire.Rule{
			Per: r.Per, Allow: r.Allow.Strings(), Deny: r.Deny.Strings(), Precision: r.Precision.String(),
			Count: r.Count.String(), Throttle: r.Throttle.String(), Shadow: r.Shadow,
		}
		for _, l := range r.Limits {
			limit := wire.Limit{Name: l.Name, Limit: l.N, Window: l.WindowName(), Algorithm: l.Algorithm, Burst: l.Burst}
			if l.Calendar != nil {
				limit.Calendar = l.Calendar.String()
			}
			rule.Limits = append(rule.Limits, limit)
		}
		out.Rules = append(out.Rules, rule)
	}
	return New(out)
}

func (c *Contract) add(i int, r wire.Rule) error {
	for _, network := range slices.Concat(r.Allow, r.Deny) {
		if prefix, err := netip.ParsePrefix(network); err == nil && prefix.Overlaps(MadeUp) {
			return fmt.Errorf("one of its lists holds addresses of %s, where those made up here are", MadeUp)
		}
	}
	rule := Rule{
		Index: i, Per: slices.Sorted(slices.Values(r.Per)),
		CountAll: r.Count == "all", Shadow: r.Shadow, Elastic: r.Throttle == "elastic",
	}
	for _, l := range r.Limits {
		if _, known := events.AlgorithmByName(l.Algorithm); !known {
			return fmt.Errorf("the algorithm of its limit %s, %s, is not known here", l.Name, l.Algorithm)
		}
		rule.Log, rule.Leases = events.AlgorithmInLog(l.Algorithm), l.Algorithm == events.Concurrency
	}
	for _, level := range Levels {
		if level.Name == r.Precision {
			rule.Step = level.Length
		}
	}
	if rule.Step == 0 {
		return fmt.Errorf("its precision, %q, is not known here", r.Precision)
	}
	c.Rules, c.Kinds = append(c.Rules, rule), append(c.Kinds, r.Per...)
	throttle := events.Throttle{}
	if percent, soft := strings.CutPrefix(r.Throttle, "soft "); soft {
		p, err := strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 64)
		if err != nil {
			return fmt.Errorf("its throttle, %q, is not known here", r.Throttle)
		}
		throttle = events.Throttle{Kind: events.Soft, Percent: p}
	}
	for _, l := range r.Limits {
		limit, err := limitOf(l)
		if err != nil {
			return fmt.Errorf("its limit %s: %w", l.Name, err)
		}
		ceiling := throttle.Ceiling(limit.Most())
		c.Limits = append(c.Limits, Limit{rule, limit, ceiling, Seconds(limit.Span(ceiling))})
	}
	return nil
}

// limitOf reads a limit. Its window is a duration, or the unit of a calendar.
func limitOf(from wire.Limit) (l events.Limit, err error) {
	l = events.Limit{Name: from.Name, N: from.Limit, Burst: from.Burst, Algorithm: from.Algorithm}
	if from.Calendar == "" {
		l.Window, err = events.ParseDuration(from.Window)
		if err == nil && l.Burst > 0 && l.N < 1 {
			err = errors.New("it is a token bucket that nothing returns to")
		}
		return l, err
	}
	if l.Calendar, err = time.LoadLocation(from.Calendar); err != nil {
		return l, err
	}
	unit, err := events.ParseRate("1/" + map[string]string{"hour": "h", "day": "d", "week": "week", "month": "month"}[from.Window])
	l.Window = unit.Window
	return l, err
}

// Tiles reports whether windows follow one another, so that all hits of one leave together.
func (l Limit) Tiles() bool { return l.Windows().Algorithm.Tiles }

// Begins returns when the first window begins that holds that second.
func (l Limit) Begins(second int64) (first int64) {
	first, _ = l.around(second)
	if !l.Tiles() {
		first, _ = Outward(first, second, l.Step)
	}
	return first
}

// around returns the seconds whose hits share a window with hits of the second. A log that counts more
// finely than by seconds slides.
func (l Limit) around(second int64) (first, last int64) {
	if w := l.Windows(); w.Algorithm.Around != nil {
		return w.Around(second)
	}
	return second - l.Length + 1, second + l.Length - 1
}

// Turns reports whether a window begins in that second, if windows follow one another; or in the one before, if a
// log says so: a wait counts from a moment that may be before the second of the stamp.
func (l Limit) Turns(second int64) bool {
	begins := l.Begins(second)
	return begins == second || l.Log && begins == second-1
}

// Slides reports whether counts of windows of that many seconds slide by milliseconds, not by whole seconds.
func (r Rule) Slides(window int64) bool { return r.Log && window < 60 }

// Slides reports whether the window slides by milliseconds.
func (l Limit) Slides() bool { return !l.Tiles() && l.Rule.Slides(l.Length) }

// Queues reports whether a hit may have to wait for its turn.
func (l Limit) Queues() bool { return l.Algorithm == events.LeakyBucket }

// Charge returns what a hit of that cost takes.
func (r Rule) Charge(cost int64) int64 {
	if r.Leases {
		return 1
	}
	return cost
}

// Whole reports whether the rule counts the whole event, by no feature.
func (r Rule) Whole() bool { return len(r.Per) == 0 }

// Bounded reports whether no window of the limit holds more than its ceiling. One that is elastic
// is bounded by those of the whole event.
func (l Limit) Bounded() bool { return !l.Shadow && !l.Elastic }

// LooksAt is what a limit looks at when it decides in that second, in Unix seconds: its edges
// are rounded outward to the precision.
func (l Limit) LooksAt(second int64) (from, to int64) {
	first, last := l.around(second)
	return Outward(first, min(second+Grace, last), l.Step)
}

// RemembersLate reports whether events are remembered for long enough to add some late.
func (c *Contract) RemembersLate() bool { return c.Past >= 4*Margin }

// Counting returns the place of the first limit per those kinds whose counter knows when its hits came: counts
// and histories are of that one. -1: there is none.
func (c *Contract) Counting(per []string) int {
	return slices.IndexFunc(c.Limits, func(l Limit) bool { return l.Burst == 0 && !l.Leases && slices.Equal(l.Per, per) })
}

// HasWhole reports whether a rule counts the whole event.
func (c *Contract) HasWhole() bool { return slices.ContainsFunc(c.Rules, Rule.Whole) }

// HasLeases reports whether a rule is on leases.
func (c *Contract) HasLeases() bool {
	return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Leases })
}

// Increments reports whether what is added without deciding is added to the rule's counter: to that of leases
// only where it is the only one per its kinds.
func (c *Contract) Increments(r Rule) bool {
	return !r.Leases || !slices.ContainsFunc(c.Rules, func(o Rule) bool { return !o.Leases && slices.Equal(o.Per, r.Per) })
}

// ShortestLease returns how long the shortest lease is.
func (c *Contract) ShortestLease() time.Duration {
	shortest := time.Duration(0)
	for _, l := range c.Limits {
		if l.Leases && (shortest == 0 || l.Window < shortest) {
			shortest = l.Window
		}
	}
	return shortest
}

// CountsAll reports whether a rule counts denied hits, too.
func (c *Contract) CountsAll() bool {
	return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.CountAll })
}

// Same reports whether two targets have the same rules.
func (c *Contract) Same(other *Contract) bool {
	return reflect.DeepEqual(c.Rules, other.Rules) && reflect.DeepEqual(c.Limits, other.Limits)
}

// Outward rounds a window to whole steps.
func Outward(from, to, step int64) (first, last int64) {
	return from / step * step, to/step*step + step - 1
}

// Ceil returns a divided by b, from 0 on, rounded up.
func Ceil(a, b int64) int64 { return (a + b - 1) / b }

// Seconds returns the whole seconds of a duration.
func Seconds(d time.Duration) int64 { return int64(d / time.Second) }
