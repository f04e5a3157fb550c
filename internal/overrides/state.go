package overrides

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/counterd/counterd/events"
)

// maxRemovals is how many removals the store has at the most, the latest. They tell processes that do not know of them,
// such as one that was cut off from the store.
const maxRemovals = 100

// name names what an override is of. Each has one at a time.
type name struct{ event, kind, value string }

// hash names it among removals: these take the same room whatever they are of.
func (n name) hash() uint64 {
	if events.IsDomain(n.event) { // which may have slashes
		n.event = strconv.Quote(n.event)
	}
	return xxhash.Sum64String(n.event + "/" + n.kind + ":" + n.value) // no other event has a slash, no kind a colon
}

// record is an override as the store has it.
type record struct {
	Event   string   `json:"event"`
	Kind    string   `json:"kind"`
	Value   string   `json:"value"`
	Listing string   `json:"listing,omitempty"` // allow or deny; empty: Rates hold
	Rates   []string `json:"rates,omitempty"`
	Until   int64    `json:"until"` // Unix second
	Set     int64    `json:"set"`   // its stamp
	By      string   `json:"by,omitempty"`
}

func (r record) name() name { return name{r.Event, r.Kind, r.Value} }

// removal says that what was set of a name up to a stamp is not in force any more, though it may not have ended: it was
// removed, or replaced by what ends before it.
type removal struct {
	Of    uint64 `json:"of"`
	Set   int64  `json:"set"`
	Until int64  `json:"until"` // from then on it has ended
}

// state is what the store has of all overrides: a last-writer-wins map, so that states merge in any order.
type state struct {
	// Changed is the stamp of the last change, a Lamport clock in Unix milliseconds: each change has a stamp above all
	// that its process knows. It outlives the records, since logs remember the limits that judged them.
	Changed int64     `json:"changed"`
	Expires int64     `json:"expires"` // Unix second, of the item
	Records []record  `json:"records"`
	Removed []removal `json:"removed,omitempty"`
}

var errNoState = errors.New("overrides: a content that is no state")

const (
	// maxContent is the most bytes of a state: of the records, and of the removals.
	maxContent = MaxBytes + 8<<10
	// latestEnd is how far ahead an override may end by a clock that is ahead by as long as an override may hold.
	latestEnd = 2 * MaxTime
)

// parseState returns the state that the content holds, without records and removals that no process writes: another
// client of the server has written those. It reports whether there were none. The latest stamp that may be is that of a
// clock which is ahead by as long as an override may hold.
func parseState(content []byte, now time.Time) (s state, whole bool, err error) {
	if len(content) > maxContent {
		return state{}, false, errNoState
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return state{}, false, err
	}
	if !isStamp(s.Changed, now) || s.Expires > now.Add(kept+MaxTime).Unix() {
		return state{}, false, errNoState
	}
	n := len(s.Records) + len(s.Removed)
	s.Records = slices.DeleteFunc(s.Records, func(r record) bool { return !r.isValid(now) })
	s.Removed = slices.DeleteFunc(s.Removed, func(r removal) bool {
		return !isStamp(r.Set, now) || r.Until > now.Add(latestEnd).Unix()
	})
	for _, one := range s.Records {
		s.Changed = max(s.Changed, one.Set)
	}
	for _, one := range s.Removed {
		s.Changed = max(s.Changed, one.Set)
	}
	return s, len(s.Records)+len(s.Removed) == n, nil
}

// isStamp reports whether a process may have made the stamp.
func isStamp(stamp int64, now time.Time) bool {
	return stamp >= 0 && stamp <= now.Add(MaxTime).UnixMilli()
}

// isValid reports whether a process may have written the record, under some rules.
func (r record) isValid(now time.Time) bool {
	listing, known := events.ParseListing(r.Listing)
	rates := len(r.Rates)
	switch {
	case !r.isOfEvent() && !r.isOfDomain():
	case len(r.Value) > events.MaxValue || len(r.By) > events.MaxValue:
	case !isStamp(r.Set, now) || r.Until > now.Add(latestEnd).Unix():
	case !known || (listing == events.Unlisted) != (rates > 0) || rates > events.MaxOverrideRates:
	default:
		return len(r.override().Rates) == rates
	}
	return false
}

// isOfEvent reports whether the record can be of an event of the rules.
func (r record) isOfEvent() bool {
	return events.ValidName(r.Event) && events.ValidKind(r.Kind) && r.Value != ""
}

// isOfDomain reports whether the record can be of a domain of Envoy's configuration.
func (r record) isOfDomain() bool {
	_, err := events.ParseFeaturesOf(r.Event, []string{r.Kind + ":" + r.Value})
	return events.IsDomain(r.Event) && len(r.Event) <= events.MaxValue && !strings.Contains(r.Kind, ":") && err == nil
}

// content returns the state as the store has it. Equal states have equal contents.
func (s state) content() []byte {
	b, err := json.Marshal(s)
	if err != nil { // JSON has a form for all of it
		panic(err)
	}
	return b
}

