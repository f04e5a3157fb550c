package verify

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// What the tree sums is what is found by going through all points.
func TestSumsOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		points, questions := make([]point, rng.IntN(30)), make([]question, rng.IntN(20))
		for i := range points {
			points[i] = point{rng.Int64N(20), rng.Int64N(15), rng.Int64N(5)}
		}
		want := make([]int64, len(questions))
		for i := range questions {
			from := rng.Int64N(18) - 2
			q := question{rng.Int64N(25), from, from + rng.Int64N(10) - 1}
			questions[i] = q
			for _, p := range points {
				if p.time < q.time && q.from <= p.second && p.second <= q.to {
					want[i] += p.by
				}
			}
		}
		require.Equal(t, want, sumsOf(points, questions), "%v %v", points, questions)
	}
}

// How much was in flight is what is found by looking at every moment.
func TestInFlight(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		var begun, ended []point
		for range rng.IntN(12) {
			at := rng.Int64N(40)
			by := 1 + rng.Int64N(3)
			begun, ended = append(begun, point{at, 0, by}), append(ended, point{at + 1 + rng.Int64N(10), 0, by})
		}
		flight := newInFlight(begun, ended)
		for range 20 {
			from := rng.Int64N(50)
			to := from + rng.Int64N(8)
			want := int64(0)
			for at := from; at <= to; at++ {
				height := int64(0)
				for i := range begun {
					if begun[i].time <= at && at <= ended[i].time {
						height += begun[i].by
					}
				}
				want = max(want, height)
			}
			got := flight.most(from, to)
			require.GreaterOrEqual(t, got, want, "%d to %d: %v %v", from, to, begun, ended)
			require.LessOrEqual(t, got, flight.most(from-1, to+1))
		}
	}
}

const second0 = 1_000_000

// judgeOf is a judge of an event with one limit per user, and of one user.
func judgeOf(t *testing.T, limit wire.Limit, change ...func(r *wire.Rule)) *judge {
	t.Helper()
	rule := wire.Rule{Per: []string{"user"}, Limits: []wire.Limit{limit}, Precision: "second", Count: "admitted", Throttle: "hard"}
	for _, f := range change {
		f(&rule)
	}
	c, err := newContract(wire.Event{Name: "e", Retention: "1h", Rules: []wire.Rule{rule}})
	require.NoError(t, err)
	j := &judge{
		contract: c, users: newUsers(c, 1), log: newLog(c, 1000), findings: newFindings(), began: time.Unix(second0, 0),
		timeout: nanoseconds(time.Second), ours: true, alone: true, copies: 1,
	}
	j.event = func(i int32) Event { return Event{Cost: int64(j.log.entries[i].cost)} }
	j.lookOf = func(look) Event { return Event{} }
	return j
}

// at notes a hit that is stamped so many seconds after the beginning, and takes a tenth of one.
func (j *judge) at(second int64, o outcome, count int64, change ...func(e *entry)) {
	e := entry{
		sent: second*1e9 + int64(len(j.log.entries)), stamp: second0 + second, cost: 1, outcome: o, kind: hit,
	}
	e.answered = e.sent + 1e8
	if o == denied {
		e.denies, e.retryAfter = 1, 1
	}
	for _, f := range change {
		f(&e)
	}
	j.log.note(e, []int64{count})
}

func incomplete(e *entry) { e.incomplete = 1 }
func onError(e *entry)    { e.onError = 1 }

