package judge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the trees sum is what is found by going through all adds.
func TestSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		adds, questions := make([]add, rng.IntN(30)), make([]question, rng.IntN(20))
		for i := range adds {
			second := rng.Int64N(15)
			adds[i] = add{known: rng.Int64N(20), Times: Times{second, second}, least: rng.Int64N(5)}
			if rng.IntN(3) == 0 {
				adds[i].Last += rng.Int64N(9)
			}
		}
		after := func(a add, moment int64) int64 {
			if a.known < moment {
				return 0
			}
			return a.least
		}
		want, within := make([]int64, len(questions)), make([]int64, len(questions))
		for i := range questions {
			from := rng.Int64N(18) - 2
			asked, moment := span{rng.Int64N(25), Times{from, from + rng.Int64N(10)}}, rng.Int64N(3)
			questions[i] = question{Call: Call{Sent: moment}, least: asked}
			for _, a := range adds {
				if asked == (span{}) || a.known >= asked.time {
					continue
				}
				if a.First <= asked.Last && a.Last >= asked.First {
					want[i] += after(a, moment)
				}
				if a.First >= asked.First && a.Last <= asked.Last {
					within[i] += after(a, moment)
				}
			}
		}
		of := func(q question) (span, int64) { return q.least, q.Sent }
		known := func(a add) int64 { return a.known }
		require.Equal(t, want, newSeries(adds, false, known).sums(questions, of, after), "%v %v", adds, questions)
		for i, least := range newSeries(adds, true, known).sums(questions, of, after) {
			require.LessOrEqual(t, least, within[i], "%v %v", adds, questions)
			longer := slices.ContainsFunc(adds, func(a add) bool { return a.First < questions[i].least.First && a.Last > questions[i].least.Last })
			require.True(t, longer || least == within[i], "%v %v", adds, questions)
		}
	}
}

// How much was in flight is what is found by looking at every moment.
func TestInFlight(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		var hits []Entry
		for range rng.IntN(12) {
			begun := rng.Int64N(40)
			hits = append(hits, Entry{Call: Call{Sent: begun, Answered: begun + 1 + rng.Int64N(10)}, Cost: 1 + rng.Int32N(3)})
		}
		f := newFlight(hits)
		for range 20 {
			from := rng.Int64N(50)
			to := from + rng.Int64N(8)
			want, total := int64(0), int64(0)
			for moment := from; moment <= to; moment++ {
				height := int64(0)
				for _, h := range hits {
					if h.Sent <= moment && moment <= h.Answered {
						height += int64(h.Cost)
					}
				}
				want = max(want, height)
			}
			for _, h := range hits {
				if h.Sent < to && h.Answered >= from {
					total += int64(h.Cost)
				}
			}
			require.Equal(t, total, f.total(from, to))
			got := f.most(from, to)
			require.GreaterOrEqual(t, got, want, "%d to %d: %v", from, to, hits)
			require.LessOrEqual(t, got, f.most(from-1, to+1))
		}
	}
}

const second0 = 1_000_000

// caseOf is a case of an event with one limit per user, and of one user.
func caseOf(t *testing.T, limit wire.Limit, change ...func(r *wire.Rule)) *Case {
	t.Helper()
	rule := wire.Rule{Per: []string{"user"}, Limits: []wire.Limit{limit}, Precision: "second", Count: "admitted", Throttle: "hard"}
	for _, f := range change {
		f(&rule)
	}
	c, err := contract.New(wire.Event{Name: "e", Retention: "1h", Rules: []wire.Rule{rule}})
	require.NoError(t, err)
	log := NewLog(c, []string{"a", "b"}, 1000, 1)
	log.Began = time.Unix(second0, 0)
	return &Case{Log: log, Findings: &Findings{}, Timeout: time.Second, Ours: true, Alone: true, Replicas: 1}
}

// at notes a hit that is stamped so many seconds after the beginning, and takes a tenth of one.
func (c *Case) at(second int64, o Outcome, count int64, change ...func(e *Entry)) {
	e := Entry{Call: Call{Sent: second*1e9 + int64(len(c.Log.entries))}, Stamp: second0 + second, Cost: 1, Outcome: o}
	e.Answered = e.Sent + 1e8
	if o == Denied {
		e.Denies, e.RetryAfter = 1, 1
	}
	for _, f := range change {
		f(&e)
	}
	c.Log.Note(e, []int64{count})
}

