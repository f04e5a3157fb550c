package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// collectReleases finds out which leases may have been released, and since when, and which surely are. A
// target repeats a denial for a while after another one has released a lease. A replica that was away may not
// know of it. A renewal releases a lease, too; it is denied only if that has ended.
func (c *counter) collectReleases() {
	if !c.Rule.Leases {
		return
	}
	var freed, gone []add
	for _, i := range c.entries {
		r, released := c.Log.releases[i]
		e := c.entry(i)
		if e.Kind == Renew && e.Outcome == Denied && c.lone && !c.hurt && len(c.resets)+len(c.losses) == 0 {
			c.blame(Violation{Check: Answers}, c.id, only(i), "a lease is not renewed, and has not ended")
		}
		if !released || !e.takesLeases() {
			continue
		}
		a := add{Call: e.Call, Times: c.stamped(e), least: int64(e.Cost), most: int64(e.Cost)}
		a.known = r.Sent
		freed = append(freed, a)
		a.known = r.Answered
		if r.Done && e.Outcome == Admitted && !(c.Replicas > 1 && c.losses.alone(Entry{Call: r.Call}, c.Timeout)) {
			gone = append(gone, a)
		}
	}
	known := func(a add) int64 { return a.known }
	c.freed, c.gone = newSeries(freed, false, known), newSeries(gone, true, known)
}

// leaseLength returns how long the counter's leases last, in seconds.
func (c *counter) leaseLength() (length int64) {
	for _, l := range c.Limits {
		if l.Leases && slices.Contains(c.rules, l.Index) {
			length = l.Length
		}
	}
	return length
}

// leaseEval counts leases, which are windows as long as one, of hits that may be released.
type leaseEval struct{ *limitEval }

// least is of the leases that have surely not ended.
func (l leaseEval) least(questions []question) []int64 {
	live := l.counter.least(questions)
	released := l.freed.sums(questions, func(q question) (span, int64) {
		if q.least == (span{}) {
			return span{}, 0
		}
		return span{q.Answered, q.least.Times}, 0
	}, func(a add, _ int64) int64 { return a.most })
	for i := range live {
		live[i] = max(live[i]-released[i], 0)
	}
	return live
}

// overfull finds a moment at which more leases were live than the limit admits: of leases that had been answered,
// were not released yet, and had not ended by any clock.
func (l leaseEval) overfull(entries []int32) bool {
	type change struct {
		time  int64
		hit   int32
		ended bool
	}
	var changes []change
	for _, i := range entries {
		e := l.entry(i)
		ends := l.stamped(e).First + l.limit.Length*1000 - l.Skew.Milliseconds()
		if !l.limit.Slides() {
			ends -= 1000 // it goes by seconds
		}
		end := int64(time.UnixMilli(ends).Sub(l.Log.Began))
		if r, released := l.Log.releases[i]; released {
			end = min(end, r.Sent)
		}
		if end > e.Answered+1 { // so that one that ends does so ahead of one that begins
			changes = append(changes, change{e.Answered, i, false}, change{end - 1, i, true})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.time, b.time) })
	var live []int32
	for _, c := range changes {
		if c.ended {
			live = slices.DeleteFunc(live, func(i int32) bool { return i == c.hit })
			continue
		}
		live = append(live, c.hit)
		if sum := int64(len(live)); sum > l.limit.Ceiling {
			w := exactlog.Window{From: l.entry(live[0]).Stamp, To: l.Log.second(c.time), Sum: sum}
			if !l.isExcused(excess{w, l.limit.Ceiling, "leases that are live at " + l.Log.At(c.time).Format(ClockLayout)}, slices.Clone(live)) {
				return true
			}
		}
	}
	return false
}