// merge returns what both know, without what has ended.
func (s state) merge(other state, now time.Time) state {
	merged := state{Changed: max(s.Changed, other.Changed), Expires: max(s.Expires, other.Expires)}
	removed := make(map[uint64]removal)
	for _, one := range slices.Concat(s.Removed, other.Removed) {
		if was := removed[one.Of]; one.Until > now.Unix() {
			removed[one.Of] = removal{one.Of, max(was.Set, one.Set), max(was.Until, one.Until)}
		}
	}
	latest := make(map[name]record)
	for _, one := range slices.Concat(s.Records, other.Records) {
		was, known := latest[one.name()]
		if one.Until > now.Unix() && one.Set > removed[one.name().hash()].Set && (!known || compare(was, one) < 0) {
			latest[one.name()] = one
		}
	}
	merged.Records = slices.SortedFunc(maps.Values(latest), compareNames)
	merged.Removed = slices.SortedFunc(maps.Values(removed), func(a, b removal) int {
		return cmp.Or(-cmp.Compare(a.Set, b.Set), cmp.Compare(a.Of, b.Of))
	})
	merged.Removed = merged.Removed[:min(len(merged.Removed), maxRemovals)]
	return merged
}

func compareNames(a, b record) int {
	return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value))
}

// isTooLarge reports whether there are more records than Max, or they take more than MaxBytes.
func (s state) isTooLarge() bool {
	return len(s.Records) > Max || len(state{Records: s.Records}.content()) > MaxBytes
}

// cut returns the state with the records that were set last, as many as may be. There are more if processes set some
// that did not reach the same servers, or if another client wrote them.
func (s state) cut() state {
	slices.SortFunc(s.Records, func(a, b record) int { return cmp.Or(-cmp.Compare(a.Set, b.Set), compareNames(a, b)) })
	for s.Records = s.Records[:min(len(s.Records), Max)]; s.isTooLarge(); {
		s.Records = s.Records[:len(s.Records)-1]
	}
	slices.SortFunc(s.Records, compareNames)
	return s
}

// compare orders records of one name: the one that was set last is the highest. Of two with one stamp, of processes that
// did not know each other's, all processes choose the same.
func compare(a, b record) int {
	if order := cmp.Compare(a.Set, b.Set); order != 0 {
		return order
	}
	return bytes.Compare(state{Records: []record{a}}.content(), state{Records: []record{b}}.content())
}

// stamp returns the state with the stamp of a change.
func (s state) stamp(now time.Time) state {
	s.Changed = max(now.UnixMilli(), s.Changed+1)
	return s
}

// set returns the state with a record in place of that of its name.
func (s state) set(one record, now time.Time) state {
	next := s.stamp(now)
	one.Set = next.Changed
	change := state{Records: []record{one}}
	if was, found := s.find(one.name()); found && was.Until > one.Until {
		change.Removed = []removal{{one.name().hash(), was.Set, was.Until}}
	}
	return next.merge(change, now)
}

// remove returns the state without a record that it has.
func (s state) remove(one record, now time.Time) state {
	next := s.stamp(now)
	return next.merge(state{Removed: []removal{{one.name().hash(), next.Changed, one.Until}}}, now)
}

// hasEnded reports whether a record has ended, and at which Unix second the last of them did.
func (s state) hasEnded(now time.Time) (at int64, has bool) {
	for _, one := range s.Records {
		if one.Until <= now.Unix() {
			at, has = max(at, one.Until), true
		}
	}
	return at, has
}

// find returns the record of a name.
func (s state) find(of name) (one record, found bool) {
	at := slices.IndexFunc(s.Records, func(one record) bool { return one.name() == of })
	if at < 0 {
		return one, false
	}
	return s.Records[at], true
}

// overrides returns what has not ended, in the order of names.
func (s state) overrides(now time.Time) (all []events.Override) {
	for _, one := range s.Records {
		if one.Until > now.Unix() {
			all = append(all, one.override())
		}
	}
	return all
}

// epoch is a Unix millisecond before all stamps, of 1 January 2000: sums of two times are then small enough until 2060.
const epoch = 946_684_800_000

// revision returns that of the rules with the overrides. It rises if that of the rules does, and with each change.
func (s state) revision(rules *events.Rules) uint64 {
	return rules.Revision + events.RevisionOf(time.UnixMilli(s.Changed-epoch+1), 0)
}

// nameOf returns what the override is of.
func nameOf(o events.Override) name { return name{o.Event, o.Kind, o.Value} }

func recordFromOverride(o events.Override) record {
	return record{
		Event: o.Event, Kind: o.Kind, Value: o.Value, Listing: o.Listing.String(), Rates: o.FormatRates(),
		Until: o.Until.Unix(), By: o.By,
	}
}

func (r record) override() events.Override {
	o := events.Override{
		Event: r.Event, Kind: r.Kind, Value: r.Value, Until: time.Unix(r.Until, 0).UTC(), Set: time.UnixMilli(r.Set).UTC(), By: r.By,
	}
	o.Listing, _ = events.ParseListing(r.Listing)
	for _, text := range r.Rates {
		if rate, err := events.ParseRate(text); err == nil { // else no rule has such a window
			o.Rates = append(o.Rates, rate)
		}
	}
	return o
}