// look notes a count of those seconds after the beginning.
func (c *Case) look(sent, answered, from, to, count int64) {
	c.Log.Look(Look{Call: Call{Sent: sent, Answered: answered}, Least: Seconds(second0+from, second0+to), Most: Seconds(second0+from, second0+to), Count: count})
}

// kill kills a server, by seconds after the beginning.
func (c *Case) kill(killed, back, repaired float64) {
	moment := func(s float64) time.Time { return c.Log.Began.Add(time.Duration(s * float64(time.Second))) }
	c.Kills = []Kill{{Killed: moment(killed), Dead: moment(killed), Back: moment(back), Repaired: moment(repaired)}}
}

func incomplete(e *Entry) { e.Incomplete = 1 }
func onError(e *Entry)    { e.OnError = 1 }

// Which windows are wrong, and which are excused, depends on the promises of the targets.
func TestWindowsThatAreExcused(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(j *Case)
		last    []func(e *Entry)
		wrong   int
		excused int64
	}{
		"nobody said anything":                   {wrong: 1},
		"it is said, and nothing was killed":     {last: []func(e *Entry){incomplete}, wrong: 1},
		"it is said, by others' servers":         {change: func(j *Case) { j.Ours = false }, last: []func(e *Entry){incomplete}, excused: 1},
		"it is not said, by others' servers":     {change: func(j *Case) { j.Ours = false }, wrong: 1},
		"it is said, after a kill":               {change: func(j *Case) { j.kill(1.5, 1.6, 1.7) }, last: []func(e *Entry){incomplete}, excused: 1},
		"it is said, and there are two replicas": {change: func(j *Case) { j.kill(1.5, 1.6, 1.7); j.Replicas = 2 }, last: []func(e *Entry){incomplete}, wrong: 1},
		"no store was asked":                     {last: []func(e *Entry){onError}},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		if c.change != nil {
			c.change(j)
		}
		j.at(0, Admitted, 1)
		j.at(0, Admitted, 2)
		j.at(20, Admitted, 3, c.last...)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Windows], name)
		assert.Equal(t, c.excused, j.Findings.Excused.Windows, name)
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
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "60s"}, func(r *wire.Rule) { r.Precision = "minute" })
		j.at(minute, Admitted, 1)
		j.at(minute+1, Admitted, 2)
		j.at(c.last, Admitted, 3)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Windows], name)
	}
}

// After one loss a window holds no more than twice what it may: more is wrong, whatever is
// said.
func TestOneLossExcusesOnce(t *testing.T) {
	for n, wrong := range map[int]int{4: 0, 5: 1} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		j.kill(1.5, 1.6, 1.7)
		j.at(0, Admitted, 1)
		j.at(0, Admitted, 2)
		for i := range n - 2 {
			j.at(20, Admitted, int64(i+1), incomplete)
		}
		j.Judge()
		assert.Equal(t, wrong, j.Findings.Total[Windows], n)
		for _, v := range j.Findings.All() {
			assert.Len(t, v.Events, n)
		}
	}
}

func TestDenialsWithoutReason(t *testing.T) {
	for name, c := range map[string]struct {
		before func(j *Case)
		wrong  int
	}{
		"full":                       {func(j *Case) { j.at(0, Admitted, 1); j.at(0, Admitted, 2) }, 0},
		"full, and long ago":         {func(j *Case) { j.at(-40, Admitted, 1); j.at(-40, Admitted, 2) }, 1},
		"one has room":               {func(j *Case) { j.at(0, Admitted, 1) }, 1},
		"one may have been counted":  {func(j *Case) { j.at(0, Admitted, 1); j.at(0, Unknown, 0) }, 0},
		"one was refused":            {func(j *Case) { j.at(0, Admitted, 1); j.at(0, Refused, 0) }, 1},
		"one was denied, in its way": {func(j *Case) { j.at(0, Admitted, 1); j.at(2, Denied, 1) }, 0},
		"one was denied, before":     {func(j *Case) { j.at(-5, Admitted, 1); j.at(0, Denied, 1) }, 2},
		"an increment":               {func(j *Case) { j.at(0, Admitted, 1, func(e *Entry) { e.Kind, e.Cost = Increment, 9 }) }, 0},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		c.before(j)
		j.at(2, Denied, 2)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Denials], name)
	}
}

