package judge

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// counter is what was added to one counter, and so what it held at least and at most.
type counter struct {
	*judge
	Counter
	id      int32
	rules   []int   // that count by it
	entries []int32 // that called for it
	looks   []Look
	shared  bool // others may have added to it
	all     bool // it counts denied hits, too
	hurt    bool // a loss was said of it
	lone    bool // one client calls for it, each call when the one before was answered
	resets  resets

	sure   *series // all that was added, from when on an answer has to know it
	begun  *series // and from when on it may
	late   []Entry // increments of the past
	flight *flight
	freed  *series // of leases, what may have been released
	gone   *series // and what surely was; of hits, what they surely gave back
	strays []add   // what hits may have given back of others
}

// entry returns an entry with what it takes of this counter for a cost.
func (c *counter) entry(i int32) Entry {
	e := c.Log.entries[i]
	if e.Kind <= Check {
		e.Cost = int32(c.Rule.Charge(int64(e.Cost)))
	}
	return e
}

// collect finds out what was added.
func (c *counter) collect() {
	var adds, back []add
	var hits []Entry
	young := 0 // the first entry of the last seconds
	for n, i := range c.entries {
		e := c.entry(i)
		a := add{Call: e.Call, known: e.Answered, Times: c.stamped(e), late: e.Kind == Late}
		a.least, a.most = c.charge(e, i)
		a.told = a.least
		for c.entry(c.entries[young]).Answered < e.Sent-int64(identified) {
			young++
		}
		large := c.Rule.Log && 4*young+20*(n-young) > halfLog
		if c.all && large && e.Outcome == Denied {
			a.least, a.told = 0, 0
		}
		further, given := c.settled(e, i, &a, large)
		switch {
		case e.Kind == Late:
			a.known += int64(Closed)
		case c.lone && !c.isOvertaken(c.user(e), e): // what follows is sent later, or in its batch comes behind it
			a.known = e.Sent
		}
		left, maybe := c.left(e, i), a.most-a.least
		switch {
		case e.Stamp == 0:
			left.most -= maybe
		case left.most > 0:
			left.most, a.most = max(left.most, maybe), a.least
		}
		for _, some := range []add{a, left, further} {
			if some.most > 0 {
				adds = append(adds, some)
			}
		}
		if given.most > 0 {
			back = append(back, given)
		}
		if e.isHit() && e.Outcome <= Denied && !c.all { // of which nothing is rolled back
			hits = append(hits, e)
		}
		if e.Kind == Late && e.Outcome != Refused {
			c.late = append(c.late, e)
		}
	}
	c.sure, c.begun = newSeries(adds, true, func(a add) int64 { return a.known }), newSeries(adds, false, func(a add) int64 { return a.Sent })
	c.flight, c.gone = newFlight(hits), newSeries(back, true, func(a add) int64 { return a.known })
	c.collectReleases()
	for k := range c.resets {
		c.collectReset(&c.resets[k])
	}
}

const (
	// identified is for how long entries of a log take 15 to 21 bytes each, as a process that is late rewrites
	// it; later it is up to 4 bytes.
	identified = 10 * time.Second
	// halfLog is about half the bound of a log, beyond which hits that are denied are left out of it.
	halfLog = 7 << 10
)

// replaying is how long a hint may wait once it is due, which is twice the timeout after the add.
const replaying = int64(2 * time.Second)

// alone reports whether a replica that had something of an entry alone may have been killed.
func (l losses) alone(e Entry, timeout time.Duration) bool {
	return l.disturbed(e.Sent, e.Answered+2*int64(timeout)+replaying)
}

// charge returns what an entry added to the counter, at least and at most. Replicas of logs are merged by
// the identities of entries: none counts twice, and one that is void on a replica counts nothing.
func (c *counter) charge(e Entry, i int32) (least, most int64) {
	cost, failed, merged := int64(e.Cost), false, c.Rule.Log && c.Replicas > 1
	alone := c.givenUp[i] > 0 && c.losses.alone(e, c.Timeout)
	for i, l := range c.Limits {
		failed = failed || slices.Contains(c.rules, l.Index) && e.OnError&(1<<i) != 0
	}
	switch {
	case e.Kind == Check || e.Outcome == Refused:
		return 0, 0
	case e.Outcome == Unknown || failed:
		return 0, cost
	case e.Outcome == Denied && !c.all:
		// It is rolled back before it is answered, but not on a server that is away.
		if e.took() >= c.Timeout || e.OnError != 0 || c.losses.unsettled(e.Call) && !merged || merged && c.resets.beside(e.Call) {
			return 0, cost
		}
		return 0, 0
	case merged && alone:
		return 0, cost
	case merged:
	case c.Replicas > 1 && c.losses.disturbed(e.Sent, e.Answered):
		return cost, 2 * cost // a replica that was away may get it twice
	case alone:
		return 0, 2 * cost
	}
	return cost, cost
}

