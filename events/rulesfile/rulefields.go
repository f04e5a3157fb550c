package rulesfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
)

// ruleFields is a rule as it is written in a file: with the places of its fields,
// for what can only be judged when all of it has been read.
type ruleFields struct {
	events.Rule
	at        place
	fields    map[string]place
	knownPer  bool           // whether Per is what was meant
	algorithm string         // of Limits; empty: the default
	calendar  *time.Location // of Limits; nil: none
	burst     int64          // of Limits that are token buckets
	lease     time.Duration

	rates      []rateField   // of Limits
	overridden [][]rateField // of each of Overrides
	overrides  map[string]place
}

// The words of the file, each at the place of what it stands for.
var (
	countNames     = namesOf(events.CountAdmitted, events.CountAll)
	precisionNames = namesOf(events.Second, events.Minute, events.Hour)
	onErrorNames   = namesOf(events.OnErrorAllow, events.OnErrorDeny, events.OnErrorLocal)
	headerNames    = namesOf(events.HeaderRateLimit, events.HeaderXRateLimit, events.HeaderNone)
)

func namesOf[T fmt.Stringer](values ...T) []string {
	var names []string
	for _, value := range values {
		names = append(names, value.String())
	}
	return names
}

// ruleReader reads the fields of one rule.
type ruleReader struct{ *reader }

func (r ruleReader) rule(at place) *ruleFields {
	rule := &ruleFields{at: at, fields: r.fields(at, "per", "rate", "concurrent", "lease", "name", "ipv6_prefix", "overrides",
		"algorithm", "burst", "queue", "calendar", "allow", "deny", "throttle", "count", "precision", "on_error", "shadow")}
	f := rule.fields
	rule.Place = fmt.Sprintf("line %d: %s", at.node.Line, at.path)
	r.required(rule)
	rule.knownPer = r.per(rule)
	name := r.name(f["name"])
	rule.IPv6Prefix = r.number(f["ipv6_prefix"], 1, 128)
	rule.NAT64 = r.nat64
	rule.Throttle = r.throttle(f["throttle"])
	rule.Count = choice[events.Count](r.reader, f["count"], countNames)
	rule.Precision = choice[events.Precision](r.reader, f["precision"], precisionNames)
	rule.OnError = choice[events.OnError](r.reader, f["on_error"], onErrorNames)
	rule.Shadow = r.boolean(f["shadow"])
	rule.algorithm = r.algorithm(f["algorithm"])
	r.bucket(rule)
	r.calendar(rule)
	r.leases(rule)
	rule.rates = r.limits(rule, f["rate"], f["concurrent"])
	rule.Limits = limitsOf(rule.rates)
	if rule.knownPer {
		r.prefixWanted(rule)
		r.overrides(rule)
		r.lists(rule)
		r.nameLimits(rule, name)
	}
	r.checkPrecision(rule)
	r.checkLog(rule)
	r.checkSoft(rule)
	return rule
}

func (r ruleReader) required(rule *ruleFields) {
	if !r.readable(rule.at) {
		return
	}
	if !rule.fields["per"].given() {
		r.fault(rule.at, "per is missing: it names the kinds that are counted, as in per: ip; per: [] is the whole event")
	}
	if !rule.fields["rate"].given() && !rule.fields["concurrent"].given() && !rule.fields["lease"].given() {
		r.fault(rule.at, "rate is missing: it says how many, as in rate: 5/m")
	}
}

// per reads the kinds, and reports whether they are known.
func (r ruleReader) per(rule *ruleFields) bool {
	at := rule.fields["per"]
	if !at.given() {
		return false
	}
	items := r.items(at)
	if len(items) > events.MaxFeatureKinds {
		r.fault(at, "%d kinds together, at most %d are taken", len(items), events.MaxFeatureKinds)
		return false
	}
	for _, item := range items {
		kind, ok := r.text(item)
		switch {
		case !ok:
			continue
		case !events.ValidKind(kind):
			r.fault(item, "%s", kindFault)
		case slices.Contains(rule.Per, kind):
			r.fault(item, "the kind %s is there twice: leave one out", kind)
		}
		rule.Per = append(rule.Per, kind)
	}
	slices.Sort(rule.Per)
	return r.sound(at)
}