// A log that alone has all limits counts no hit that it denies: none is in the way of another.
func TestDenialsByOneLog(t *testing.T) {
	for name, c := range map[string]struct {
		limits   []string
		replicas int
		wrong    int
	}{
		"one log":           {[]string{events.SlidingLog}, 1, 1},
		"two replicas":      {[]string{events.SlidingLog}, 2, 0},
		"buckets beside it": {[]string{events.SlidingLog, events.FixedWindow}, 1, 0},
		"buckets":           {[]string{events.FixedWindow}, 1, 0},
	} {
		var rules []wire.Rule
		for i, name := range c.limits {
			limit := wire.Limit{Name: name, Limit: int64(2 + i), Window: "30s", Algorithm: name}
			rules = append(rules, wire.Rule{Per: []string{"user"}, Limits: []wire.Limit{limit}, Precision: "second", Count: "admitted", Throttle: "hard"})
		}
		j := caseOf(t, rules[0].Limits[0])
		event, err := contract.New(wire.Event{Name: "e", Retention: "1h", Rules: rules})
		require.NoError(t, err)
		began := j.Log.Began
		j.Log, j.Replicas = NewLog(event, []string{"a", "b"}, 1000, 1), c.replicas
		j.Log.Began = began
		j.at(0, Admitted, 1)
		j.at(2, Denied, 2, costs(2))
		j.at(2, Denied, 2)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Denials], "%s: %+v", name, j.Findings.All())
	}
}

// Of many violations some are kept, with their events, and the others are only counted: to
// gather the events of each would take the square of the log's length.
func TestManyViolations(t *testing.T) {
	const many = 400
	j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
	for range many {
		j.at(0, Admitted, 1)
	}
	for i := range int64(many) {
		j.at(100+2*i, Denied, 0)
		j.look(110e9, 110.1e9, 0, 20, 9)
	}
	j.Judge()
	assert.Equal(t, many, j.Findings.Total[Denials])
	assert.Equal(t, many, j.Findings.Total[Counts])
	assert.Len(t, j.Findings.kept[Counts], maxKept)
	gathered := 0
	for range many {
		j.Findings.Add(Violation{Check: Answers}, func() []Event { gathered++; return nil })
	}
	assert.Equal(t, maxKept, gathered)
}

func TestCountsAndTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		count  int64
		change func(j *Case)
		wrong  int
	}{
		"exact":              {3, nil, 0},
		"one too few":        {2, nil, 1},
		"one too many":       {4, nil, 1},
		"one may be counted": {4, func(j *Case) { j.at(1, Unknown, 0, func(e *Entry) { e.Stamp = 0 }) }, 0},
		"one was lost":       {2, func(j *Case) { j.kill(5, 6, 7) }, 0},
		"counted while it was dying": {2, func(j *Case) {
			j.kill(-1, 6, 7)
			j.Kills[0].Dead = j.Log.Began.Add(time.Second)
		}, 0},
		"counted when it was dead":  {2, func(j *Case) { j.kill(-1, 6, 7) }, 1},
		"killed after the answer":   {2, func(j *Case) { j.kill(25, 26, 27) }, 1},
		"one lost, of two replicas": {2, func(j *Case) { j.kill(5, 6, 7); j.Replicas = 2 }, 1},
		"paid twice":                {6, func(j *Case) { j.kill(0, 1e-9, 7); j.Replicas = 2 }, 0},
		"paid three times":          {7, func(j *Case) { j.kill(0, 1e-9, 7); j.Replicas = 2 }, 1},
		"a slow one may be left":    {4, func(j *Case) { j.at(1, Denied, 3, func(e *Entry) { e.Answered += 2e9 }) }, 0},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 3, Window: "30s"})
		for i := range int64(3) {
			j.at(0, Admitted, i+1)
		}
		if c.change != nil {
			c.change(j)
		}
		j.look(20e9, 20.1e9, -5, 20, c.count)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Counts], name)
	}
}