// Which windows are wrong, and which are excused, depends on the promises of the targets.
func TestWindowsThatAreExcused(t *testing.T) {
	kill := []loss{{killed: 1.5e9, back: 1.6e9, repaired: 1.7e9}}
	for name, c := range map[string]struct {
		change  func(j *judge)
		last    []func(e *entry)
		wrong   int
		excused int64
	}{
		"nobody said anything":                 {wrong: 1},
		"it is said, and nothing was killed":   {last: []func(e *entry){incomplete}, wrong: 1},
		"it is said, by others' servers":       {change: func(j *judge) { j.ours = false }, last: []func(e *entry){incomplete}, excused: 1},
		"it is not said, by others' servers":   {change: func(j *judge) { j.ours = false }, wrong: 1},
		"it is said, after a kill":             {change: func(j *judge) { j.losses = kill }, last: []func(e *entry){incomplete}, excused: 1},
		"it is said, and there are two copies": {change: func(j *judge) { j.losses, j.copies = kill, 2 }, last: []func(e *entry){incomplete}, wrong: 1},
		"no store was asked":                   {last: []func(e *entry){onError}},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		if c.change != nil {
			c.change(j)
		}
		j.at(0, admitted, 1)
		j.at(0, admitted, 2)
		j.at(20, admitted, 3, c.last...)
		j.judge()
		assert.Equal(t, c.wrong, j.findings.total[CheckWindows], name)
		assert.Equal(t, c.excused, j.excused.Windows, name)
	}
}

// A precision of minutes counts the whole minute in which a window begins: it may not hold
// more than its limit.
func TestWindowsOfMinutes(t *testing.T) {
	const minute = second0/60*60 + 60 - second0 // the first that begins after the log
	for name, c := range map[string]struct {
		last  int64
		wrong int
	}{
		"within the window":                      {minute + 60, 1},
		"in the minute in which it begins":       {minute + 60 + 58, 1},
		"the window begins with the next minute": {minute + 60 + 59, 0},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "60s"}, func(r *wire.Rule) { r.Precision = "minute" })
		j.at(minute, admitted, 1)
		j.at(minute+1, admitted, 2)
		j.at(c.last, admitted, 3)
		j.judge()
		assert.Equal(t, c.wrong, j.findings.total[CheckWindows], name)
	}
}

// After one loss a window holds no more than twice what it may: more is wrong, whatever is
// said.
func TestOneLossExcusesOnce(t *testing.T) {
	for n, wrong := range map[int]int{4: 0, 5: 1} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		j.losses = []loss{{killed: 1.5e9, back: 1.6e9, repaired: 1.7e9}}
		j.at(0, admitted, 1)
		j.at(0, admitted, 2)
		for i := range n - 2 {
			j.at(20, admitted, int64(i+1), incomplete)
		}
		j.judge()
		assert.Equal(t, wrong, j.findings.total[CheckWindows], n)
		for _, v := range j.findings.all() {
			assert.Len(t, v.Events, n)
		}
	}
}

func TestDenialsWithoutReason(t *testing.T) {
	for name, c := range map[string]struct {
		before func(j *judge)
		wrong  int
	}{
		"full":                       {func(j *judge) { j.at(0, admitted, 1); j.at(0, admitted, 2) }, 0},
		"full, and long ago":         {func(j *judge) { j.at(-40, admitted, 1); j.at(-40, admitted, 2) }, 1},
		"one has room":               {func(j *judge) { j.at(0, admitted, 1) }, 1},
		"one may have been counted":  {func(j *judge) { j.at(0, admitted, 1); j.at(0, unknown, 0) }, 0},
		"one was refused":            {func(j *judge) { j.at(0, admitted, 1); j.at(0, refused, 0) }, 1},
		"one was denied, in its way": {func(j *judge) { j.at(0, admitted, 1); j.at(2, denied, 1) }, 0},
		"one was denied, before":     {func(j *judge) { j.at(-5, admitted, 1); j.at(0, denied, 1) }, 2},
		"an increment":               {func(j *judge) { j.at(0, admitted, 1, func(e *entry) { e.kind, e.cost = increment, 9 }) }, 0},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		c.before(j)
		j.at(2, denied, 2)
		j.judge()
		assert.Equal(t, c.wrong, j.findings.total[CheckDenials], name)
	}
}