// maxConcurrent is the most leases at a time: far more than a log has room for.
const maxConcurrent = 1000

// leases reads what makes a rule one of leases: concurrent and lease imply the algorithm.
func (r ruleReader) leases(rule *ruleFields) {
	named, concurrent, lease := rule.fields["algorithm"], rule.fields["concurrent"], rule.fields["lease"]
	if rule.algorithm != events.Concurrency && !concurrent.given() && !lease.given() {
		return
	}
	switch {
	case named.given() && rule.algorithm != events.Concurrency && r.sound(named):
		r.fault(named, "concurrent and lease are of the algorithm concurrency: leave the algorithm out")
	case !concurrent.given():
		r.fault(rule.at, "concurrent is missing: it says how many leases there are at a time, as in concurrent: 3; a limit of another kind has no lease")
	case !lease.given():
		r.fault(rule.at, "lease is missing: it says after how long a lease ends that is not released, as in lease: 30s")
	}
	for _, key := range []string{"rate", "burst", "queue"} {
		if at := rule.fields[key]; at.given() {
			r.fault(at, "a limit of leases has no %s: leave it out, or make it a limit of its own", key)
		}
	}
	rule.algorithm, rule.burst = events.Concurrency, 0
	if !lease.given() {
		return
	}
	if text, ok := r.text(lease); ok {
		length, err := events.ParseDuration(text)
		switch {
		case err != nil:
			r.fault(lease, "a lease: %s", reason(err))
		case length > maxLease:
			r.fault(lease, "a lease is at most %s", events.FormatDuration(maxLease))
		default:
			rule.lease = length
		}
	}
}

// maxLease is the longest lease.
const maxLease = 24 * time.Hour

// limits reads rates, or a number of leases.
func (r ruleReader) limits(rule *ruleFields, rate, concurrent place) []rateField {
	if rule.algorithm != events.Concurrency {
		return r.rates(rule, rate)
	}
	n := r.number(concurrent, 0, maxConcurrent)
	if rule.lease == 0 || !concurrent.given() || !r.sound(concurrent) {
		return nil
	}
	return []rateField{{events.Limit{N: int64(n), Window: rule.lease, Algorithm: rule.algorithm}, rule, concurrent}}
}

// rates reads one rate or a list of them: limits without names.
func (r ruleReader) rates(rule *ruleFields, at place) []rateField {
	if !at.given() {
		return nil
	}
	items := r.items(at)
	if len(items) == 0 && r.sound(at) {
		r.fault(at, "no rate is given: at least one is wanted, as in 5/m")
	}
	if len(items) > 1 && rule.burst > 0 {
		r.fault(items[1], "a %s has one rate: make a limit of its own of the other", rule.algorithm)
	}
	var limits []rateField
	windows := make(map[time.Duration]bool)
	for _, item := range items {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		limit, err := events.ParseRate(text)
		switch {
		case err != nil:
			r.fault(item, "%s", reason(err))
			continue
		case windows[limit.Window]:
			r.fault(item, "a second rate for the window of %s: the smaller decides alone, leave the other out", events.FormatDuration(limit.Window))
		}
		windows[limit.Window] = true
		limit.Algorithm, limit.Calendar, limit.Burst = rule.algorithm, rule.calendar, rule.burst
		_, unit, _ := strings.Cut(text, "/")
		if w := limit.Windows(); limit.Burst > 0 {
			r.checkBucket(rule, item, limit)
		} else if limit.Calendar != nil && !slices.Contains(calendarUnits, unit) {
			r.fault(item, "a calendar has the windows h, d, week and month, as in %d/month", limit.N)
		} else if w.Algorithm.Fault != nil && limit.Window >= rule.Precision.Length() {
			if fault := w.Algorithm.Fault(w.Length, int64(rule.Precision.Length()/time.Second), w.Zone); fault != "" {
				r.fault(item, "%s", fault)
			}
		}
		limits = append(limits, rateField{limit, rule, item})
	}
	return limits
}

