package verify

import (
	"slices"
	"time"
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
	losses   losses
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
	givenUp  []int64   // of each entry, how many of its tries may have given up a replica; nil: none
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
	j.findGivenUp()
	looks := make([][]look, len(j.counters))
	for _, k := range j.log.looks {
		looks[k.counter] = append(looks[k.counter], k)
	}
	for id := range j.counters {
		x := counterCheck{j, j.logOf(id)}
		for _, i := range j.limitsOf(id) {
			x.windows(i)
			x.denials(i)
			x.standing(i)
			x.waits(i)
		}
		x.looks(looks[id])
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

func (j *judge) second(at int64) int64 { return j.began.Add(time.Duration(at)).Unix() }

// feature returns how answers spell the feature of a counter.
func (j *judge) feature(id int) *string { return &j.counters[id].name }

// name returns the counter's name in a sentence.
func (j *judge) name(id int) string {
	if j.counters[id].whole {
		return "the whole event"
	}
	return j.counters[id].name
}
