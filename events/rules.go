package events

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultRetention is how long the counters of an event without limits are
	// remembered.
	DefaultRetention = 24 * time.Hour
	// MaxWindow is the longest window of a limit that is no unit of a calendar.
	MaxWindow = 30 * 24 * time.Hour
	// MaxCounters is the most counters of a hit: a reservation names all of them.
	MaxCounters = 64
	// MaxRetention is the longest retention, enough for a month of any calendar.
	MaxRetention = 32 * 24 * time.Hour
)

// ErrUnknownEvent is returned for an event that no rule names.
var ErrUnknownEvent = errors.New("events: unknown event")

// Rules are the events that are counted, and how.
type Rules struct {
	Events         map[string]*Event // by name
	TrustedProxies Networks          // the proxies whose X-Forwarded-For is believed
	Headers        []Header          // the headers of an answer; none given: HeaderRateLimit
	Warnings       Faults            // what is valid in the file, and hardly meant
	// Revision orders the versions of the rules: a newer one has a higher revision. It is that of
	// each rule. See Modified.
	Revision uint64
}

// Header is a family of response headers with the state of a limit.
type Header uint8

// The families of headers.
const (
	HeaderRateLimit  Header = iota // RateLimit-Policy and RateLimit
	HeaderXRateLimit               // X-RateLimit-Limit, -Remaining and -Reset
	HeaderNone                     // neither
)

var headerNames = [...]string{"ratelimit", "x-ratelimit", "none"}

// String returns ratelimit, x-ratelimit or none.
func (h Header) String() string { return headerNames[h] }

// Sends reports whether answers carry that family of headers.
func (r *Rules) Sends(h Header) bool {
	if len(r.Headers) == 0 {
		return h == HeaderRateLimit
	}
	return slices.Contains(r.Headers, h)
}

// Event returns the event of that name, or ErrUnknownEvent.
func (r *Rules) Event(name string) (*Event, error) {
	if event := r.Events[name]; event != nil {
		return event, nil
	}
	return nil, ErrUnknownEvent
}

// All returns the events in the order of their names.
func (r *Rules) All() []*Event {
	events := slices.Collect(maps.Values(r.Events))
	slices.SortFunc(events, func(a, b *Event) int { return strings.Compare(a.Name, b.Name) })
	return events
}

// Longest returns how long the counter that is remembered for longest is, apart from those of overrides; 0: there is none.
func (r *Rules) Longest() (longest time.Duration) {
	for _, event := range r.Events {
		longest = max(longest, event.Remembered())
	}
	return longest
}

// Event is one kind of event, and how it is counted. An Event with a name alone
// is counted per each feature it comes with and remembered for a day.
type Event struct {
	Name      string
	Retention time.Duration // 0: the longest window of its limits, or DefaultRetention without limits
	Rules     []Rule
	From      map[string]Source // by kind: where requests carry it; see Source for the defaults
	Methods   []string          // the HTTP methods of requests that are hits; none: all
	Matcher   Matcher           // chooses the rules of a hit; nil: the kinds that they are per do
	kept      map[string]kept   // by their names: how counters were kept so far; see Succeed
}

// Remembered returns how long the event's counters are remembered, but for those of token buckets
// alone: its retention, or the longest window of its limits where that is longer. The
// windows of overrides are not looked at: rules from a file have a retention
// that covers them, and others must set one.
func (e *Event) Remembered() time.Duration {
	longest := e.Retention
	for _, rule := range e.Rules {
		if rule.Leases() { // what leases there were is not kept
			continue
		}
		for _, limit := range rule.Limits {
			if limit.Burst == 0 {
				longest = max(longest, limit.LongestWindow())
			}
		}
	}
	if longest == 0 {
		return DefaultRetention
	}
	return longest
}