// Of many violations some are kept, with their events, and the others are only counted: to
// gather the events of each would take the square of the log's length.
func TestManyViolations(t *testing.T) {
	const many = 400
	j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
	gathered, event := 0, j.event
	j.event = func(i int32) Event {
		gathered++
		return event(i)
	}
	for range many {
		j.at(0, admitted, 1)
	}
	for i := range int64(many) {
		j.at(100+2*i, denied, 0)
		j.log.look(look{sent: 110e9, answered: 110.1e9, from: second0, to: second0 + 20, count: 9})
	}
	j.judge()
	assert.Equal(t, many, j.findings.total[CheckDenials])
	assert.Equal(t, many, j.findings.total[CheckCounts])
	assert.Len(t, j.findings.kept[CheckCounts], maxKept)
	assert.Less(t, gathered, (maxKept+1)*3*many)
}

func TestCountsAndTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		count  int64
		change func(j *judge)
		wrong  int
	}{
		"exact":                  {3, nil, 0},
		"one too few":            {2, nil, 1},
		"one too many":           {4, nil, 1},
		"one may be counted":     {4, func(j *judge) { j.at(1, unknown, 0, func(e *entry) { e.stamp = 0 }) }, 0},
		"one was lost":           {2, func(j *judge) { j.losses = []loss{{killed: 5e9, back: 6e9, repaired: 7e9}} }, 0},
		"one lost, with a copy":  {2, func(j *judge) { j.losses, j.copies = []loss{{killed: 5e9, back: 6e9, repaired: 7e9}}, 2 }, 1},
		"paid twice":             {6, func(j *judge) { j.losses, j.copies = []loss{{killed: 0, back: 1, repaired: 7e9}}, 2 }, 0},
		"paid three times":       {7, func(j *judge) { j.losses, j.copies = []loss{{killed: 0, back: 1, repaired: 7e9}}, 2 }, 1},
		"a denial is no count":   {4, func(j *judge) { j.at(1, denied, 3, onError) }, 0},
		"a slow one may be left": {4, func(j *judge) { j.at(1, denied, 3, func(e *entry) { e.answered += 2e9 }) }, 0},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 3, Window: "30s"})
		for i := range int64(3) {
			j.at(0, admitted, i+1)
		}
		if c.change != nil {
			c.change(j)
		}
		j.log.look(look{sent: 20e9, answered: 20.1e9, from: second0 - 5, to: second0 + 20, count: c.count})
		j.judge()
		assert.Equal(t, c.wrong, j.findings.total[CheckCounts], name)
	}
}