// What a replica that was given up may hold more of is excused, and no more: from half of the
// timeout on, with two replicas, for each try, in the seconds of the tries.
func TestCountsOfAReplicaThatWasGivenUp(t *testing.T) {
	took := func(d time.Duration) func(*Entry) {
		return func(e *Entry) { e.Answered = e.Sent + int64(d) }
	}
	on := func(target uint16) func(*Entry) { return func(e *Entry) { e.Target = target } }
	as := func(k Kind) func(*Entry) { return func(e *Entry) { e.Kind = k } }
	before := func(d time.Duration) func(*Entry) {
		return func(e *Entry) { e.Sent, e.Answered = e.Sent-int64(d), e.Sent+1e7 }
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		replicas int
		change   func(j *Case)
		most     int64 // of seconds 4 to 20, where one is admitted
	}{
		"none":                          {2, func(*Case) {}, 1},
		"a denied one":                  {2, func(j *Case) { j.at(6, Denied, 3, took(500*ms)) }, 2},
		"one replica":                   {1, func(j *Case) { j.at(6, Denied, 3, took(500*ms)) }, 1},
		"less than half":                {2, func(j *Case) { j.at(6, Denied, 3, took(499*ms)) }, 1},
		"an admitted one":               {2, func(j *Case) { j.at(6, Admitted, 3, took(500*ms)) }, 3},
		"an increment is added once":    {2, func(j *Case) { j.at(6, Admitted, 3, took(900*ms), as(Increment)) }, 3},
		"one without an answer":         {2, func(j *Case) { j.at(6, Unknown, 3, took(500*ms), func(e *Entry) { e.Stamp = 0 }) }, 2},
		"a check adds nothing":          {2, func(j *Case) { j.at(6, Denied, 3, took(500*ms), as(Check)) }, 1},
		"not old enough":                {2, func(j *Case) { j.at(6, Denied, 3); j.at(6, Denied, 3, before(350*ms)) }, 1},
		"one of another target":         {2, func(j *Case) { j.at(6, Denied, 3); j.at(6, Denied, 3, before(450*ms), on(1)) }, 1},
		"two tries beside an older one": {2, func(j *Case) { j.at(6, Denied, 3); j.at(6, Denied, 3, before(660*ms)) }, 4},
		"beside an older count": {2, func(j *Case) {
			j.at(6, Denied, 3)
			j.look(5.5e9, 6.01e9, 50, 50, 0)
		}, 2},
		"a try in a second behind the stamp": {2, func(j *Case) { j.at(3, Denied, 3, took(1100*ms), func(e *Entry) { e.Stamp = second0 + 3 }) }, 10},
		"a try in a second before the stamp": {2, func(j *Case) { j.at(20, Denied, 3, took(600*ms), func(e *Entry) { e.Stamp = second0 + 21 }) }, 2},
		"all of its tries were later":        {2, func(j *Case) { j.at(21, Denied, 3, took(700*ms)) }, 1},
	} {
		for _, more := range []int64{0, 1} {
			j := caseOf(t, wire.Limit{Name: "l", Limit: 30, Window: "30s"})
			j.Replicas = c.replicas
			j.at(10, Admitted, 9)
			c.change(j)
			j.look(30e9, 30.1e9, 4, 20, c.most+more)
			j.Judge()
			assert.Equal(t, int(more), j.Findings.Total[Counts], "%s: %d", name, c.most+more)
		}
	}
}

// Of what replicas of logs missed nothing counts twice, nor what is void on one of them. Only where one
// was slow, and the other was killed soon, something may be lost.
func TestReplicasOfLogs(t *testing.T) {
	slow := func(e *Entry) { e.Answered = e.Sent + 6e8 }
	away := func(j *Case) { j.kill(9, 12, 13) }
	for name, c := range map[string]struct {
		change              func(j *Case)
		outcome             Outcome
		how                 func(e *Entry)
		least, log, buckets int64 // at most in a log, and in buckets
	}{
		"an admitted one":               {func(*Case) {}, Admitted, func(*Entry) {}, 1, 1, 1},
		"while a server was away":       {away, Admitted, func(*Entry) {}, 1, 1, 2},
		"denied while it was":           {away, Denied, func(*Entry) {}, 0, 0, 1},
		"a slow one":                    {func(*Case) {}, Admitted, slow, 1, 1, 2},
		"denied by a slow one":          {func(*Case) {}, Denied, slow, 0, 0, 1},
		"killed after that":             {func(j *Case) { j.kill(12, 13, 14) }, Admitted, slow, 0, 1, 2},
		"denied, and killed after that": {func(j *Case) { j.kill(12, 13, 14) }, Denied, slow, 0, 1, 1},
	} {
		for _, log := range []bool{true, false} {
			limit, least, most := wire.Limit{Name: "l", Limit: 30, Window: "1m"}, c.least, c.buckets
			if log {
				limit.Algorithm, most = events.SlidingLog, c.log
			}
			for count := least - 1; count <= most+1; count++ {
				j := caseOf(t, limit)
				j.Replicas = 2
				j.at(10, c.outcome, 1, c.how)
				c.change(j)
				j.look(30e9, 30.1e9, 4, 20, count)
				j.Judge()
				assert.Equal(t, count < least || count > most, j.Findings.Total[Counts] > 0, "%s: %d of a log: %t", name, count, log)
			}
		}
	}
}

