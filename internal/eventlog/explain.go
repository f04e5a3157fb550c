package eventlog

import "github.com/counterd/counterd/internal/limiter/engine"

// Explain finds in the log what the limit's count consists of. It makes no round trip.
func (w *windows) Explain(limit, moments int) {
	if w.explanations == nil {
		w.explanations = make(map[int]engine.Explanation)
	}
	own := w.question.Limits[limit]
	if own.Rate > 0 {
		w.explanations[limit] = w.explainLevel(limit, moments)
		return
	}
	e := engine.Explanation{Whole: true}
	for time, count := range w.log.Counted(own, w.time) {
		if n := len(e.Sum); n == 0 || e.Sum[n-1].First != time/second {
			e.Sum = append(e.Sum, engine.Part{Level: engine.Second, Interval: engine.Interval{First: time / second, Last: time / second}})
		}
		e.Sum[len(e.Sum)-1].Count += count
		leaves := own.Leaves(time)
		if n := len(e.Frees); n > 0 && e.Frees[n-1].At == leaves {
			e.Frees[n-1].Count += count
		} else if n < moments {
			e.Frees = append(e.Frees, engine.Freed{At: leaves, Count: count})
		}
	}
	w.explanations[limit] = e
}

// explainLevel explains a token bucket: what it lacks, and when the next tokens return.
func (w *windows) explainLevel(limit, moments int) (e engine.Explanation) {
	e.Whole = true
	own, held := w.question.Limits[limit], w.base[limit]
	if held.Count == 0 {
		return e
	}
	at := w.time / second
	e.Sum = []engine.Part{{Level: engine.Second, Interval: engine.Interval{First: at, Last: at, Count: held.Count}}}
	for left := held.Count - 1; left >= 0 && len(e.Frees) < moments; left-- {
		e.Frees = append(e.Frees, engine.Freed{At: own.Returns(held.Level, left, w.time), Count: 1})
	}
	return e
}

// Explanation returns it.
func (w *windows) Explanation(limit int) engine.Explanation { return w.explanations[limit] }