// LongestWait returns for how long a hit waits at the most for its turn: for so long all its counters know it.
func (e *Event) LongestWait() (longest time.Duration) {
	for i := range e.Rules {
		rule := &e.Rules[i]
		if rule.Shadow {
			continue
		}
		for _, limits := range append([][]Limit{rule.Limits}, slices.Collect(maps.Values(rule.Overrides))...) {
			for _, limit := range limits {
				longest = max(longest, limit.LongestWait(rule.Throttle.Ceiling(limit.Most())))
			}
		}
	}
	return longest
}

// Rule sets limits on the counters of one combination of kinds. Rules of an
// event with the same Per share the counter, and agree in Precision, IPv6Prefix
// and Count. Those with a sliding log have a counter of their own, without a Precision.
type Rule struct {
	Per        []string // the kinds, sorted; none: one counter for the whole event
	Limits     []Limit
	Precision  Precision
	IPv6Prefix int // bits, 1 to 128; 0 means DefaultIPv6Prefix
	// NAT64 are prefixes, beside 64:ff9b::/96, whose addresses are counted as the IPv4 address inside. See ValidNAT64.
	NAT64 []netip.Prefix

	// Overrides are the limits of single values, by canonical value, instead of
	// Limits. Only a rule per one kind has them.
	Overrides map[string][]Limit
	Allow     List // never limited, still counted
	Deny      List // always denied, not counted

	Throttle Throttle
	Count    Count
	OnError  OnError
	Shadow   bool // decided and reported, never enforced

	// Revision is that of the Rules.
	Revision uint64
	// Place is where the rule is: its line, and its path in a rules file; empty: in no file.
	Place string
	// Verbatim: the kinds are the keys of a descriptor, in their order, and values are counted as they are.
	Verbatim bool

	exceptions map[feature]exception // of Rules.With
}

// Limit allows at most N in any window of that length.
type Limit struct {
	Name   string        // printable ASCII without quotes and backslashes, at most MaxLimitName bytes
	Series string        // the name in metrics, which does not contain the rate; if empty, Name
	N      int64         // 0 to MaxN; 0 denies always
	Window time.Duration // whole seconds, 1s to MaxWindow
	// Burst makes the limit a token bucket: it admits as many at once, and N in a Window return. Of a
	// leaky bucket it is one more than its queue. 0: the limit counts in windows.
	Burst int64
	// Algorithm is how it counts, by its name; if empty, DefaultAlgorithm.
	Algorithm string
	// Calendar is the time zone of the calendar that the windows are units of, a fixed-window then:
	// Window is the usual length of the unit, 1h, 24h, 7d or, of a month, 30d. nil: of none.
	Calendar *time.Location
	// Since is the Unix second from which on the counter is kept for the limit, for
	// one that a reload has added; 0: it always was.
	Since int64
}

// Windows returns the windows of the limit, whose algorithm must be known.
func (l Limit) Windows() Windows {
	a, _ := AlgorithmByName(l.Algorithm)
	return Windows{Algorithm: a, Length: int64(l.Window / time.Second), Zone: l.Calendar}
}

// LongestWindow returns the length of the longest window of the limit.
func (l Limit) LongestWindow() time.Duration {
	if l.Calendar == nil {
		return l.Window
	}
	return time.Duration(l.Windows().Longest()) * time.Second
}

// WindowAt returns the length of the window of hits of that Unix second.
func (l Limit) WindowAt(second int64) time.Duration {
	if l.Calendar == nil {
		return l.Window
	}
	first, last := l.Windows().Around(second)
	return time.Duration(last+1-first) * time.Second
}

// WindowName returns the window as answers have it: the unit of a calendar, or a duration.
func (l Limit) WindowName() string { return cmp.Or(l.Unit(), FormatDuration(l.Window)) }

// Unit returns hour, day, week or month if the windows are those of a calendar; else nothing.
func (l Limit) Unit() string {
	if l.Calendar == nil {
		return ""
	}
	return l.Windows().Unit()
}

