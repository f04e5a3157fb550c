// Package judge holds a log of answers to what the contract allows. It makes no call and reads no
// clock but that of a new log.
//
// From the log it knows what each counter held at any time, at least and at most. Each answer is
// held to these bounds.
package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/verify/contract"
)

// Case is a log, and what is known of the targets that it is of.
type Case struct {
	Log      *Log
	Findings *Findings
	Kills    []Kill        // in the order of time
	Timeout  time.Duration // a denied hit that took longer may not have been rolled back
	Skew     time.Duration // by which the targets' clocks may differ from that of the log
	Replicas int           // of each counter, at least 1
	Ours     bool          // all losses are known
	Alone    bool          // no other client calls
	Queued   bool          // the hits of one counter are decided in one queue: what fits is admitted
}

// judge is a case, and what is found out of it before it is judged.
type judge struct {
	Case
	*contract.Contract
	losses   losses
	counters []*counter
	givenUp  []int64 // of each entry, how many of its tries may have given up a replica
	marks    []mark  // of each entry
}

// mark is what the limits found out of an entry.
type mark struct {
	waits    bool // one had a reason to have it wait as long as it did
	vague    bool // of a lone caller: what one counts the log does not know to the last number
	repeated bool // it tells of what was so before
}

// Judge holds the whole log to the contract.
func (c Case) Judge() {
	entries := len(c.Log.entries)
	j := &judge{
		Case: c, Contract: c.Log.contract, losses: lossesOf(c.Kills, c.Log.Began),
		marks: make([]mark, entries), givenUp: make([]int64, entries),
	}
	for id, of := range c.Log.counters {
		j.counters = append(j.counters, &counter{judge: j, Counter: of, id: int32(id), shared: of.Name == "" && !c.Alone})
	}
	for i := range c.Log.entries {
		j.sort(int32(i))
	}
	j.sortResets()
	if j.Replicas > 1 {
		j.findGivenUp()
	}
	for _, k := range c.Log.looks {
		j.counters[k.Counter].looks = append(j.counters[k.Counter].looks, k)
	}
	for _, c := range j.counters {
		c.collect()
		for at, limit := range j.Limits {
			if slices.Contains(c.rules, limit.Index) {
				l := newLimitEval(c, limit, at)
				l.windows()
				l.answers()
			}
		}
		c.checkLooks()
	}
	j.finish()
}

// sort puts an entry to its counters.
func (j *judge) sort(i int32) {
	e := &j.Log.entries[i]
	j.Findings.count(e)
	user := j.user(*e)
	user.entries = append(user.entries, i)
	counters := user.Counters
	for r, id := range counters {
		c := j.counters[id]
		c.lone = user.Role == Quiet && c.Name != ""
		if !slices.Contains(c.rules, r) {
			c.rules = append(c.rules, r)
			c.all = c.all || j.Rules[r].CountAll
		}
		if !slices.Contains(counters[:r], id) && j.counts(e.Kind, c.Rule) { // else another rule has the same counter
			c.entries = append(c.entries, i)
		}
	}
	for at, l := range j.Limits {
		if e.Incomplete&(1<<at) != 0 {
			j.counters[counters[l.Index]].hurt = true
		}
	}
}

// counts reports whether calls of the kind count by the rule.
func (j *judge) counts(kind Kind, r contract.Rule) bool {
	if kind == Renew {
		return r.Leases
	}
	return kind <= Check || j.Increments(r)
}

func (j *judge) user(e Entry) *User { return j.Log.users[e.User] }

// blame adds a violation of a counter, with these entries.
func (j *judge) blame(v Violation, id int32, entries func() []int32, format string, args ...any) {
	name := j.Log.counters[id].Name
	v.Feature = &name
	if name == "" {
		name = "the whole event"
	}
	v.Text = name + ": " + fmt.Sprintf(format, args...)
	j.Findings.Add(v, func() []Event {
		for _, i := range slices.Compact(entries()) {
			event := j.Log.Event(j.Log.entries[i], j.Log.countsOf(i))
			if r, settled := j.Log.releases[i]; settled {
				event.Answer += fmt.Sprintf(", settled with %d from %s to %s", r.Cost, j.Log.At(r.Sent).Format(ClockLayout), j.Log.At(r.Answered).Format(ClockLayout))
			}
			v.Events = append(v.Events, event)
		}
		return v.Events
	})
}

func only(entries ...int32) func() []int32 { return func() []int32 { return entries } }

// finish counts the decisions that were known to the last number, and finds the denials with a later
// retry_after than any limit has a reason for.
func (j *judge) finish() {
	for n, e := range j.Log.entries {
		i, m := int32(n), j.marks[n]
		if j.user(e).Role == Quiet && e.Kind <= Check && e.Outcome <= Denied {
			j.Findings.Checked.Lone++
			if !m.vague && e.OnError == 0 {
				j.Findings.Checked.Predictions++
			}
		}
		if m.repeated {
			j.Findings.Excused.Repeated++
		}
		if e.Outcome != Denied || e.RetryAfter < 1 {
			continue
		}
		j.Findings.Checked.Waits++
		// A search for the moment that is cut short finds one that is late.
		if m.waits || e.RetryAfter == 1 || e.OnError != 0 || e.took() >= j.Timeout || j.losses.unsettled(e.Call) || j.losses.disturbed(e.Sent, e.Answered) {
			continue
		}
		j.blame(Violation{Check: RetryAfter}, j.user(e).Counters[0], only(i),
			"a cost of %d has a retry_after of %ds, and by the log it fits all limits a second before", e.Cost, e.RetryAfter)
	}
}
