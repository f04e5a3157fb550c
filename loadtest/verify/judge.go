package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// Excused counts what the targets do not promise, and what is not held against them.
type Excused struct {
	OnError        int64 `json:"on_error"`        // hits admitted without asking a store: they are in no window
	Windows        int64 `json:"windows"`         // that held more than their limit, after a loss that was said
	MostBeyond     int64 `json:"most_beyond"`     // the most that one of them held beyond it
	LowCounts      int64 `json:"low_counts"`      // that lack what was counted before a loss
	AtResets       int64 `json:"at_resets"`       // hits that were under way while their counter was reset: they are in no window of it
	AfterResets    int64 `json:"after_resets"`    // windows that held more than their limit, by no more than was under way at a reset
	Late           int64 `json:"late"`            // denials beside a late increment, which say to come again as they would have before it
	HighCounts     int64 `json:"high_counts"`     // that hold what may have been counted, or twice
	Overshoot      int64 `json:"overshoot"`       // denials for the sake of hits that were denied themselves
	Repeated       int64 `json:"repeated"`        // denials that say what was so when the same target denied the same, in the same second, before another admitted something
	Unpredicted    int64 `json:"unpredicted"`     // features without predictions after a loss or an unknown outcome
	UnknownOutcome int64 `json:"unknown_outcome"` // calls that may have been counted
	Refused        int64 `json:"refused"`         // calls of which nothing was done
}

// Checked is how much was held to the contract.
type Checked struct {
	Windows     int64 `json:"windows"`     // ends of windows that were summed
	Denials     int64 `json:"denials"`     // each by each limit that denies
	Counts      int64 `json:"counts"`      // of counts, history's buckets and of decisions
	Bodies      int64 `json:"bodies"`      //
	Headers     int64 `json:"headers"`     //
	Waits       int64 `json:"waits"`       // of denials, what they say when to come again
	Predictions int64 `json:"predictions"` // decisions that were known beforehand, to the last number
	Retries     int64 `json:"retries"`     // hits that came when retry_after was over
	Early       int64 `json:"early"`       // and before it was
}

// judge is what is needed to judge a log.
type judge struct {
	contract *contract
	users    *users
	log      *log
	findings *findings
	event    func(i int32) Event // an entry as the report has it
	lookOf   func(k look) Event
	began    time.Time
	losses   []loss
	timeout  int64 // nanoseconds: a denied hit that took longer may not have been rolled back

	ours     bool // all losses are known
	alone    bool // no other client calls
	copies   int
	lines    bool // the hits of one counter stand in one line: what fits is admitted
	excused  Excused
	checked  Checked
	counters []counter
	of       [][]int32 // the entries of each counter
	rules    [][]int   // the rules of each counter
	hurt     []bool    // counters of which a loss was said
	resets   [][]reset // of each counter
	reasons  []bool    // entries that a limit had a reason to keep waiting as long as it did
}

// judge holds the whole log to the contract.
func (j *judge) judge() {
	j.counters = j.users.allCounters()
	j.of, j.rules, j.hurt = make([][]int32, len(j.counters)), make([][]int, len(j.counters)), make([]bool, len(j.counters))
	j.sortResets()
	j.reasons = make([]bool, len(j.log.entries))
	for i := range j.log.entries {
		j.sort(int32(i))
	}
	looks := make([][]look, len(j.counters))
	for _, k := range j.log.looks {
		looks[k.counter] = append(looks[k.counter], k)
	}
	for id := range j.counters {
		c := j.logOf(id)
		for _, i := range j.limitsOf(id) {
			j.windows(c, i)
			j.denials(c, i)
			j.standing(c, i)
			j.waits(c, i)
		}
		j.looks(c, looks[id])
	}
	j.tooLong()
	j.predict()
}

// sort puts an entry to its counters.
func (j *judge) sort(i int32) {
	e := &j.log.entries[i]
	switch {
	case e.outcome == unknown:
		j.excused.UnknownOutcome++
	case e.outcome == refused:
		j.excused.Refused++
	case e.outcome == admitted && e.onError != 0 && e.kind != check:
		j.excused.OnError++
	}
	who := j.users.who(e.who)
	for r, id := range who.counters {
		if !slices.Contains(j.rules[id], r) {
			j.rules[id] = append(j.rules[id], r)
		}
		if slices.Contains(who.counters[:r], id) {
			continue // another rule with the same counter
		}
		j.of[id] = append(j.of[id], i)
	}
	for l := range j.contract.limits {
		if e.incomplete&(1<<l) != 0 {
			j.hurt[who.counters[j.contract.limits[l].rule]] = true
		}
	}
}

func (j *judge) limitsOf(id int) (list []int) {
	for i, l := range j.contract.limits {
		if slices.Contains(j.rules[id], l.rule) {
			list = append(list, i)
		}
	}
	return list
}

// losable reports whether counts may be gone: where counters have one copy and servers may
// die. What is said to be incomplete is excused then, and only then.
func (j *judge) losable() bool { return !j.ours || len(j.losses) > 0 && j.copies == 1 }