// What a replica that was given up may hold more of is excused, and no more: from half of the
// timeout on, with two replicas, for each try, in the seconds of the tries.
func TestCountsOfAReplicaThatWasGivenUp(t *testing.T) {
	took := func(d time.Duration) func(*entry) {
		return func(e *entry) { e.answered = e.sent + int64(d) }
	}
	on := func(target uint16) func(*entry) { return func(e *entry) { e.target = target } }
	as := func(k kind) func(*entry) { return func(e *entry) { e.kind = k } }
	before := func(d time.Duration) func(*entry) {
		return func(e *entry) { e.sent, e.answered = e.sent-int64(d), e.sent+1e7 }
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		copies int
		change func(j *judge)
		most   int64 // of seconds 4 to 20, where one is admitted
	}{
		"none":                          {2, func(*judge) {}, 1},
		"a denied one":                  {2, func(j *judge) { j.at(6, denied, 3, took(500*ms)) }, 2},
		"one copy":                      {1, func(j *judge) { j.at(6, denied, 3, took(500*ms)) }, 1},
		"less than half":                {2, func(j *judge) { j.at(6, denied, 3, took(499*ms)) }, 1},
		"two tries":                     {2, func(j *judge) { j.at(6, denied, 3, took(750*ms)) }, 3},
		"not quite":                     {2, func(j *judge) { j.at(6, denied, 3, took(749*ms)) }, 2},
		"many":                          {2, func(j *judge) { j.at(6, denied, 3, took(2000*ms)) }, 10},
		"an admitted one":               {2, func(j *judge) { j.at(6, admitted, 3, took(500*ms)) }, 3},
		"an increment is added once":    {2, func(j *judge) { j.at(6, admitted, 3, took(900*ms), as(increment)) }, 3},
		"a check adds nothing":          {2, func(j *judge) { j.at(6, denied, 3, took(500*ms), as(check)) }, 1},
		"beside an older one":           {2, func(j *judge) { j.at(6, denied, 3); j.at(6, denied, 3, before(450*ms)) }, 2},
		"not old enough":                {2, func(j *judge) { j.at(6, denied, 3); j.at(6, denied, 3, before(350*ms)) }, 1},
		"one of another target":         {2, func(j *judge) { j.at(6, denied, 3); j.at(6, denied, 3, before(450*ms), on(1)) }, 1},
		"two tries beside an older one": {2, func(j *judge) { j.at(6, denied, 3); j.at(6, denied, 3, before(660*ms)) }, 4},
		"a batch tries by itself":       {2, func(j *judge) { j.at(6, denied, 3); j.at(6, denied, 3, before(660*ms), as(batch)) }, 3},
		"beside an older count": {2, func(j *judge) {
			j.at(6, denied, 3)
			j.log.look(look{sent: 5.5e9, answered: 6.01e9, from: second0 + 50, to: second0 + 50})
		}, 2},
		"one that had ended":                 {2, func(j *judge) { j.at(6, denied, 3); j.at(5, denied, 3, took(400*ms)) }, 1},
		"a try in a second behind the stamp": {2, func(j *judge) { j.at(3, denied, 3, took(1100*ms), func(e *entry) { e.stamp = second0 + 3 }) }, 10},
		"a try in a second before the stamp": {2, func(j *judge) { j.at(20, denied, 3, took(600*ms), func(e *entry) { e.stamp = second0 + 21 }) }, 2},
		"all of its tries were before":       {2, func(j *judge) { j.at(2, denied, 3, took(900*ms)) }, 1},
		"all of its tries were later":        {2, func(j *judge) { j.at(21, denied, 3, took(700*ms)) }, 1},
		"a seconds that it did not have":     {2, func(j *judge) { j.at(2, denied, 3, took(800*ms)); j.at(21, denied, 3, took(600*ms)) }, 1},
	} {
		for _, more := range []int64{0, 1} {
			j := judgeOf(t, wire.Limit{Name: "l", Limit: 30, Window: "30s"})
			j.copies = c.copies
			j.at(10, admitted, 9)
			c.change(j)
			j.log.look(look{sent: 30e9, answered: 30.1e9, from: second0 + 4, to: second0 + 20, count: c.most + more})
			j.judge()
			assert.Equal(t, int(more), j.findings.total[CheckCounts], "%s: %d", name, c.most+more)
		}
	}
}

