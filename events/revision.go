package events

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// hashBits are the bits of a revision that are of a hash. Those above are the time of the last
// modification, in milliseconds.
const hashBits = 22

// Modified sets when the rules were modified last, as their file says: of two versions the one that
// was modified later is newer, in all processes, whenever they start. Rules that were only parsed
// were modified in 1970, and of two such versions the newer one is the one with the higher hash: so
// a program that has its rules as text, and shares logs, sets the time of the text. It is for rules
// that are in no use yet.
func (r *Rules) Modified(at time.Time) {
	r.setRevision(RevisionOf(at, r.Revision))
}

// RevisionOf returns the revision of rules that were modified at that time, with a part of a hash: as many of its lower
// bits as there is room for.
func RevisionOf(at time.Time, hash uint64) uint64 {
	time := uint64(min(max(at.UnixMilli(), 0), 1<<(64-hashBits)-1))
	return time<<hashBits | hash&(1<<hashBits-1)
}

// HashText gives rules that were read from that text a revision, of its hash. It is for rules that are
// in no use yet.
func (r *Rules) HashText(text []byte) { r.setRevision(xxhash.Sum64(text) >> (64 - hashBits)) }

// Hashed returns the rules with a revision, which rules that a program made lack.
func (r *Rules) Hashed() *Rules {
	if r.Revision != 0 {
		return r
	}
	hash := xxhash.New()
	next := *r
	next.Events = maps.Clone(r.Events)
	for _, event := range r.All() {
		copied := *event
		copied.Rules = slices.Clone(event.Rules)
		next.Events[event.Name] = &copied
		writeKept(hash, event)
	}
	next.setRevision(hash.Sum64() >> (64 - hashBits))
	return &next
}

// writeKept writes what decides how the event's counters are kept, in the same bytes in all
// processes: addresses are written as text, for they hold pointers.
func writeKept(w io.Writer, e *Event) {
	fmt.Fprintf(w, "%q %d\n", e.Name, e.Retention)
	for _, rule := range e.Rules {
		allow, deny := rule.Allow.Strings(), rule.Deny.Strings()
		rule.Allow, rule.Deny = List{}, List{}
		fmt.Fprintf(w, "%+v %q %q\n", rule, allow, deny)
		writeCalendars(w, "", rule.Limits)
		for _, value := range slices.Sorted(maps.Keys(rule.Overrides)) {
			writeCalendars(w, value, rule.Overrides[value])
		}
	}
}

// writeCalendars writes which limits have a calendar: one of UTC and none look alike.
func writeCalendars(w io.Writer, value string, limits []Limit) {
	for _, limit := range limits {
		if limit.Calendar != nil {
			fmt.Fprintf(w, "%q %q: %s\n", value, limit.Name, limit.Calendar)
		}
	}
}

// setRevision sets the revision of all rules.
func (r *Rules) setRevision(revision uint64) {
	r.Revision = revision
	for _, event := range r.Events {
		for i := range event.Rules {
			event.Rules[i].Revision = revision
		}
	}
}