// A log over half its bound leaves out what is denied, also of rules that count it. Buckets never do.
func TestAFloodThatALogLeavesOut(t *testing.T) {
	for name, c := range map[string]struct {
		algorithm   string
		denied      int
		pause       int64 // seconds between them
		isViolation bool
	}{
		"a flood":            {events.SlidingLog, 400, 0, false},
		"few":                {events.SlidingLog, 300, 0, true},
		"one each second":    {events.SlidingLog, 400, 1, true},
		"a flood of buckets": {"", 400, 0, true},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 3, Window: "1h", Algorithm: c.algorithm}, func(r *wire.Rule) { r.Count = "all" })
		for i := range 3 {
			j.at(1, Admitted, int64(i+1))
		}
		for i := range c.denied {
			j.at(2+int64(i)*c.pause, Denied, int64(4+i))
		}
		j.look(1000e9, 1000.1e9, 0, 500, int64(3+c.denied-1))
		j.Judge()
		assert.Equal(t, c.isViolation, j.Findings.Total[Counts] > 0, "%s: %v", name, j.Findings.Total)
	}
}

// A reset of a log in replicas leaves at the most what was under way beside it, also if that was denied.
func TestResetsOfReplicasOfLogs(t *testing.T) {
	for name, c := range map[string]struct {
		sent, answered int64 // of another call
		outcome        Outcome
		most           int64
	}{
		"under way at it":        {4.9e9, 5.05e9, Denied, 1},
		"after it":               {6e9, 6.1e9, Denied, 0},
		"unknown shortly before": {4e9, 4.1e9, Unknown, 0},
		"unknown beside it":      {4.9e9, 5.05e9, Unknown, 1},
	} {
		for _, more := range []int64{0, 1} {
			j := caseOf(t, wire.Limit{Name: "l", Limit: 30, Window: "1m", Algorithm: events.SlidingLog})
			j.Replicas = 2
			j.at(0, Admitted, 1)
			j.at(1, c.outcome, 1, func(e *Entry) { e.Sent, e.Answered, e.Stamp = c.sent, c.answered, second0+c.sent/1e9 })
			j.Log.Reset(Reset{Call: Call{Sent: 5e9, Answered: 5.1e9}, Done: true})
			j.look(30e9, 30.1e9, 0, 20, c.most+more)
			j.Judge()
			assert.Equal(t, int(more), j.Findings.Total[Counts], "%s: %d", name, c.most+more)
		}
	}
}

// What one replica gave up, the other has alone until the hint is replayed: it may be gone if that
// one is killed before.
func TestAReplicaIsKilledThatHadAnAddAlone(t *testing.T) {
	for _, c := range []struct {
		took   time.Duration
		killed float64
		wrong  int
	}{
		{600 * time.Millisecond, 12, 0}, {600 * time.Millisecond, 20, 1}, {300 * time.Millisecond, 12, 1},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 30, Window: "30s"})
		j.Replicas = 2
		j.at(10, Admitted, 1, func(e *Entry) { e.Answered = e.Sent + int64(c.took) })
		j.kill(c.killed, c.killed+5, c.killed+6)
		j.look(int64(c.killed*1e9)+1e9, int64(c.killed*1e9)+1.1e9, 4, 20, 0)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Counts], "%+v", c)
	}
}