// Most returns how many the limit admits at once: N, or its burst.
func (l Limit) Most() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.N
}

// Span returns how long the limit counts what was admitted, in whole seconds: its longest window, or the
// time in which an empty token bucket of that ceiling is full again.
func (l Limit) Span(ceiling int64) time.Duration {
	if l.Burst == 0 {
		return l.LongestWindow()
	}
	return (l.refillTime(ceiling) + time.Second - 1).Truncate(time.Second)
}

// LongestWait returns for how long a hit waits at the most for its turn in a leaky bucket that admits so many
// at once.
func (l Limit) LongestWait(ceiling int64) time.Duration {
	if l.Algorithm != LeakyBucket {
		return 0
	}
	return l.refillTime(ceiling - 1)
}

// refillTime returns in what time so many tokens return to a bucket, rounded up to milliseconds.
func (l Limit) refillTime(tokens int64) time.Duration {
	return time.Duration((tokens*l.Window.Milliseconds()+l.N-1)/l.N) * time.Millisecond
}

// MaxLimitName is the most bytes that a limit's name may have.
const MaxLimitName = 128

// ThrottleKind says what happens above a limit's N.
type ThrottleKind uint8

// The kinds of throttle.
const (
	Hard    ThrottleKind = iota // never above N
	Soft                        // up to a ceiling above N, what lies above N is marked
	Elastic                     // above N while the whole event stays under its own limit
	Quota                       // above N while another quota of the hit has room
)

// MaxSoftPercent is the most that a soft throttle admits above N, in percent.
const MaxSoftPercent = 1000

// Throttle says how strictly a rule's limits are kept. The zero Throttle is
// hard.
type Throttle struct {
	Kind    ThrottleKind
	Percent int64 // of a soft throttle: how far above N it goes, 1 to MaxSoftPercent
}

// Ceiling returns how many a limit of n admits at most: for a soft throttle n
// and its percentage, rounded down; else n, above which an elastic throttle asks
// the limit of the whole event.
func (t Throttle) Ceiling(n int64) int64 {
	if t.Kind != Soft {
		return n
	}
	// floor(n*p/100) by parts: exact, and far from overflow.
	return n + n/100*t.Percent + n%100*t.Percent/100
}

// String returns the throttle as a rules file has it: hard, soft 10%, elastic; or quota, which only
// configurations of package rls have.
func (t Throttle) String() string {
	switch t.Kind {
	case Soft:
		return "soft " + strconv.FormatInt(t.Percent, 10) + "%"
	case Elastic:
		return "elastic"
	case Quota:
		return "quota"
	}
	return "hard"
}

// Count says which hits a rule counts.
type Count uint8

// What a rule counts.
const (
	CountAdmitted Count = iota // a denied hit leaves no trace
	CountAll                   // denied hits too
)

var countNames = [...]string{"admitted", "all"}

// String returns admitted or all.
func (c Count) String() string { return countNames[c] }

// OnError says what a rule decides when the store cannot be asked in time.
type OnError uint8

// What is decided without a store.
const (
	OnErrorAllow OnError = iota // admit
	OnErrorDeny                 // deny, as unavailable
	OnErrorLocal                // decide on this process's own counters
)

var onErrorNames = [...]string{"allow", "deny", "local"}

// String returns allow, deny or local.
func (o OnError) String() string { return onErrorNames[o] }

// Applies reports whether the rule applies to a hit with those features: whether
// they hold all of its kinds.
func (r *Rule) Applies(features Features) bool { return features.hold(r.Per) }

// LimitsOf returns the limits of the rule for one of its counters' features: its
// own, or the ones that override them for that value.
func (r *Rule) LimitsOf(of Feature) []Limit {
	if len(r.Overrides)+len(r.exceptions) > 0 {
		for kind, value := range of.All() {
			if one := r.exceptions[feature{kind, value}]; one.limits != nil {
				return one.limits
			}
			if limits, found := r.Overrides[value]; found {
				return limits
			}
		}
	}
	return r.Limits
}