// disturbed reports whether a server was away, or not repaired, at some time between those.
func (j *judge) disturbed(from, to int64) bool {
	return slices.ContainsFunc(j.losses, func(l loss) bool { return l.killed <= to && (l.repaired == 0 || from <= l.repaired) })
}

// windows finds those of a limit that held more than it admits, by stamps.
func (j *judge) windows(c *counterLog, at int) {
	l := j.contract.limits[at]
	if !j.contract.bounded(l) {
		return
	}
	segments := make([][]int32, len(c.resets)+1)
	for _, i := range c.entries {
		e := j.log.entries[i]
		if e.kind > batch || e.outcome != admitted || e.onError&(1<<at) != 0 {
			continue
		}
		n, whole := c.segment(e)
		if !whole {
			j.excused.AtResets++
			continue
		}
		segments[n] = append(segments[n], i)
	}
	for _, entries := range segments {
		if j.overfullOf(c, at, entries) {
			return // the others are mostly the same hits
		}
	}
}

// overfullOf finds the windows of those hits, which no reset has parted, that held more than a
// limit admits. It reports whether there is one that is not excused.
func (j *judge) overfullOf(c *counterLog, at int, entries []int32) bool {
	l := j.contract.limits[at]
	var all, strict exactlog.Log
	var strictAt []int32
	slices.SortStableFunc(entries, func(a, b int32) int { return cmp.Compare(j.log.entries[a].stamp, j.log.entries[b].stamp) })
	for _, i := range entries {
		e := j.log.entries[i]
		all.Add(e.stamp, int64(e.cost))
		if !j.losable() || !j.excuses(e, at) {
			strict.Add(e.stamp, int64(e.cost))
			strictAt = append(strictAt, i)
		}
	}
	j.checked.Windows += int64(all.Len())
	step := j.contract.ruleOf(l).step
	for w := range strict.Overfull(l.ceiling, l.length, step) {
		if w.Sum > l.ceiling+c.robbed(j.log.entries[strictAt[w.First]].sent) {
			j.overfull(c, l, w, strictAt)
			return true
		}
		j.excused.AfterResets++
	}
	for w := range all.Overfull(l.ceiling, l.length, step) {
		if j.ours && w.Sum > l.ceiling*(1+j.lossesWithin(w.From, w.To))+c.robbed(j.log.entries[entries[w.First]].sent) {
			j.overfull(c, l, w, entries)
			return true
		}
		j.excused.Windows++
		j.excused.MostBeyond = max(j.excused.MostBeyond, w.Sum-l.ceiling)
	}
	return false
}

// noticing is how long after its return a process may not know that a server has lost what
// it had, where it does not speak the meta commands: a second from its next connection.
const noticing = 4 * time.Second

// excuses reports whether an entry was decided while it was said, or not known yet, that a
// limit's counter had lost something.
func (j *judge) excuses(e entry, at int) bool {
	return e.incomplete&(1<<at) != 0 || j.unsettled(e)
}

// unsettled reports whether a server was away during a call, or had just come back.
func (j *judge) unsettled(e entry) bool {
	return slices.ContainsFunc(j.losses, func(l loss) bool {
		return l.killed <= e.answered && e.sent <= l.back+nanoseconds(noticing)
	})
}

// lossesWithin returns how often counts may have begun again within a window.
func (j *judge) lossesWithin(from, to int64) (n int64) {
	for _, l := range j.losses {
		if j.second(l.killed) <= to+grace && j.second(l.back) >= from-grace {
			n++
		}
	}
	return n
}

func (j *judge) second(at int64) int64 { return j.began.Add(time.Duration(at)).Unix() }

func (j *judge) overfull(c *counterLog, l limit, w exactlog.Window, at []int32) {
	v := Violation{
		Check: CheckWindows, Feature: j.feature(c.id), Limit: l.name,
		Text: fmt.Sprintf("%s: %d admitted in the %s of %s, and %s admits %d", j.name(c.id), w.Sum, l.window, w, l.name, l.ceiling),
	}
	for _, i := range at[w.First:w.Last] {
		v.Events = append(v.Events, j.event(i))
	}
	j.findings.add(v)
}

// feature returns how answers spell the feature of a counter.
func (j *judge) feature(id int) *string { return &j.counters[id].name }

// name returns the counter's name in a sentence.
func (j *judge) name(id int) string {
	if j.counters[id].whole {
		return "the whole event"
	}
	return j.counters[id].name
}

// denials finds the denials that no limit had a reason for: with all that may have been counted
// before the answer, there was room.
func (j *judge) denials(c *counterLog, at int) {
	l := j.contract.limits[at]
	if c.shared {
		return
	}
	var asked []int32
	var questions []question
	var times []int64
	for _, i := range c.entries {
		e := j.log.entries[i]
		if e.outcome != denied || e.denies&^e.onError&(1<<at) == 0 || int64(e.cost) > l.ceiling {
			continue
		}
		from, to := j.contract.windowAt(l, e.stamp)
		asked = append(asked, i)
		questions, times = append(questions, question{e.answered, from, to}), append(times, e.sent)
	}
	j.checked.Denials += int64(len(asked))
	most, overshoot := c.most(questions, times), c.inTheWay(j, asked)
	for k, i := range asked {
		e := j.log.entries[i]
		room := l.ceiling - int64(e.cost)
		if c.all && e.kind != check {
			most[k] -= int64(e.cost) // its own
		}
		if most[k] > room {
			continue
		}
		role := j.users.who(e.who).role
		if most[k]+overshoot[k] > room && !(j.lines && role == burst) {
			j.excused.Overshoot++
			continue
		}
		j.unjust(c, l, i, most[k])
	}
}