// What was counted before a reset is gone, what came after it is there; what was under way may
// be, and take something with it.
func TestCountsAfterAReset(t *testing.T) {
	settle := func(j *Case, at int64) { // the latest hit, with 0
		j.Log.Release(Release{Call: Call{Sent: at, Answered: at + 1e8}, Entry: int32(len(j.Log.entries) - 1), Reserved: true, Done: true})
	}
	during := func(e *Entry) { e.Sent, e.Answered = 4.9e9, 5.3e9 }
	increment := func(e *Entry) { e.Kind = Increment }
	for name, c := range map[string]struct {
		count int64
		after func(j *Case)
		wrong int
	}{
		"nothing":                         {0, nil, 0},
		"what was":                        {3, nil, 1},
		"it was not acknowledged":         {3, func(j *Case) { j.Log.resets[0].Done = false }, 0},
		"a replica may have missed some":  {3, func(j *Case) { j.Replicas = 2; j.at(1, Admitted, 4, func(e *Entry) { e.Answered += 6e8 }) }, 0},
		"what came after":                 {1, func(j *Case) { j.at(7, Admitted, 1) }, 0},
		"without what came after":         {0, func(j *Case) { j.at(7, Admitted, 1) }, 1},
		"what was under way":              {1, func(j *Case) { j.at(5, Admitted, 1, during) }, 0},
		"without it":                      {0, func(j *Case) { j.at(5, Admitted, 1, during) }, 0},
		"what was under way, and settled": {1, func(j *Case) { j.at(5, Admitted, 1, during); settle(j, 5.3e9) }, 0},
		"what came after, and settled":    {1, func(j *Case) { j.at(7, Admitted, 1); settle(j, 7.2e9) }, 1},
		"a denied one has taken it along": {1, func(j *Case) { j.at(5, Denied, 3, during); j.at(7, Admitted, 1); j.at(8, Admitted, 2) }, 0},
		"and not both":                    {0, func(j *Case) { j.at(5, Denied, 3, during); j.at(7, Admitted, 1); j.at(8, Admitted, 2) }, 1},
		"late, into what was forgotten": {1, func(j *Case) {
			j.at(1, Admitted, 0, increment, func(e *Entry) { e.Kind, e.Sent, e.Answered = Late, 7e9, 7.1e9 })
		}, 0},
		"and lost there": {0, func(j *Case) {
			j.at(1, Admitted, 0, increment, func(e *Entry) { e.Kind, e.Sent, e.Answered = Late, 7e9, 7.1e9 })
		}, 1},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 3, Window: "30s"})
		for i := range int64(3) {
			j.at(0, Admitted, i+1)
		}
		j.Log.Reset(Reset{Call: Call{Sent: 5e9, Answered: 5.1e9}, Done: true})
		if c.after != nil {
			c.after(j)
		}
		j.look(20e9, 20.1e9, -5, 20, c.count)
		j.Judge()
		got := 0
		for _, v := range j.Findings.All() {
			if strings.Contains(v.Text, "a count of") {
				got++
			}
		}
		assert.Equal(t, c.wrong, got, name)
	}
}

// A window holds its limit once more after a reset, and what was under way at the reset.
func TestWindowsAfterAReset(t *testing.T) {
	during := func(e *Entry) { e.Sent, e.Answered = 4.9e9, 5.3e9 }
	midway := func(e *Entry) { e.Sent = 5.05e9 }
	for name, c := range map[string]struct {
		after               func(j *Case)
		wrong               int
		atReset, afterReset int64
	}{
		"as many again":         {func(j *Case) { j.at(7, Admitted, 1); j.at(7, Admitted, 2) }, 0, 0, 0},
		"more than that":        {func(j *Case) { j.at(7, Admitted, 1); j.at(7, Admitted, 2); j.at(7, Admitted, 3) }, 1, 0, 0},
		"one was under way":     {func(j *Case) { j.at(5, Admitted, 1, during); j.at(7, Admitted, 1); j.at(7, Admitted, 2) }, 0, 1, 0},
		"one came while it was": {func(j *Case) { j.at(5, Admitted, 1, midway); j.at(7, Admitted, 1); j.at(7, Admitted, 2) }, 0, 1, 0},
		"one was being denied": {func(j *Case) {
			j.at(5, Denied, 2, during)
			j.at(7, Admitted, 1)
			j.at(7, Admitted, 2)
			j.at(7, Admitted, 2)
		}, 0, 0, 1},
		"and one more than these": {func(j *Case) {
			j.at(5, Denied, 2, during)
			j.at(7, Admitted, 1)
			j.at(7, Admitted, 2)
			j.at(7, Admitted, 2)
			j.at(7, Admitted, 2)
		}, 1, 0, 0},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		j.at(0, Admitted, 1)
		j.at(0, Admitted, 2)
		j.Log.Reset(Reset{Call: Call{Sent: 5e9, Answered: 5.1e9}, Done: true})
		c.after(j)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[Windows], name)
		assert.Equal(t, c.atReset, j.Findings.Excused.AtResets, name)
		assert.Equal(t, c.afterReset, j.Findings.Excused.AfterResets, name)
	}
}

