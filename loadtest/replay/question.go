package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// question is what every address is asked for.
type question struct {
	window int64 // seconds
	at     int64 // the last second of the window
	now    bool  // it ends whenever the server is asked, not at
}

// begins returns the first second of the window.
func (q question) begins() int64 { return q.at - q.window + 1 }

// margin is how far inside the retention what is sent begins, so that it does
// not slide out while the run goes on.
func margin(retention, most int64) int64 { return min(most, retention/10) }

// Margins, in seconds, for retentions of more than ten times as much.
const (
	eventMargin  = 10
	windowMargin = 60
)

// questionsOf returns what to ask for: each window as of the second end, which is
// that of the last event, and as of so many past moments, spread evenly as far
// back as the retention lets the window begin. A window that would begin at the
// edge of the retention, or behind it, is asked for as of now, once. What slides
// out of the retention first comes first.
//
// The past moments are moved so that by turns there is an event in the second
// behind the window, in its first, in the one before it, and in its last: a
// server whose windows are off by a second cannot miss it.
//
// seconds are those of all events, in order; now is not before end.
func questionsOf(windows []int64, retention, end, now int64, moments int, seconds []int64) []question {
	var questions []question
	for _, window := range windows {
		earliest := now - retention + margin(retention, windowMargin) + window
		if earliest > end {
			questions = append(questions, question{window: window, at: now, now: true})
			continue
		}
		questions = append(questions, question{window: window, at: end})
		places := [...]int64{-1, window - 1, window, 0}
		for k := range moments {
			at := end - (end-earliest)*int64(k+1)/int64(moments)
			at = near(at, earliest, end, places[k%len(places)], seconds)
			questions = append(questions, question{window: window, at: at})
		}
	}
	slices.SortFunc(questions, func(a, b question) int {
		return cmp.Or(cmp.Compare(a.begins(), b.begins()), cmp.Compare(a.window, b.window))
	})
	return slices.Compact(questions)
}

// near returns the moment nearest before at, or else behind it, from earliest to
// latest, that is so many seconds behind an event; at itself if there is none.
func near(at, earliest, latest, behind int64, seconds []int64) int64 {
	i, _ := slices.BinarySearch(seconds, at-behind+1)
	if i > 0 && seconds[i-1]+behind >= earliest {
		return seconds[i-1] + behind
	}
	if i < len(seconds) && seconds[i]+behind <= latest {
		return seconds[i] + behind
	}
	return at
}

// answers reports whether from to to is the window, as of one of the seconds
// from earliest to latest, for a counter kept in steps of that many seconds: its
// windows are rounded outward to whole steps.
func answers(from, to, window, step, earliest, latest int64) bool {
	for at := earliest; at <= latest; at++ {
		begin := at - window + 1
		if from == begin-mod(begin, step) && to == at-mod(at, step)+step-1 {
			return true
		}
	}
	return false
}

// mod is never negative.
func mod(a, b int64) int64 { return (a%b + b) % b }

func moment(second int64) wire.Moment { return wire.Moment{Time: time.Unix(second, 0).UTC()} }