// algorithm reads how the limits of a rule count. The default is the empty name.
func (r ruleReader) algorithm(at place) string {
	names := append(events.AlgorithmNames(), gcra)
	if at.given() && at.node.Value == fixedLog {
		r.warn(at, "%s is %s, in buckets: write algorithm: %s, or nothing beside a calendar; precision: minute or hour takes less memory", fixedLog, events.FixedWindow, events.FixedWindow)
		return events.FixedWindow
	}
	switch name := names[choice[uint8](r.reader, at, names)]; name {
	case events.DefaultAlgorithm:
		return ""
	case gcra:
		return events.TokenBucket
	default:
		return name
	}
}

const (
	// gcra is another name of a token bucket.
	gcra = "gcra"
	// fixedLog is a former algorithm, whose windows FixedWindow counts in buckets.
	fixedLog = "fixed-log"
)

// maxBucket is the largest rate and burst of a token bucket.
const maxBucket = 1_000_000

// bucket reads the burst or the queue of a rule, which imply its algorithm.
func (r ruleReader) bucket(rule *ruleFields) {
	burst, queue, named := rule.fields["burst"], rule.fields["queue"], rule.fields["algorithm"]
	implied := func(at place, name string) {
		if named.given() && r.sound(named) && rule.algorithm != name {
			r.fault(at, "it is for algorithm: %s, which it implies: leave one of them out", name)
		}
		rule.algorithm = name
	}
	switch {
	case burst.given() && queue.given():
		r.fault(queue, "a burst admits hits at once, and a queue has them wait: leave one of them out")
		fallthrough
	case burst.given():
		rule.burst = int64(max(r.number(burst, 1, maxBucket), 1))
		implied(burst, events.TokenBucket)
	case queue.given():
		rule.burst = int64(r.number(queue, 0, maxBucket)) + 1
		implied(queue, events.LeakyBucket)
	case rule.algorithm == events.TokenBucket:
		r.fault(named, "a token bucket wants its size: add burst, which says how many it admits at once, as in burst: 20")
	case rule.algorithm == events.LeakyBucket:
		r.fault(named, "a leaky bucket wants a queue: add queue, which says how many may wait for their turn, 0 for none")
	}
}

// checkBucket faults a rate that no token bucket can have.
func (r ruleReader) checkBucket(rule *ruleFields, at place, limit events.Limit) {
	switch {
	case limit.N < 1 || limit.N > maxBucket:
		r.fault(at, "the rate of a %s is 1 to %d", rule.algorithm, maxBucket)
	case limit.Span(rule.Throttle.Ceiling(limit.Burst)) > events.MaxWindow:
		r.fault(at, "an empty bucket of %d is full again after more than 30d: take a higher rate or a smaller one", rule.Throttle.Ceiling(limit.Burst))
	}
}

// calendarUnits are the windows of a rate that are units of a calendar.
var calendarUnits = []string{"h", "d", "week", "month"}

// calendar reads the time zone of the rule's calendar, which implies the algorithm.
func (r ruleReader) calendar(rule *ruleFields) {
	at := rule.fields["calendar"]
	if !at.given() {
		return
	}
	if rule.fields["concurrent"].given() || rule.fields["lease"].given() {
		r.fault(at, "a limit of leases has no calendar: leave it out, or make it a limit of its own")
		return
	}
	if rule.burst > 0 {
		r.fault(at, "a %s has no calendar: leave it out, or make it a limit of its own", rule.algorithm)
		return
	}
	name, ok := r.text(at)
	if !ok {
		return
	}
	zone, err := time.LoadLocation(name)
	// The zone of this machine is not that of others, and package time does not know leap seconds.
	if err != nil || name == "" || strings.EqualFold(name, "local") || strings.EqualFold(name, "localtime") || strings.HasPrefix(name, "right/") {
		r.fault(at, "the time zone database of this machine has no such zone: it is named like Europe/Berlin, America/New_York or UTC")
		return
	}
	rule.calendar = zone
	if given := rule.fields["algorithm"]; given.given() && rule.algorithm != events.FixedWindow && r.sound(given) {
		r.fault(given, "the windows of a calendar are fixed: leave the algorithm out, or make it fixed-window")
	}
	rule.algorithm = events.FixedWindow
}