// InLog reports whether the rule's limits are kept in a log, not in buckets.
func (r *Rule) InLog() bool {
	return len(r.Limits) > 0 && AlgorithmInLog(r.Limits[0].Algorithm)
}

// Leases reports whether the rule limits leases: its windows are as long as one.
func (r *Rule) Leases() bool {
	return len(r.Limits) > 0 && r.Limits[0].Algorithm == Concurrency
}

// HasLeases reports whether a rule of the event limits leases.
func (e *Event) HasLeases() bool {
	return slices.ContainsFunc(e.Rules, func(rule Rule) bool { return rule.Leases() })
}

// HasLeases reports whether a rule of an event limits leases.
func (r *Rules) HasLeases() bool {
	for _, event := range r.Events {
		if event.HasLeases() {
			return true
		}
	}
	return false
}

// List is a list of features: networks for the kind ip, values for others. The
// zero List is empty.
type List struct {
	Networks Networks
	Values   map[string]bool
}

// Empty reports whether nothing is on the list.
func (l List) Empty() bool { return len(l.Networks.sorted)+len(l.Values) == 0 }

// Strings returns the networks and then the values, each in order.
func (l List) Strings() []string {
	var all []string
	for _, network := range l.Networks.sorted {
		if network.IsSingleIP() {
			all = append(all, network.Addr().String())
		} else {
			all = append(all, network.String())
		}
	}
	return slices.AppendSeq(all, slices.Values(slices.Sorted(maps.Keys(l.Values))))
}

// holds reports whether the value of one of the kinds is on the list. An address
// is looked up as it is, and of NAT64 the IPv4 address inside, not by the network by which it is counted.
func (l List) holds(kinds []string, features Features, nat64 []netip.Prefix) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool {
		if kind != KindIP {
			return l.Values[features[kind]]
		}
		if len(l.Networks.sorted) == 0 {
			return false
		}
		network, err := ParseNetwork(features[kind])
		return err == nil && (l.Networks.containsAll(network) || l.Networks.containsAll(withoutNAT64(network, nat64)))
	})
}

// Listing says on which of a rule's lists a hit is.
type Listing uint8

// The listings of a hit.
const (
	Unlisted Listing = iota
	Allowed          // never limited, still counted
	Denied           // always denied, not counted
)

var listingNames = [...]string{Unlisted: "", Allowed: "allow", Denied: "deny"}

// String returns allow, deny, or nothing.
func (l Listing) String() string { return listingNames[l] }

// ParseListing undoes String.
func ParseListing(s string) (l Listing, ok bool) {
	at := slices.Index(listingNames[:], s)
	return Listing(max(at, 0)), at >= 0
}

// Listed returns on which list of the rule a hit with those features is, or what a temporary override says instead.
// Deny outranks Allow.
func (r *Rule) Listed(features Features) Listing {
	listing, _ := r.listed(features)
	return listing
}

// listed is Listed, and whether a temporary override says it.
func (r *Rule) listed(features Features) (listing Listing, overridden bool) {
	if len(r.exceptions) > 0 {
		if one, is := r.exceptionOf(features); is {
			return one.listing, true
		}
	}
	switch {
	case r.Deny.holds(r.Per, features, r.NAT64):
		return Denied, false
	case r.Allow.holds(r.Per, features, r.NAT64):
		return Allowed, false
	}
	return Unlisted, false
}

// CanonicalValue returns the value by which a feature of the rule's one kind is counted: the key of
// an override. The error is a *FeatureError.
func (r *Rule) CanonicalValue(value string) (string, error) { return r.canonicalOf(r.Per[0], value) }