// remembered is how long a denial is.
const remembered = time.Second

func (j *judge) unjust(c *counterLog, l limit, i int32, most int64) {
	e := j.log.entries[i]
	v := Violation{
		Check: CheckDenials, Feature: j.feature(c.id), Limit: l.name,
		Text: fmt.Sprintf("%s: a cost of %d is denied, and at most %d of %d were counted in the %s before", j.name(c.id), e.cost, most, l.ceiling, l.window),
	}
	if j.findings.passes(v) {
		return
	}
	for _, k := range c.entries {
		o := j.log.entries[k]
		if o.sent < e.answered && o.stamp > e.stamp-l.length && o.stamp <= e.stamp+grace && (o.outcome != denied || c.all) && o.kind != check || k == i {
			v.Events = append(v.Events, j.event(k))
		}
	}
	j.findings.add(v)
}

// standing holds the counts in the answers to admitted hits to the log: they are no less
// than what had been acknowledged before.
func (j *judge) standing(c *counterLog, at int) {
	l := j.contract.limits[at]
	var asked []int32
	var questions []question
	var times []int64
	for _, i := range c.entries {
		e := j.log.entries[i]
		if e.kind > batch || e.outcome != admitted || e.onError&(1<<at) != 0 || j.losable() && j.excuses(e, at) {
			continue
		}
		asked = append(asked, i)
		from, to := outward(e.stamp-l.length+1, e.stamp, j.contract.ruleOf(l).step)
		questions, times = append(questions, question{e.sent, from, to}), append(times, e.answered)
	}
	j.checked.Counts += int64(len(asked))
	for k, least := range j.least(c, questions, times) {
		e, i := j.log.entries[asked[k]], asked[k]
		if got := j.log.countsOf(i)[at]; got < least+int64(e.cost) {
			j.findings.add(Violation{
				Check: CheckCounts, Feature: j.feature(c.id), Limit: l.name, Events: []Event{j.event(i)},
				Text: fmt.Sprintf("%s: a hit is told of %d in %s, and with it there are at least %d in the log", j.name(c.id), got, l.window, least+int64(e.cost)),
			})
		}
	}
}

// looks holds counts and histories to the log.
func (j *judge) looks(c *counterLog, looks []look) {
	before, after := make([]question, len(looks)), make([]question, len(looks))
	sent, answered := make([]int64, len(looks)), make([]int64, len(looks))
	for i, k := range looks {
		sent[i], answered[i] = k.sent, k.answered
		before[i] = question{k.sent, k.from, k.to}
		after[i] = question{k.answered, k.from, k.to}
	}
	j.checked.Counts += int64(len(looks))
	least, most := j.least(c, before, answered), c.most(after, sent)
	underWay := c.underWay(before, after)
	told, begun := sumsOf(c.acknowledged(false), before), sumsOf(c.acknowledged(true), after)
	for i, k := range looks {
		most := most[i] + underWay[i]
		if c.shared {
			most = math.MaxInt64
		}
		switch {
		case k.count < least[i] && !j.ours && j.hurt[c.id]:
			j.excused.LowCounts++
		case k.count < least[i] || k.count > most:
			j.miscounted(c, k, least[i], most)
		case len(c.resets) > 0: // the reset may have forgotten what came before
		case k.count < told[i]:
			j.excused.LowCounts++
		case k.count > begun[i] && underWay[i] == 0:
			j.excused.HighCounts++
		}
	}
}

func (j *judge) miscounted(c *counterLog, k look, least, most int64) {
	what := "a count"
	if k.bucket {
		what = "a bucket of the history"
	}
	want := fmt.Sprint(least)
	if most != least {
		want = fmt.Sprintf("%d to %d", least, most)
	}
	v := Violation{
		Check: CheckCounts, Feature: j.feature(c.id), Events: []Event{j.lookOf(k)},
		Text: fmt.Sprintf("%s: %s of %s to %s is %d, and by the log it is %s", j.name(c.id), what,
			time.Unix(k.from, 0).UTC().Format(time.DateTime), time.Unix(k.to, 0).UTC().Format(time.DateTime), k.count, want),
	}
	if j.findings.passes(v) {
		return
	}
	for _, i := range c.entries {
		e := j.log.entries[i]
		unplaced := e.stamp == 0 && j.second(e.sent) <= k.to && j.second(e.answered) >= k.from
		underWay := e.sent < k.answered && e.answered > k.sent
		placed := (e.outcome != denied || c.all) && e.stamp >= k.from && e.stamp <= k.to
		if e.kind != check && (unplaced || underWay || placed) {
			v.Events = append(v.Events, j.event(i))
		}
	}
	j.findings.add(v)
}