func limitsOf(fields []rateField) []events.Limit {
	var limits []events.Limit
	for _, field := range fields {
		limits = append(limits, field.Limit)
	}
	return limits
}

// name reads the explicit name of a rule's limits. It can stand in a string of a
// structured header field as it is.
func (r ruleReader) name(at place) string {
	if !at.given() {
		return ""
	}
	name, ok := r.text(at)
	if ok && !validLimitName(name) {
		r.fault(at, `a name is 1 to %d printable ASCII characters, without " and \`, events.MaxLimitName)
	}
	return name
}

func validLimitName(name string) bool {
	for _, c := range name {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return name != "" && len(name) <= events.MaxLimitName
}

// nameLimits names the rule's limits, those of overrides too: by the kinds and
// the form (ip-5-per-1m), by the explicit name alone where there is one rate, or
// by it and the form (login-5-per-1m) where there are several.
func (r ruleReader) nameLimits(rule *ruleFields, explicit string) {
	base := explicit
	switch {
	case explicit != "":
	case len(rule.Per) == 0:
		base = "all"
	default:
		base = strings.Join(rule.Per, "+")
	}
	tooLong := false
	for _, limits := range rule.all() {
		for i := range limits {
			name, series := autoName(limits[i])
			limits[i].Name, limits[i].Series = base+"-"+name, base+"-"+series
			if explicit != "" && len(limits) == 1 {
				limits[i].Name, limits[i].Series = explicit, ""
			}
			tooLong = tooLong || len(limits[i].Name) > events.MaxLimitName
		}
	}
	if tooLong && r.sound(rule.fields["name"]) {
		r.fault(rule.naming(), "with its rate the limit's name has more than %d bytes: give a shorter name", events.MaxLimitName)
	}
}

// autoName returns what the automatic name of a limit has behind the kinds: its rate, of a bucket with the burst or the
// queue, or the number of leases. Leases of one counter are equally long. The series is the name without the numbers that
// an edit of the rate changes.
func autoName(l events.Limit) (name, series string) {
	rate := fmt.Sprintf("%d-per-%s", l.N, l.WindowName())
	switch l.Algorithm {
	case events.Concurrency:
		return fmt.Sprintf("%d-concurrent", l.N), "concurrent"
	case events.TokenBucket:
		return fmt.Sprintf("%s-burst-%d", rate, l.Burst), "burst"
	case events.LeakyBucket:
		return fmt.Sprintf("%s-queue-%d", rate, l.Burst-1), "queue"
	default:
		return rate, "per-" + l.WindowName()
	}
}

// naming returns the place that gives the rule's limits their names.
func (rule *ruleFields) naming() place {
	if name := rule.fields["name"]; name.given() {
		return name
	}
	return rule.fields["per"]
}

// all returns the rule's limits and each of its overrides', by value.
func (rule *ruleFields) all() [][]events.Limit {
	lists := [][]events.Limit{rule.Limits}
	for _, value := range slices.Sorted(maps.Keys(rule.Overrides)) {
		lists = append(lists, rule.Overrides[value])
	}
	return lists
}

// windows returns the shortest and the longest window of the rule, 0 where no
// rate could be read.
func (rule *ruleFields) windows() (shortest, longest time.Duration) {
	if rule.algorithm == events.Concurrency {
		return 0, 0 // a lease is none
	}
	for _, limits := range rule.all() {
		for _, limit := range limits {
			if limit.Burst > 0 {
				continue // it has none
			}
			if shortest == 0 || limit.Window < shortest {
				shortest = limit.Window
			}
			longest = max(longest, limit.LongestWindow())
		}
	}
	return shortest, longest
}

func (r ruleReader) throttle(at place) events.Throttle {
	if !at.given() {
		return events.Throttle{}
	}
	text, ok := r.text(at)
	if !ok {
		return events.Throttle{}
	}
	throttle, reason := parseThrottle(text)
	if reason != "" {
		r.fault(at, "%s", reason)
	}
	return throttle
}

// parseThrottle undoes Throttle.String, or says what is wrong. The % may be left out.
func parseThrottle(s string) (t events.Throttle, reason string) {
	switch s {
	case "hard":
		return events.Throttle{}, ""
	case "elastic":
		return events.Throttle{Kind: events.Elastic}, ""
	}
	kind, amount, _ := strings.Cut(s, " ")
	digits := strings.TrimSuffix(strings.TrimSpace(amount), "%")
	if kind != "soft" || digits == "" {
		return events.Throttle{}, "a throttle is hard, soft N% as in soft 10%, or elastic"
	}
	p, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || p < 1 || p > events.MaxSoftPercent {
		return events.Throttle{}, "the percentage of soft is a whole number from 1 to " + strconv.Itoa(events.MaxSoftPercent)
	}
	return events.Throttle{Kind: events.Soft, Percent: int64(p)}, ""
}

func (r ruleReader) prefixWanted(rule *ruleFields) {
	if at := rule.fields["ipv6_prefix"]; at.given() && !slices.Contains(rule.Per, events.KindIP) {
		r.fault(at, "it is for addresses, and per names no ip: leave it out")
	}
}

func (r ruleReader) checkPrecision(rule *ruleFields) {
	at := rule.fields["precision"]
	if shortest, _ := rule.windows(); at.given() && shortest > 0 && rule.Precision.Length() > shortest {
		r.fault(at, "it is longer than the window of %s: take a finer precision or a longer window", events.FormatDuration(shortest))
	}
}

// checkSoft warns of a percentage that is less than one event of each limit.
func (r ruleReader) checkSoft(rule *ruleFields) {
	largest := int64(0)
	for _, limits := range rule.all() {
		for _, limit := range limits {
			largest = max(largest, limit.Most())
		}
	}
	if rule.Throttle.Kind == events.Soft && largest > 0 && rule.Throttle.Ceiling(largest) == largest {
		const less = "%s admits no more than hard: it is less than one event of %d"
		r.warn(rule.fields["throttle"], less, rule.Throttle, largest)
	}
}

// checkLog faults what a log cannot do: it knows the moment of each hit, and only its own counter.
func (r ruleReader) checkLog(rule *ruleFields) {
	leases := rule.algorithm == events.Concurrency
	if !events.AlgorithmInLog(rule.algorithm) {
		return
	}
	if at := rule.fields["precision"]; at.given() && r.sound(at) {
		r.fault(at, "a %s has no precision: leave it out", rule.algorithm)
	}
	if rule.Throttle.Kind == events.Elastic {
		r.fault(rule.fields["throttle"], "elastic asks another counter, and a %s decides by its own alone: make it hard or soft, or the algorithm sliding-window", rule.algorithm)
	}
	if leases && rule.Count == events.CountAll {
		r.fault(rule.fields["count"], "a hit that is denied takes no lease: leave it out")
	}
	if leases && rule.OnError == events.OnErrorLocal {
		r.fault(rule.fields["on_error"], "nothing releases a lease that this process counts alone: make it allow or deny")
	}
}

// overrides reads the limits of single values, by canonical value.
func (r ruleReader) overrides(rule *ruleFields) {
	at := rule.fields["overrides"]
	if !at.given() {
		return
	}
	if len(rule.Per) != 1 {
		r.fault(at, "overrides are for rules per exactly one kind: leave them out, or make them a rule of their own")
		return
	}
	rule.Overrides, rule.overrides = make(map[string][]events.Limit), make(map[string]place)
	for _, entry := range r.entries(at, nobodys) {
		rates := r.limits(rule, entry.at, entry.at)
		if !r.sound(rule.fields["ipv6_prefix"]) {
			continue
		}
		value, err := rule.CanonicalValue(entry.key)
		if fault, is := errors.AsType[*events.FeatureError](err); is {
			r.fault(entry.name, "%s", fault.Reason)
			continue
		}
		if _, twice := rule.Overrides[value]; twice {
			r.fault(entry.name, "it is counted as one that is overridden already: leave one out")
			continue
		}
		rule.Overrides[value], rule.overrides[value] = limitsOf(rates), entry.name
		rule.overridden = append(rule.overridden, rates)
	}
}

// nobodys shows no key.
func nobodys(string) bool { return false }