// A lone caller's decisions after a late increment and a reset are known, but for those of
// targets that may not see them yet.
func TestPredictionsOfThePast(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(j *Case, user int32)
		sent    int64
		target  uint16
		outcome Outcome
		count   int64
		wrong   bool
		known   int64 // decisions to the last number
	}{
		"a late one decides":               {addLate, 1.2e9, 0, Denied, 2, false, 2},
		"it does not":                      {addLate, 1.2e9, 0, Admitted, 2, true, 2},
		"for another target, too":          {addLate, 2.2e9, 1, Admitted, 2, true, 2},
		"which may not know yet":           {addLate, 1.5e9, 1, Admitted, 2, false, 1},
		"after a reset there is room":      {forget, 1.2e9, 0, Admitted, 1, false, 3},
		"there is none":                    {forget, 1.2e9, 0, Denied, 2, true, 3},
		"another target may not know yet":  {forget, 1.5e9, 1, Denied, 2, false, 2},
		"and knows":                        {forget, 2.2e9, 1, Denied, 2, true, 3},
		"a reset that was not confirmed":   {func(j *Case, user int32) { forget(j, user); j.Log.resets[0].Done = false }, 1.2e9, 0, Denied, 2, false, 2},
		"a reset takes the late increment": {func(j *Case, user int32) { addLate(j, user); resetOf(j, user) }, 1.2e9, 0, Admitted, 1, false, 2},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
		user := j.Log.NewUser(Quiet)
		j.at(0, Admitted, 1, func(e *Entry) { e.User = user })
		c.change(j, user)
		j.at(2, c.outcome, c.count, func(e *Entry) {
			e.User, e.Target, e.Sent, e.Answered, e.RetryAfter = user, c.target, c.sent, c.sent+1e8, 23
		})
		j.Judge()
		verdicts := j.Findings.Total[Counts] + j.Findings.Total[Denials]
		assert.Equal(t, c.wrong, verdicts > 0, name)
		assert.Equal(t, c.known, j.Findings.Checked.Predictions, name)
	}
}

// addLate fills the limit of a user with one admitted hit.
func addLate(j *Case, user int32) {
	j.at(-5, Admitted, 0, func(e *Entry) { e.User, e.Kind, e.Sent, e.Answered = user, Late, 0.5e9, 0.6e9 })
}

// forget has been admitted once more before it is.
func forget(j *Case, user int32) {
	j.at(0, Admitted, 2, func(e *Entry) { e.User, e.Sent, e.Answered = user, 0.5e9, 0.6e9 })
	resetOf(j, user)
}

func resetOf(j *Case, user int32) {
	j.Log.Reset(Reset{Call: Call{Sent: 1e9, Answered: 1.1e9}, Counter: j.Log.User(user).Counters[0], Done: true})
}

// A lone caller's decisions are known to the last number: nothing is wrong with those of a target
// that tries each second in turn, and something is where one of its numbers is another.
func TestALoneCaller(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 600 {
		precision := []string{"second", "minute"}[rng.IntN(2)]
		step := map[string]int64{"second": 1, "minute": 60}[precision]
		limit, length := 1+rng.Int64N(6), (1+rng.Int64N(7))*step
		all := rng.IntN(2) == 0
		j := caseOf(t, wire.Limit{Name: "l", Limit: limit, Window: fmt.Sprintf("%ds", length)}, func(r *wire.Rule) {
			r.Precision = precision
			if all {
				r.Count = "all"
			}
		})
		user := j.Log.NewUser(Quiet)
		var events []Entry
		holds := func(at int64) (sum int64) {
			for _, e := range events {
				if e.Stamp >= (at-length+1)/step*step && e.Stamp <= at {
					sum += int64(e.Cost)
				}
			}
			return sum
		}
		now, wrong := int64(0), rng.IntN(25) // in one of its answers, if n is odd
		for i := range 25 {
			now += rng.Int64N(3) * step
			e := Entry{Call: Call{Sent: now*1e9 + int64(i)*1e6}, Stamp: second0 + now, User: user, Cost: int32(1 + rng.Int64N(3))}
			e.Answered = e.Sent + 5e5
			if int64(e.Cost) > limit {
				e.Cost = 1
			}
			count := holds(e.Stamp)
			if count+int64(e.Cost) > limit {
				e.Outcome, e.Denies = Denied, 1
			}
			if e.Outcome == Admitted || all {
				count += int64(e.Cost)
				events = append(events, e)
			}
			if e.Outcome == Denied {
				for e.RetryAfter++; holds(e.Stamp+int64(e.RetryAfter))+int64(e.Cost) > limit; {
					e.RetryAfter++
				}
			}
			if i == wrong && n%2 == 1 {
				switch by := int32(1 - 2*rng.IntN(2)); {
				case e.Outcome == Denied && rng.IntN(2) == 0 && e.RetryAfter+by > 1:
					e.RetryAfter += by
				default:
					count += int64(by)
				}
			}
			j.Log.Note(e, []int64{count})
		}
		j.Judge()
		require.Equal(t, int64(25), j.Findings.Checked.Predictions)
		require.Equal(t, n%2 == 1, len(j.Findings.All()) > 0, "%d: %v %v", n, j.Log.entries, j.Findings.All())
	}
}