// least answers questions by what must have been added, and is not gone since: what was sent
// before a server was killed may be, where there is one replica, and before a reset was answered.
func (c *counter) least(questions []question) []int64 {
	asked := func(q question) (span, int64) { return q.least, c.keptSince(q.Answered) }
	sums := c.sure.sums(questions, asked, func(a add, moment int64) int64 {
		if a.Sent <= moment {
			return 0
		}
		return a.least
	})
	for i, q := range questions {
		sums[i] = max(sums[i]-c.resets.robbed(q.Answered)-c.strayed(q.Answered), 0)
		if !c.lone || len(c.late) == 0 {
			continue
		}
		for _, a := range c.sure.adds { // a target knows its own changes of the past at once
			if a.Target == q.Target && a.Sent < q.least.time && q.least.time <= a.known && a.Sent > c.keptSince(q.Answered) && a.First >= q.least.First && a.Last <= q.least.Last {
				sums[i] += a.least
			}
		}
	}
	return sums
}

// most answers questions by what may have been added at the most, and is not gone since.
func (c *counter) most(questions []question) []int64 {
	asked := func(q question) (span, int64) { return q.most, c.resets.goneBefore(q.Call, c.lone) }
	most := c.begun.sums(questions, asked, func(a add, moment int64) int64 {
		if a.Answered < moment {
			return 0
		}
		return a.most
	})
	for i, gone := range c.givenBack(questions) {
		most[i] -= gone
	}
	return most
}

// givenBack answers questions by what surely was given back, and is not gone since. A target repeats a denial
// for a while after another one has taken it in.
func (c *counter) givenBack(questions []question) []int64 {
	return c.gone.sums(questions, func(q question) (span, int64) {
		if q.most == (span{}) {
			return span{}, 0
		}
		known := q.Sent
		if q.denied && len(c.Log.targets) > 1 {
			known -= remembered
		}
		return span{known, q.most.Times}, c.resets.goneBefore(q.Call, c.lone)
	}, func(a add, moment int64) int64 {
		if a.Answered < moment {
			return 0
		}
		return a.least
	})
}

// keptSince returns since when what was sent is surely there, for an answer at that time: what
// was under way at a reset may have been forgotten, and a server loses what one replica had with it, to the last
// answer before it is dead.
func (c *counter) keptSince(answered int64) int64 {
	since := int64(-1)
	for _, r := range c.resets {
		if r.Sent < answered {
			since = max(since, r.Answered)
		}
	}
	for _, l := range c.losses {
		if c.Replicas == 1 && l.killed <= answered {
			since = max(since, l.dead)
		}
	}
	return since
}

// overshoot returns, of a denied hit, at most how much of others, that was rolled back, it can
// have counted. Each second's bucket is read once, and holds no more than was under way at that
// moment. A hit that is denied by overshoot tries again with a stamp of its own, so in which
// seconds it was for a moment its answer does not say. A log counts none that it denies itself, as one does that
// alone has all limits, and one replica.
func (c *counter) overshoot(e Entry) int64 {
	if c.Rule.Log && c.Replicas == 1 && len(c.rules) == len(c.Rules) {
		return 0
	}
	from := e.Sent - remembered
	if c.lone { // others are of the same batch
		from = e.Sent
	}
	total := c.flight.total(from, e.Answered)
	if e.Kind != Check && !c.all {
		total -= int64(e.Cost)
	}
	seconds := c.Log.second(e.Answered) - c.Log.second(from) + 1
	return min(total, seconds*c.flight.most(from, e.Answered))
}

// knows returns the time of whose adds the answer to an entry surely knows. A target repeats a denial
// for a while. A lone caller's it repeats for the same cost in the same second, of a log also beyond it, and
// until it has added something itself.
func (c *counter) knows(i int32) int64 {
	e := c.entry(i)
	switch {
	case e.Outcome != Denied:
		return e.Sent
	case !c.lone:
		return e.Sent - remembered
	case c.CountsAll(): // each denial is decided anew
		return e.Sent
	}
	since, entries := e.Sent, c.user(e).entries
	for _, k := range slices.Backward(entries[:slices.Index(entries, i)]) {
		switch o := c.entry(k); {
		case o.Target != e.Target || o.Kind == Check:
		case !c.Rule.Log && o.Stamp != e.Stamp, o.Answered < e.Sent-remembered, o.Outcome != Denied && !c.deniesBeside(c.user(o), o, e.Cost):
			return since
		case o.Cost == e.Cost:
			since = o.Sent
		}
	}
	return since
}

