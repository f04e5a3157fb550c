package rlsconfig

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/counterd/counterd/events"
)

// Entry is one key and value of a request's descriptor, or of a path to a limit.
type Entry struct{ Key, Value string }

// Limit is the limit of the descriptors that a path matches. It must not be modified.
type Limit struct {
	Domain string
	Path   []Entry // the keys with their values or wildcard patterns, as configured; a bare key has no value
	Name   string  // that of its rate_limit; may be empty

	N          uint32 // requests per window; 0 denies each
	Unit       Unit   // 0 if unlimited
	Multiplier uint32 // units per window, at least 1

	Unlimited      bool
	Shadow         bool             // decided and reported, never enforced
	Quota          bool             // quota_mode
	Count          events.Count     // whether denied requests count, as those do that report use
	ShareThreshold bool             // the values that match the last wildcard of Path share one counter
	Replaces       []string         // the names of the limits that do not apply to a request that this one applies to
	Metadata       *structpb.Struct // nil: there is none
	DetailedMetric bool
	ValueToMetric  bool

	File string

	Rule  *events.Rule // by which it is decided; nil if unlimited
	index int          // of Rule in those of the domain's event
}

// rule returns the rule by which the limit, which is not unlimited, is decided. Its limit has the name of the rate_limit, or the path.
func (l *Limit) rule() events.Rule {
	name := cmp.Or(l.Name, strings.TrimPrefix(l.String(), l.Domain+"."))
	rule := events.Rule{
		Per: l.pathKeys(), Verbatim: true, Shadow: l.Shadow, Count: l.Count, Place: l.place(),
		Limits: []events.Limit{{Name: name, N: int64(l.N), Window: l.Window()}},
	}
	if l.Quota {
		rule.Throttle.Kind = events.Quota
	}
	return rule
}

// Window returns the length of the limit's window; 0 if unlimited.
func (l *Limit) Window() time.Duration { return time.Duration(l.Multiplier) * l.Unit.Length() }

// String returns the domain and the path as domain.key_value.key.
func (l *Limit) String() string {
	var b strings.Builder
	b.WriteString(l.Domain)
	for _, entry := range l.Path {
		b.WriteString("." + entry.Key)
		if entry.Value != "" {
			b.WriteString("_" + entry.Value)
		}
	}
	return b.String()
}

// Unit is a unit of time. Its number is that of RateLimitResponse.RateLimit.Unit in the
// rate limit service's protocol.
type Unit uint8

// The units of time.
const (
	Second Unit = 1 + iota
	Minute
	Hour
	Day
	Month
	Year
	Week
)

const day = 24 * time.Hour

var units = [...]struct {
	name   string
	length time.Duration
}{
	Second: {"second", time.Second},
	Minute: {"minute", time.Minute},
	Hour:   {"hour", time.Hour},
	Day:    {"day", day},
	Week:   {"week", 7 * day},
	Month:  {"month", 30 * day},
	Year:   {"year", 365 * day},
}

// unitNames are the units that a limit can have: a year exceeds the longest window.
var unitNames = []string{"second", "minute", "hour", "day", "week", "month"}

// parseUnit returns the unit of that name, in any case, or 0.
func parseUnit(name string) Unit {
	for unit := Second; unit <= Week; unit++ {
		if strings.EqualFold(name, units[unit].name) {
			return unit
		}
	}
	return 0
}

// String returns the name in lower case; of the zero Unit it is empty.
func (u Unit) String() string { return units[u].name }

// Length returns how long the unit is: a month is 30 days, a year 365. The zero Unit has the length 0.
func (u Unit) Length() time.Duration { return units[u].length }

// MaxMultiplier returns of how many units the longest window is; 0: it is shorter than one.
func (u Unit) MaxMultiplier() int64 { return int64(events.MaxWindow) / max(1, int64(u.Length())) }