// A denial that is remembered says what was so when it was given, also one of what can never
// fit, and one of a batch; it says nothing else.
func TestDenialsThatRepeat(t *testing.T) {
	limit := wire.Limit{Name: "user-2-per-1s", Limit: 2, Window: "1s"}
	tooMuch := func(e *Entry) { e.Cost, e.RetryAfter = 3, contract.Never }
	for name, c := range map[string]struct {
		first Kind
		by    uint16 // the target that admits in between
		last  int64
		wrong int
		again uint16 // the target that admits once more
	}{
		"as it was after its batch":         {first: Batch, by: 0, last: 1, again: 1},
		"as it was before others of later":  {first: Hit, by: 0, last: 1, again: 1, wrong: 1},
		"as it is now":                      {first: Hit, by: 1, last: 1},
		"as it was":                         {first: Hit, by: 1, last: 0},
		"as it was in the batch":            {first: Batch, by: 1, last: 0},
		"as it never was":                   {first: Hit, by: 1, last: 2, wrong: 1},
		"as it was before its own admitted": {first: Hit, by: 0, last: 0, wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			j := caseOf(t, limit)
			user := j.Log.NewUser(Quiet)
			call := func(k Kind, o Outcome, count int64, change ...func(e *Entry)) {
				j.at(0, o, count, append(change, func(e *Entry) {
					e.User, e.Kind = user, k
					e.Sent = int64(len(j.Log.entries)) * 2e8
					e.Answered = e.Sent + 1e8
					if k == Batch {
						e.Sent, e.Answered = 0, 1e8 // one call
					}
				})...)
			}
			call(c.first, Denied, 0, tooMuch)
			call(c.first, Admitted, 1, func(e *Entry) { e.Target = c.by })
			if c.again > 0 {
				call(Hit, Admitted, 2, func(e *Entry) { e.Target = c.again })
			}
			call(Hit, Denied, c.last, tooMuch)
			j.Judge()
			require.Len(t, j.Findings.All(), c.wrong)
			assert.Equal(t, c.wrong == 0 && c.last == int64(c.again), j.Findings.Excused.Repeated == 1)
		})
	}
}

// A hit of a batch does not count those behind it, unless it met contention and was decided later. Then these do not
// count it.
func TestTheOrderOfABatch(t *testing.T) {
	for name, c := range map[string]struct {
		limit wire.Limit
		stamp int64 // of the first, which counts both
		wrong int
	}{
		"in its order":                     {wire.Limit{Limit: 10, Window: "1m"}, 0, 2},
		"one met contention":               {wire.Limit{Limit: 10, Window: "1m"}, 1, 0},
		"token bucket, in its order":       {wire.Limit{Limit: 10, Window: "1h", Burst: 10, Algorithm: events.TokenBucket}, 0, 1},
		"token bucket, one met contention": {wire.Limit{Limit: 10, Window: "1h", Burst: 10, Algorithm: events.TokenBucket}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.limit.Name = "user-10"
			j := caseOf(t, c.limit)
			user := j.Log.NewUser(Quiet)
			for i, count := range []int64{2, 1} {
				j.at(0, Admitted, count, func(e *Entry) {
					e.User, e.Kind, e.Sent, e.Answered = user, Batch, int64(i), 12e8
					if i == 0 {
						e.Stamp += c.stamp
					}
				})
			}
			j.Judge()
			require.Len(t, j.Findings.All(), c.wrong)
		})
	}
}

// Each excuse has words. One that did not occur is left out.
func TestExcusesInWords(t *testing.T) {
	assert.Empty(t, Excused{}.Texts())
	assert.Equal(t, []string{"3 hits admitted by on_error", "1 calls refused for overload"}, Excused{OnError: 3, Refused: 1}.Texts())
	for field := range reflect.TypeFor[Excused]().Fields() {
		assert.NotEmpty(t, field.Tag.Get("text"), field.Name)
	}
}