// What was counted before a reset is gone, what came after it is there; what was under way may
// be, and take something with it.
func TestCountsAfterAReset(t *testing.T) {
	during := func(e *entry) { e.sent, e.answered = 4.9e9, 5.3e9 }
	increment := func(e *entry) { e.kind = increment }
	for name, c := range map[string]struct {
		count int64
		after func(j *judge)
		wrong int
	}{
		"nothing":                         {0, nil, 0},
		"what was":                        {3, nil, 1},
		"it was not acknowledged":         {3, func(j *judge) { j.log.resets[0].done = false }, 0},
		"and may have been":               {0, func(j *judge) { j.log.resets[0].done = false }, 0},
		"it has just been":                {3, func(j *judge) { j.log.resets[0].answered = 19e9 }, 0},
		"a copy may have missed some":     {3, func(j *judge) { j.copies = 2; j.at(1, admitted, 4, func(e *entry) { e.answered += 6e8 }) }, 0},
		"what came after":                 {1, func(j *judge) { j.at(7, admitted, 1) }, 0},
		"without what came after":         {0, func(j *judge) { j.at(7, admitted, 1) }, 1},
		"what was under way":              {1, func(j *judge) { j.at(5, admitted, 1, during) }, 0},
		"without it":                      {0, func(j *judge) { j.at(5, admitted, 1, during) }, 0},
		"a denied one has taken it along": {1, func(j *judge) { j.at(5, denied, 3, during); j.at(7, admitted, 1); j.at(8, admitted, 2) }, 0},
		"or nothing":                      {2, func(j *judge) { j.at(5, denied, 3, during); j.at(7, admitted, 1); j.at(8, admitted, 2) }, 0},
		"and not both":                    {0, func(j *judge) { j.at(5, denied, 3, during); j.at(7, admitted, 1); j.at(8, admitted, 2) }, 1},
		"late, into what was forgotten": {1, func(j *judge) {
			j.at(1, admitted, 0, increment, func(e *entry) { e.kind, e.sent, e.answered = late, 7e9, 7.1e9 })
		}, 0},
		"and lost there": {0, func(j *judge) {
			j.at(1, admitted, 0, increment, func(e *entry) { e.kind, e.sent, e.answered = late, 7e9, 7.1e9 })
		}, 1},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 3, Window: "30s"})
		for i := range int64(3) {
			j.at(0, admitted, i+1)
		}
		j.log.reset(reset{sent: 5e9, answered: 5.1e9, done: true})
		if c.after != nil {
			c.after(j)
		}
		j.log.look(look{sent: 20e9, answered: 20.1e9, from: second0 - 5, to: second0 + 20, count: c.count})
		j.judge()
		got := 0
		for _, v := range j.findings.all() {
			if strings.Contains(v.Text, "a count of") {
				got++
			}
		}
		assert.Equal(t, c.wrong, got, name)
	}
}

// A window holds its limit once more after a reset, and what was under way at the reset.
func TestWindowsAfterAReset(t *testing.T) {
	during := func(e *entry) { e.sent, e.answered = 4.9e9, 5.3e9 }
	midway := func(e *entry) { e.sent = 5.05e9 }
	for name, c := range map[string]struct {
		after               func(j *judge)
		wrong               int
		atReset, afterReset int64
	}{
		"as many again":         {func(j *judge) { j.at(7, admitted, 1); j.at(7, admitted, 2) }, 0, 0, 0},
		"more than that":        {func(j *judge) { j.at(7, admitted, 1); j.at(7, admitted, 2); j.at(7, admitted, 3) }, 1, 0, 0},
		"one was under way":     {func(j *judge) { j.at(5, admitted, 1, during); j.at(7, admitted, 1); j.at(7, admitted, 2) }, 0, 1, 0},
		"one came while it was": {func(j *judge) { j.at(5, admitted, 1, midway); j.at(7, admitted, 1); j.at(7, admitted, 2) }, 0, 1, 0},
		"one was being denied": {func(j *judge) {
			j.at(5, denied, 2, during)
			j.at(7, admitted, 1)
			j.at(7, admitted, 2)
			j.at(7, admitted, 2)
		}, 0, 0, 1},
		"and one more than these": {func(j *judge) {
			j.at(5, denied, 2, during)
			j.at(7, admitted, 1)
			j.at(7, admitted, 2)
			j.at(7, admitted, 2)
			j.at(7, admitted, 2)
		}, 1, 0, 0},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		j.at(0, admitted, 1)
		j.at(0, admitted, 2)
		j.log.reset(reset{sent: 5e9, answered: 5.1e9, done: true})
		c.after(j)
		j.judge()
		assert.Equal(t, c.wrong, j.findings.total[CheckWindows], name)
		assert.Equal(t, c.atReset, j.excused.AtResets, name)
		assert.Equal(t, c.afterReset, j.excused.AfterResets, name)
	}
}