// canonicalOf returns the value by which one of the rule's kinds is counted. The error is a *FeatureError.
func (r *Rule) canonicalOf(kind, value string) (string, error) {
	reason := textFault(kind, value)
	if r.Verbatim {
		reason = entryFault(kind, value)
	}
	if reason == "" && kind == KindIP && !r.Verbatim && !isHashed(value) {
		value, reason = canonicalIP(value, r.CountedPrefix(), r.NAT64...)
	}
	if reason != "" {
		return "", &FeatureError{Kind: kind, Index: -1, Reason: reason}
	}
	return value, nil
}

// CountedPrefix returns the bits by which IPv6 addresses are counted.
func (r *Rule) CountedPrefix() int {
	if r.IPv6Prefix == 0 {
		return DefaultIPv6Prefix
	}
	return r.IPv6Prefix
}

// Applied is a rule as it applies to a hit.
type Applied struct {
	Rule    *Rule
	Counter Counter // on which it decides
	ID      string  // the counter's
	Listing Listing // on which list of the rule the hit is
	// Overridden: a temporary override holds instead of the rule's lists, and has set Listing. See Overrides.
	Overridden bool
}

// Apply appends the rules of the event that apply to a hit with those features, in
// their order. Where none does, the error names the kinds wanted. Errors wrap
// ErrInvalid; that of a nil Event, which the rules do not have, is ErrUnknownEvent.
func (e *Event) Apply(list []Applied, features Features) ([]Applied, error) {
	if e == nil {
		return list, ErrUnknownEvent
	}
	if e.Matcher != nil {
		return e.match(list, features)
	}
	features, address, err := features.counted()
	if err != nil {
		return list, err
	}
	before := len(list)
	for i := range e.Rules {
		rule := &e.Rules[i]
		if !rule.Applies(features) {
			continue
		}
		a := Applied{Rule: rule}
		a.Listing, a.Overridden = rule.listed(features)
		if n := len(list); n > before && slices.Equal(list[n-1].Rule.Per, rule.Per) {
			a.Counter, a.ID = list[n-1].Counter, list[n-1].ID
		} else {
			if a.Counter, a.ID, err = e.counter(rule.Per, features, address); err != nil {
				return list, err
			}
		}
		list = append(list, a)
	}
	if len(list) == before {
		return list, &FeatureError{Index: -1, Reason: e.wanted()}
	}
	return list, nil
}

// maxWanted bounds the combinations of kinds that an error names.
const maxWanted = 16

// wanted says with which features a hit could be decided.
func (e *Event) wanted() string {
	if len(e.Rules) == 0 {
		return fmt.Sprintf("%s has no limits: it is counted, not decided", e.Name)
	}
	var combinations []string
	for _, rule := range e.Rules {
		per := strings.Join(rule.Per, " and ")
		if slices.Contains(combinations, per) {
			continue
		}
		if len(combinations) == maxWanted {
			combinations = append(combinations, "others")
			break
		}
		combinations = append(combinations, per)
	}
	return fmt.Sprintf("no limit of %s is per the features given: wanted are %s", e.Name, strings.Join(combinations, ", or "))
}

// Kinds returns the kinds that the event's rules name, sorted.
func (e *Event) Kinds() []string {
	kinds := make(map[string]bool)
	for _, rule := range e.Rules {
		for _, kind := range rule.Per {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// Example returns the rules that counterd has without a rules file: one event,
// url_shorten, per ip 2/s, 5/m, 10/h and 100/d.
func Example() *Rules {
	return &Rules{Events: map[string]*Event{"url_shorten": {
		Name: "url_shorten",
		Rules: []Rule{{Per: []string{KindIP}, Limits: []Limit{
			{Name: "ip-2-per-1s", N: 2, Window: time.Second},
			{Name: "ip-5-per-1m", N: 5, Window: time.Minute},
			{Name: "ip-10-per-1h", N: 10, Window: time.Hour},
			{Name: "ip-100-per-24h", N: 100, Window: 24 * time.Hour},
		}}},
	}}}
}
