package verify

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// ErrRules is returned for an event without limits, or with rules unknown here.
var ErrRules = errors.New("verify: this event cannot be verified")

// maxLimits is how many limits an event may have: there is a bit for each in an entry of
// the log.
const maxLimits = 64

// grace is how far ahead of its stamp a decision looks, in seconds: counterd's default.
const grace = 2

// contract is what the rules in force promise of an event.
type contract struct {
	event     string
	retention int64    // seconds
	kinds     []string // all that the rules name, sorted: every hit carries all of them
	rules     []rule
	limits    []limit // in the order of a decision
}

// rule is one of the event's. Two with the same kinds share their counter.
type rule struct {
	per      []string
	step     int64 // of the precision, in seconds
	countAll bool
	shadow   bool
	elastic  bool
}

// limit is one of a rule's.
type limit struct {
	rule       int
	name       string
	n, ceiling int64
	length     int64  // of the window, in seconds
	window     string // as the rules have it
}

// newContract reads the rules as GET /v1/events/{event} tells them.
func newContract(event wire.Event) (*contract, error) {
	retention, err := events.ParseDuration(event.Retention)
	if err != nil {
		return nil, fmt.Errorf("%w: its retention: %w", ErrRules, err)
	}
	c := &contract{event: event.Name, retention: seconds(retention)}
	for i, r := range event.Rules {
		if err := c.add(i, r); err != nil {
			return nil, fmt.Errorf("%w: rule %d: %w", ErrRules, i, err)
		}
	}
	switch {
	case len(c.limits) == 0:
		return nil, fmt.Errorf("%w: it has no limits", ErrRules)
	case len(c.limits) > maxLimits:
		return nil, fmt.Errorf("%w: it has more than %d limits", ErrRules, maxLimits)
	}
	slices.Sort(c.kinds)
	c.kinds = slices.Compact(c.kinds)
	if len(c.kinds) == 0 {
		c.kinds = []string{"user"} // a hit carries a feature, also where only the whole event is counted
	}
	return c, nil
}

func (c *contract) add(i int, r wire.Rule) error {
	for _, network := range slices.Concat(r.Allow, r.Deny) {
		if prefix, err := netip.ParsePrefix(network); err == nil && prefix.Overlaps(madeUp) {
			return fmt.Errorf("one of its lists holds addresses of %s, where those made up here are", madeUp)
		}
	}
	steps := map[string]int64{"second": 1, "minute": 60, "hour": 3600}
	if steps[r.Precision] == 0 {
		return fmt.Errorf("its precision, %q, is not known here", r.Precision)
	}
	c.rules = append(c.rules, rule{
		per: slices.Sorted(slices.Values(r.Per)), step: steps[r.Precision],
		countAll: r.Count == "all", shadow: r.Shadow, elastic: r.Throttle == "elastic",
	})
	c.kinds = append(c.kinds, r.Per...)
	throttle := events.Throttle{}
	if percent, soft := strings.CutPrefix(r.Throttle, "soft "); soft {
		p, err := strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 64)
		if err != nil {
			return fmt.Errorf("its throttle, %q, is not known here", r.Throttle)
		}
		throttle = events.Throttle{Kind: events.Soft, Percent: p}
	}
	for _, l := range r.Limits {
		window, err := events.ParseDuration(l.Window)
		if err != nil {
			return err
		}
		c.limits = append(c.limits, limit{i, l.Name, l.Limit, throttle.Ceiling(l.Limit), seconds(window), l.Window})
	}
	return nil
}

func (c *contract) ruleOf(l limit) rule { return c.rules[l.rule] }

// enforced reports whether a limit's no is a no.
func (c *contract) enforced(l limit) bool { return !c.ruleOf(l).shadow }

// bounded reports whether no window of it holds more than its ceiling. One that is elastic
// is bounded by those of the whole event.
func (c *contract) bounded(l limit) bool { return c.enforced(l) && !c.ruleOf(l).elastic }

// whole reports whether a limit is of a rule for the whole event, whose counter all hits add
// to.
func (c *contract) whole(l limit) bool { return len(c.ruleOf(l).per) == 0 }

// margin is how much sooner than the retention ends what is asked for lies, in seconds: a call
// takes its time.
const margin = 30

// remembersLate reports whether events are remembered for long enough to add some late.
func (c *contract) remembersLate() bool { return c.retention >= 4*margin }

// hasWhole reports whether there is such a rule.
func (c *contract) hasWhole() bool { return slices.ContainsFunc(c.limits, c.whole) }

// countsAll reports whether a rule counts denied hits, too.
func (c *contract) countsAll() bool {
	return slices.ContainsFunc(c.rules, func(r rule) bool { return r.countAll })
}

// windowAt is what a limit looks at when it decides in that second: its edges are rounded
// outward to the precision.
func (c *contract) windowAt(l limit, second int64) (from, to int64) {
	return outward(second-l.length+1, second+l.ahead(), c.ruleOf(l).step)
}

// ahead is how far a limit looks past the stamp of a hit, in seconds.
func (l limit) ahead() int64 { return min(grace, l.length-1) }

// same reports whether two targets have the same rules.
func (c *contract) same(other *contract) bool {
	return slices.EqualFunc(c.rules, other.rules, func(a, b rule) bool {
		return slices.Equal(a.per, b.per) && a.step == b.step && a.countAll == b.countAll && a.shadow == b.shadow && a.elastic == b.elastic
	}) && slices.Equal(c.limits, other.limits)
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// countsDenied reports whether one of those rules counts denied hits, too.
func (c *contract) countsDenied(rules []int) bool {
	return slices.ContainsFunc(rules, func(r int) bool { return c.rules[r].countAll })
}

// deniedByWhole reports whether a limit of the whole event denies.
func (c *contract) deniedByWhole(e entry) bool {
	for i, l := range c.limits {
		if e.denies&(1<<i) != 0 && c.enforced(l) && c.whole(l) {
			return true
		}
	}
	return false
}

// breaks reports whether a denial breaks the promise of one before: by a limit of this user
// alone, and that does not stretch as far as the whole event lets it.
func (c *contract) breaks(e entry) bool {
	for i, l := range c.limits {
		r, bit := c.ruleOf(l), uint64(1)<<i
		if e.denies&bit != 0 && c.enforced(l) && !c.whole(l) && !r.elastic {
			return true
		}
	}
	return false
}

// full names the limits that deny.
func (c *contract) full(d forecast) (text string) {
	for i, s := range d.Limits {
		if l := c.limits[i]; !s.Allowed && c.enforced(l) {
			text += fmt.Sprintf("%s has %d of %d; ", s.Name, s.Count, l.ceiling)
		}
	}
	return text
}