// A lone caller's decisions after a late increment and a reset are known, but for those of
// targets that may not see them yet.
func TestPredictionsOfThePast(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(j *judge, who int32)
		sent        int64
		target      uint16
		outcome     outcome
		wrong       int
		unpredicted int64
	}{
		"a late one decides":                {addLate, 1.2e9, 0, denied, 0, 0},
		"it does not":                       {addLate, 1.2e9, 0, admitted, 1, 0},
		"for another target, too":           {addLate, 2.2e9, 1, admitted, 1, 0},
		"which may not know yet":            {addLate, 1.5e9, 1, admitted, 0, 1},
		"after a reset there is room":       {forget, 1.2e9, 0, admitted, 0, 0},
		"there is none":                     {forget, 1.2e9, 0, denied, 1, 0},
		"another target may not know yet":   {forget, 1.5e9, 1, denied, 0, 1},
		"and knows":                         {forget, 2.2e9, 1, denied, 1, 0},
		"a reset that nobody has confirmed": {func(j *judge, who int32) { forget(j, who); j.log.resets[0].done = false }, 1.2e9, 0, denied, 0, 1},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		who := j.users.fresh(quiet)
		j.at(0, admitted, 1, func(e *entry) { e.who = who })
		c.change(j, who)
		j.at(2, c.outcome, 2, func(e *entry) {
			e.who, e.target, e.sent, e.answered, e.cost, e.retryAfter = who, c.target, c.sent, c.sent+1e8, 2, 28
		})
		j.counters = j.users.allCounters()
		j.sortResets()
		j.predict()
		verdicts := j.findings.total[CheckWindows] + j.findings.total[CheckDenials]
		assert.Equal(t, c.wrong, verdicts, name)
		assert.Equal(t, c.unpredicted, j.excused.Unpredicted, name)
	}
}

// addLate fills the limit of a user with one admitted hit.
func addLate(j *judge, who int32) {
	j.at(-5, admitted, 0, func(e *entry) { e.who, e.kind, e.sent, e.answered = who, late, 1e9, 1.1e9 })
}

// forget has been admitted once more before it is.
func forget(j *judge, who int32) {
	j.at(0, admitted, 2, func(e *entry) { e.who = who })
	j.log.reset(reset{sent: 1e9, answered: 1.1e9, counter: j.users.who(who).counters[0], done: true})
}

// A model that sums all events says no and when exactly where a second one, which tries each
// second in turn, says so.
func TestTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		l := limit{name: "l", n: 1 + rng.Int64N(6), length: 1 + rng.Int64N(7)}
		l.ceiling = l.n
		step := 1 + rng.Int64N(2)*3
		m := &model{contract: &contract{rules: []rule{{per: []string{"user"}, step: step}}, limits: []limit{l}}}
		var all []added
		now := int64(100)
		holds := func(at int64) (sum int64) {
			for _, e := range all {
				if e.second >= (at-l.length+1)/step*step && e.second <= at {
					sum += e.by
				}
			}
			return sum
		}
		for range 25 {
			now += rng.Int64N(3)
			cost := 1 + rng.Int64N(3)
			d := m.decide(asked{second: now, cost: cost, kind: hit})
			require.Equal(t, holds(now)+cost <= l.n, d.Allowed)
			switch {
			case d.Allowed:
				all = append(all, added{now, cost, false})
			case cost > l.n:
				require.Nil(t, d.RetryAfter)
			default:
				wait := int64(0)
				for holds(now+wait)+cost > l.n {
					wait++
				}
				require.Equal(t, wait, *d.RetryAfter)
			}
			require.Equal(t, holds(now), d.Limits[0].Count)
		}
	}
}