// deniesBeside reports whether the batch of an entry of the user has a denial of that cost, which is of after
// the batch.
func (c *counter) deniesBeside(u *User, o Entry, cost int32) bool {
	return c.beside(u, o, func(b Entry) bool { return b.Outcome == Denied && b.Cost == cost })
}

// isOvertaken reports whether an entry of the user met contention, so that others of its batch may have been
// decided before it.
func (c *counter) isOvertaken(u *User, o Entry) bool {
	return c.beside(u, o, func(b Entry) bool { return 0 < b.Stamp && b.Stamp < o.Stamp })
}

// beside reports whether there is such an entry in the batch of an entry of the user.
func (c *counter) beside(u *User, o Entry, such func(Entry) bool) bool {
	return o.Kind == Batch && slices.ContainsFunc(u.entries, func(k int32) bool {
		b := c.entry(k)
		return b.Kind == Batch && b.Client == o.Client && b.Answered == o.Answered && such(b)
	})
}

// which finds such entries.
func (c *counter) which(such func(i int32, e Entry) bool) func() []int32 {
	return func() (list []int32) {
		for _, i := range c.entries {
			if such(i, c.entry(i)) {
				list = append(list, i)
			}
		}
		return list
	}
}

// checkLooks holds counts and histories to the log.
func (c *counter) checkLooks() {
	var questions []question
	for _, k := range c.looks {
		questions = append(questions, question{Call: k.Call, least: span{k.Sent, k.Least}, most: span{k.Answered, k.Most}})
	}
	c.Findings.Checked.Counts += int64(len(c.looks))
	least, most := c.least(questions), c.most(questions)
	acknowledged := func(a add, _ int64) int64 { return a.least }
	told := c.sure.sums(questions, func(q question) (span, int64) { return q.least, 0 }, acknowledged)
	begun := c.begun.sums(questions, func(q question) (span, int64) { return q.most, 0 }, func(a add, _ int64) int64 { return a.told })
	for i, k := range c.looks {
		underWay := c.flight.total(k.Sent, k.Answered)
		most := most[i] + underWay
		if c.shared {
			most = unlimited
		}
		switch {
		case k.Count < least[i] && !c.Ours && c.hurt:
			c.Findings.Excused.LowCounts++
		case k.Count < least[i] || k.Count > most:
			c.miscounted(k, between(least[i], most))
		case len(c.resets) > 0: // the reset may have forgotten what came before
		case k.Count < told[i]:
			c.Findings.Excused.LowCounts++
		case k.Count > begun[i] && underWay == 0:
			c.Findings.Excused.HighCounts++
		}
	}
}

func (c *counter) miscounted(k Look, want string) {
	what := "a count"
	if k.Bucket {
		what = "a bucket of the history"
	}
	look := c.Log.Event(Entry{Call: k.Call, Kind: Count}, nil)
	look.Answer = fmt.Sprint("count ", k.Count)
	calls := []Event{look}
	for _, r := range c.resets {
		calls = append(calls, c.Log.Event(Entry{Call: r.Call, Kind: Forget, Outcome: r.outcome()}, nil))
	}
	c.blame(Violation{Check: Counts, Events: calls}, c.id, c.which(func(_ int32, e Entry) bool {
		from, to := k.Most.First/1000, k.Most.Last/1000
		unplaced := e.Stamp == 0 && c.Log.second(e.Sent) <= to && c.Log.second(e.Answered) >= from
		underWay := e.Sent < k.Answered && e.Answered > k.Sent
		placed := (e.Outcome != Denied || c.all) && e.Stamp >= from && e.Stamp <= to
		return e.Kind != Check && (unplaced || underWay || placed)
	}), "%s of %s to %s is %d, and by the log it is %s", what,
		time.UnixMilli(k.Most.First).UTC().Format(time.DateTime), time.UnixMilli(k.Most.Last).UTC().Format(time.DateTime), k.Count, want)
}

// unlimited is above every count.
const unlimited = math.MaxInt64

// between are the counts from the least to the most, in words.
func between(least, most int64) string {
	switch most {
	case least:
		return fmt.Sprint(least)
	case unlimited:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
