package judge

import (
	"math"
	"time"

	"github.com/counterd/counterd/loadtest/verify/contract"
)

// Times are from the first Unix millisecond to the last, both included.
type Times struct{ First, Last int64 }

// Seconds returns whole Unix seconds, both included.
func Seconds(first, last int64) Times { return Times{first * 1000, last*1000 + 999} }

// within returns what they have in common with others, or others if that is nothing.
func (t Times) within(others Times) Times {
	common := Times{max(t.First, others.First), min(t.Last, others.Last)}
	if common.First > common.Last {
		return others
	}
	return common
}

// ever is any time.
var ever = Times{math.MinInt64, math.MaxInt64}

// stamped returns when an entry may have been stamped. A log has it to the millisecond, while the
// answer tells the second: it was while the call was under way.
func (c *counter) stamped(e Entry) Times {
	stamp := Seconds(e.Stamp, e.Stamp)
	switch {
	case e.Kind == Renew: // as if its leases had been taken so that they end then, or as they were
		during, before := c.Log.during(e.Call, c.Skew), c.stamped(c.entry(e.Renews))
		taken := 1000 * (int64(e.Renewed) - c.leaseLength())
		return Times{max(during.First+taken, before.First), max(during.Last+taken, before.Last)}
	case e.Stamp == 0:
		return ever
	case c.Log.Unstamped:
		return c.Log.during(e.Call, c.Skew)
	case !c.Rule.Log:
		return stamp
	case e.Kind == Late:
		return Times{stamp.First, stamp.First}
	}
	return c.Log.during(e.Call, c.Skew).within(stamp)
}

// SlidingWindow returns what a window of that many seconds surely spans, and at the most, that slides by
// milliseconds and ended during a call, in that second.
func (l *Log) SlidingWindow(c Call, skew time.Duration, second, window int64) (least, most Times) {
	end := l.during(c, skew).within(Seconds(second, second))
	return Times{end.Last - window*1000 + 1, end.First}, Times{end.First - window*1000 + 1, end.Last}
}

// window returns what the limit surely looks at, and at the most, when it decides so many seconds after
// the stamp of an entry.
func (l *limitEval) window(e Entry, after int64) (least, most Times) {
	at := l.stamped(e)
	if l.limit.Burst > 0 { // it looks at one moment: the later, the more has returned
		return Times{at.Last + after*1000, at.Last + after*1000}, Times{at.First + after*1000, at.First + after*1000}
	}
	first, last := Seconds(l.limit.LooksAt(at.First/1000+after)), Seconds(l.limit.LooksAt(at.Last/1000+after))
	least, most = Times{last.First, first.Last}, Times{first.First, last.Last}
	if l.limit.Slides() {
		least.First = at.Last + (after-l.limit.Length)*1000 + 1
		most = Times{at.First + (after-l.limit.Length)*1000 + 1, most.Last + contract.Grace*1000}
	}
	return least, most
}