// A denial that is remembered says what was so when it was given, also one of what can never
// fit, and one of a batch; it says nothing else.
func TestDenialsThatRepeat(t *testing.T) {
	limit := wire.Limit{Name: "user-2-per-1s", Limit: 2, Window: "1s"}
	tooMuch := func(e *entry) { e.cost, e.retryAfter = 3, never }
	for name, c := range map[string]struct {
		first kind
		by    uint16 // the target that admits in between
		last  int64
		wrong int
	}{
		"as it is now":                      {first: hit, by: 1, last: 1},
		"as it was":                         {first: hit, by: 1, last: 0},
		"as it was in the batch":            {first: batch, by: 1, last: 0},
		"as it never was":                   {first: hit, by: 1, last: 2, wrong: 1},
		"as it was before its own admitted": {first: hit, by: 0, last: 0, wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			j := judgeOf(t, limit)
			who := j.users.fresh(quiet)
			j.counters = j.users.allCounters()
			j.sortResets()
			call := func(k kind, o outcome, count int64, change ...func(e *entry)) {
				j.at(0, o, count, append(change, func(e *entry) {
					e.who, e.kind = who, k
					if k == batch {
						e.sent, e.answered = 0, 1e8 // one call
					}
				})...)
			}
			call(c.first, denied, 0, tooMuch)
			call(c.first, admitted, 1, func(e *entry) { e.target = c.by })
			call(hit, denied, c.last, tooMuch)
			j.predict()
			require.Len(t, j.findings.all(), c.wrong)
			assert.Equal(t, c.wrong == 0 && c.last == 0, j.excused.Repeated == 1)
		})
	}
}

// A hit that comes after its retry_after is admitted, if nothing else came, but for the whole
// event: that is of others, too.
func TestPromisesThatAreNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		per   []string
		again int64
		wrong int
	}{
		"too early":       {[]string{"user"}, 1, 0},
		"when it is over": {[]string{"user"}, 4, 1},
		"by others":       {nil, 4, 0},
	} {
		j := judgeOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"}, func(r *wire.Rule) { r.Per = c.per })
		who := j.users.fresh(quiet)
		j.counters = j.users.allCounters()
		j.sortResets()
		his := func(e *entry) { e.who = who }
		j.at(0, admitted, 1, his)
		j.at(0, admitted, 2, his)
		j.at(1, denied, 2, his, func(e *entry) { e.retryAfter = 2 })
		j.at(c.again, denied, 2, his)
		j.predict()
		got := 0
		for _, v := range j.findings.all() {
			if v.sort == "promise" {
				got++
			}
		}
		assert.Equal(t, c.wrong, got, name)
	}
}

// Headers are read as structured fields, however they are written.
func TestHeaderFaults(t *testing.T) {
	two := int64(2)
	d := wire.Decision{RetryAfter: &two, Limits: []wire.LimitState{
		{Name: "a", Limit: 5, Window: "1m", Remaining: 3, Allowed: true, Reset: new(int64)},
		{Name: "b", Limit: 9, Window: "10s", Remaining: 0, Reset: &two},
		{Name: "s", Limit: 1, Window: "1s", Shadow: true, Reset: &two},
	}}
	right := func() http.Header {
		h := http.Header{}
		h.Set("RateLimit-Policy", `"a";q=5;w=60,   "b";q=9;w=10`)
		h.Set("RateLimit", `"a";r=3, "b";r=0;t=2`)
		h.Set("Retry-After", "2")
		h.Set("X-RateLimit-Limit", "9")
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", "2")
		return h
	}
	both := families{true, true}
	require.Empty(t, headerFaults(right(), http.StatusTooManyRequests, d, both))
	for name, value := range map[string]string{
		"RateLimit-Policy": `"a";q=5;w=60`, "RateLimit": `"a";r=3;t=0, "b";r=0;t=2`, "Retry-After": "3",
		"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": "0",
	} {
		h := right()
		h.Set(name, value)
		assert.NotEmpty(t, headerFaults(h, http.StatusTooManyRequests, d, both), name)
		h.Del(name)
		assert.NotEmpty(t, headerFaults(h, http.StatusTooManyRequests, d, both), name)
	}
	assert.Len(t, noHeaderFaults(right()), 6)
	assert.Len(t, headerFaults(right(), http.StatusTooManyRequests, d, families{}), 5, "all but Retry-After")
	assert.Len(t, headerFaults(right(), http.StatusServiceUnavailable, d, both), 1, "a 503 has no Retry-After")
}
