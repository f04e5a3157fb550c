package limiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// explainingTimeouts is the time for an explanation, in timeouts of a decision: it makes up to some ten round trips.
const explainingTimeouts = 10

// errUnexplained is the error of an explanation during which the store failed.
var errUnexplained = fmt.Errorf("%w while it was asked for an explanation", engine.ErrStore)

// Explained is what the count of a limit consists of, and the rule that the limit is of.
type Explained struct {
	engine.Explanation
	Rule *events.Rule
}

// explain finds what the counts of the hit's limits consist of.
func (f *batch) explain(h *hit, moments int) ([]Explained, error) {
	var counters []*counterState
	known := func(u *limitEval) bool { return h.isWeighed() && u.sourceNow() != ofNone }
	for i := range h.limits {
		if u := &h.limits[i]; known(u) {
			u.counter.open().Explain(u.window.index, moments)
			if !slices.Contains(counters, u.counter) {
				counters = append(counters, u.counter)
			}
		}
	}
	decided := f.ctx
	f.ctx = &tripContext{caller: f.caller, deadline: time.Now().Add(explainingTimeouts * f.l.timeout)}
	f.travel(counters, f.l.now(), false)
	f.ctx.over()
	f.ctx = decided
	all := make([]Explained, len(h.limits))
	for i := range h.limits {
		u := &h.limits[i]
		if all[i].Rule = u.rule; !known(u) {
			continue
		}
		if all[i].Explanation = u.counter.open().Explanation(u.window.index); !all[i].Whole {
			return nil, errUnexplained
		}
	}
	return all, nil
}
