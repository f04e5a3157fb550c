package overrides

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/counterd/counterd/events"
)

// removedFor is how long the store has that an override was removed.
const removedFor = 24 * time.Hour

// name names what an override is of. Each has one at a time.
type name struct{ event, kind, value string }

// record is an override as the store has it, or that it was removed.
type record struct {
	Event   string   `json:"event"`
	Kind    string   `json:"kind"`
	Value   string   `json:"value"`
	Listing string   `json:"listing,omitempty"` // allow or deny; empty: Rates hold
	Rates   []string `json:"rates,omitempty"`
	Until   int64    `json:"until"` // Unix second
	Set     int64    `json:"set"`   // Unix millisecond, above that of the record that this one replaces
	By      string   `json:"by,omitempty"`
	Removed bool     `json:"removed,omitempty"`
}

func (r record) name() name { return name{r.Event, r.Kind, r.Value} }

// state is what the store has of all overrides: a map in which the record that was set last wins, so that states merge
// in any order.
type state struct {
	// Changed is the Unix millisecond in which the overrides in force changed last. It outlives the records: logs
	// that were judged by them remember it.
	Changed int64    `json:"changed"`
	Expires int64    `json:"expires"` // Unix second, of the item
	Records []record `json:"records"`
}

// read reads a state. What is none is an empty one, and an error.
func read(content []byte) (s state, err error) {
	if err := json.Unmarshal(content, &s); err != nil {
		return state{}, err
	}
	return s, nil
}

// content returns the state as read takes it; equal states have equal ones.
func (s state) content() []byte {
	b, err := json.Marshal(s)
	if err != nil { // it has nothing that JSON lacks
		panic(err)
	}
	return b
}

// merge returns what both know, at that time, without what has ended.
func (s state) merge(other state, now time.Time) state {
	merged := state{Changed: max(s.Changed, other.Changed), Expires: max(s.Expires, other.Expires)}
	latest := make(map[name]record)
	for _, one := range slices.Concat(s.Records, other.Records) {
		was, known := latest[one.name()]
		if !known || compare(was, one) < 0 {
			latest[one.name()] = one
		}
		merged.Changed = max(merged.Changed, one.Set)
	}
	for _, one := range latest {
		if one.Until > now.Unix() {
			merged.Records = append(merged.Records, one)
		} else if !one.Removed {
			merged.Changed = max(merged.Changed, one.Until*1000)
		}
	}
	slices.SortFunc(merged.Records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value))
	})
	return merged
}

// compare orders records of one name: the one that was set last is the highest. Of two that were set at once by
// processes that did not know each other's all processes choose the same.
func compare(a, b record) int {
	if order := cmp.Compare(a.Set, b.Set); order != 0 {
		return order
	}
	return bytes.Compare(state{Records: []record{a}}.content(), state{Records: []record{b}}.content())
}

// set adds a record that wins against what the state has of its name.
func (s *state) set(one record, now time.Time) {
	one.Set = now.UnixMilli()
	for _, was := range s.Records {
		if was.name() == one.name() {
			one.Set = max(one.Set, was.Set+1)
		}
	}
	*s = s.merge(state{Changed: one.Set, Records: []record{one}}, now)
}

// inForce returns the overrides of the state, in the order of their names.
func (s state) inForce() []Override {
	var all []Override
	for _, one := range s.Records {
		if !one.Removed {
			all = append(all, one.override())
		}
	}
	return all
}

// revision returns that of rules with the overrides: above that of rules that are older than the last change.
func (s state) revision(rules *events.Rules) uint64 {
	if s.Changed == 0 {
		return 0
	}
	hash := xxhash.New()
	_, _ = hash.Write(state{Records: s.Records}.content()) // it returns no error
	return events.RevisionOf(time.UnixMilli(s.Changed), hash.Sum64()^rules.Revision)
}

// listings are the names of listings in a record.
var listings = [...]string{events.Unlisted: "", events.Allowed: "allow", events.Denied: "deny"}

func (o Override) record() record {
	one := record{
		Event: o.Event, Kind: o.Kind, Value: o.Value, Listing: listings[o.Listing],
		Until: o.Until.Unix(), By: o.By,
	}
	for _, rate := range o.Rates {
		one.Rates = append(one.Rates, events.FormatRate(rate))
	}
	return one
}

func (r record) override() Override {
	o := Override{Event: r.Event, Until: time.Unix(r.Until, 0).UTC(), Set: time.UnixMilli(r.Set).UTC(), By: r.By}
	o.Kind, o.Value = r.Kind, r.Value
	o.Listing = events.Listing(max(slices.Index(listings[:], r.Listing), 0))
	for _, text := range r.Rates {
		if rate, err := events.ParseRate(text); err == nil { // else no rule has such a window
			o.Rates = append(o.Rates, rate)
		}
	}
	return o
}

// removed returns the record of a removal. It is kept for a day, for processes that do not know of it.
func (r record) removed(now time.Time) record {
	return record{
		Event: r.Event, Kind: r.Kind, Value: r.Value, Removed: true,
		Until: min(r.Until, now.Add(removedFor).Unix()),
	}
}
