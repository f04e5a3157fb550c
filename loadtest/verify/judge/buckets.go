package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// millis returns a time of the log's clock in milliseconds since a day before it began: what comes before
// has no part in a token bucket.
func (l *Log) millis(unix int64) int64 { return unix - l.Began.UnixMilli() + 24*60*60*1000 }

// bucketEval counts in a token bucket.
type bucketEval struct{ *limitEval }

// overfull finds an interval in which more was admitted than the token bucket holds and what returns in it,
// wherever in their calls the hits were stamped.
func (l bucketEval) overfull(entries []int32) bool {
	slices.SortFunc(entries, func(a, b int32) int { return cmp.Compare(l.stamped(l.entry(a)).Last, l.stamped(l.entry(b)).Last) })
	var firsts []int64
	for _, i := range entries {
		firsts = append(firsts, l.Log.millis(l.stamped(l.entry(i)).First))
	}
	bucket := exactlog.NewUnordered(l.limit.N, l.limit.Window.Milliseconds(), firsts)
	for n, i := range entries {
		e := l.entry(i)
		bucket.Add(firsts[n], l.taken(i))
		end := l.stamped(e).Last
		if bucket.Lacks(l.Log.millis(end)) <= l.limit.Ceiling {
			continue
		}
		first := bucket.Since()
		w, hits := exactlog.Window{To: end / 1000}, []int32(nil)
		for k, hit := range entries[:n+1] {
			if firsts[k] >= first {
				w.Sum, hits = w.Sum+l.taken(hit), append(hits, hit)
			}
		}
		length := l.Log.millis(end) - first
		w.From = (end - length) / 1000
		found := excess{w, l.limit.Ceiling + length*l.limit.N/l.limit.Window.Milliseconds(), fmt.Sprintf("%d ms of %s", length, w)}
		if !l.isExcused(found, hits) {
			return true
		}
	}
	return false
}

// byMoment has each question of one moment answered together. A function says of which moment a question is.
func byMoment(questions []question, of func(question) int64, answer func(moment int64, group []int)) {
	groups := map[int64][]int{}
	for i, q := range questions {
		groups[of(q)] = append(groups[of(q)], i)
	}
	for moment, group := range groups {
		answer(moment, group)
	}
}

// least is what the bucket lacks at the end of a span of what must have been taken, whatever the order and the
// stamps.
func (l bucketEval) least(questions []question) []int64 {
	lacks := make([]int64, len(questions))
	byMoment(questions, func(q question) int64 { return l.keptSince(q.Answered) }, func(moment int64, group []int) {
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(questions[a].least.time, questions[b].least.time) })
		var firsts []int64
		adds := slices.DeleteFunc(slices.Clone(l.sure.adds), func(a add) bool { return a.least == 0 || a.late || a.Sent <= moment })
		for _, a := range adds {
			firsts = append(firsts, l.Log.millis(a.First))
		}
		bucket, next := exactlog.NewUnordered(l.limit.N, l.limit.Window.Milliseconds(), firsts), 0
		for _, i := range group {
			q := questions[i]
			for ; next < len(adds) && adds[next].known < q.least.time; next++ {
				bucket.Add(firsts[next], adds[next].least)
			}
			if q.least != (span{}) {
				lacks[i] = max(bucket.Lacks(l.Log.millis(q.least.First))-l.resets.robbed(q.Answered), 0)
			}
		}
	})
	return lacks
}

// most is what the bucket lacks at the beginning of a span of what may have been taken, by the latest stamps.
// What is under way may come behind all that began by then.
func (l bucketEval) most(questions []question) []int64 {
	type change struct {
		time  int64
		ended bool
		add
	}
	var changes []change
	for _, a := range l.begun.adds {
		changes = append(changes, change{a.Sent, false, a}, change{a.Answered, true, a})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.time, b.time) })
	lacks := make([]int64, len(questions))
	byMoment(questions, func(q question) int64 { return l.resets.goneBefore(q.Call, l.lone) }, func(moment int64, group []int) {
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(questions[a].most.time, questions[b].most.time) })
		bucket, underWay, next := exactlog.Bucket{Rate: l.limit.N, Window: l.limit.Window.Milliseconds()}, int64(0), 0
		for _, i := range group {
			q := questions[i]
			for ; next < len(changes) && changes[next].time < q.most.time; next++ {
				switch a := changes[next]; {
				case a.Answered < moment:
				case a.ended:
					underWay -= a.most
					bucket.Take(a.most)
				default:
					underWay += a.most
					bucket.Reach(l.Log.millis(l.latest(a.add)))
				}
			}
			if q.most != (span{}) {
				lacks[i] = bucket.Lacks(l.Log.millis(q.most.First)) + underWay
			}
		}
	})
	return lacks
}

// latest returns the latest millisecond in which an add may have been stamped, whatever its answer says: one of
// several tries does.
func (c *counter) latest(a add) int64 {
	switch {
	case a.late:
		return a.Last
	case a.Times == ever: // a target may go on with it
		a.Answered += int64(CallTimeout)
	}
	return c.Log.during(a.Call, c.Skew).Last
}
