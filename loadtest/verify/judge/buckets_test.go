package judge

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// from notes when a call began, in milliseconds after its second, and that it takes 10 ms.
func from(ms int64) func(*Entry) {
	return func(e *Entry) {
		e.Sent = e.Sent/1e9*1e9 + ms*1e6
		e.Answered = e.Sent + 1e7
	}
}

func costs(n int32) func(*Entry) { return func(e *Entry) { e.Cost = n } }

// Of a bucket of 3 to which one returns in a second an interval is wrong that no stamps within the calls explain.
// A denial is if no stamps and no order do.
func TestTokenBuckets(t *testing.T) {
	as := func(k Kind) func(*Entry) { return func(e *Entry) { e.Kind = k } }
	again := func(seconds int32) func(*Entry) { return func(e *Entry) { e.RetryAfter = seconds } }
	full := func(j *Case) { j.at(0, Admitted, 3, costs(3), from(0)) }
	for name, c := range map[string]struct {
		change func(j *Case)
		check  string
		wrong  int
	}{
		"one more":                {func(j *Case) { full(j); j.at(1, Admitted, 3, from(0), costs(2)) }, Windows, 1},
		"the calls are that long": {func(j *Case) { full(j); j.at(1, Admitted, 3, from(-9)) }, Windows, 0},
		"by clocks that differ":   {func(j *Case) { j.Skew = 6e6; full(j); j.at(1, Admitted, 3, from(-15)) }, Windows, 0},
		"in a later interval": {func(j *Case) {
			full(j)
			j.at(20, Admitted, 2, from(0), costs(2))
			j.at(20, Admitted, 4, from(50), costs(2))
		}, Windows, 1},
		"increments are not admitted": {func(j *Case) { full(j); j.at(0, Admitted, 0, from(50), as(Increment), costs(9)) }, Windows, 0},
		"a reset is between": {func(j *Case) {
			full(j)
			j.Log.Reset(Reset{Call: Call{Sent: 2e8, Answered: 3e8}, Done: true})
			j.at(0, Admitted, 3, costs(3), from(400))
		}, Windows, 0},
		"the store was lost between":         {func(j *Case) { full(j); j.kill(0.1, 0.2, 0.2); j.at(0, Admitted, 3, costs(3), from(400), incomplete) }, Windows, 0},
		"one returned by all stamps":         {func(j *Case) { full(j); j.at(1, Denied, 3, from(20)) }, Denials, 1},
		"one that is under way may be ahead": {func(j *Case) { full(j); j.at(1, Denied, 3, from(20)); j.at(1, Admitted, 3, from(25)) }, Denials, 0},
		"one came behind it":                 {func(j *Case) { full(j); j.at(1, Denied, 3, from(20)); j.at(1, Admitted, 3, from(40)) }, Denials, 1},
		"one that was older than what it follows": {func(j *Case) {
			j.at(0, Admitted, 2, from(0), costs(2), func(e *Entry) { e.Answered += 9e8 }) // the last in the log, by the stamp of before
			j.at(0, Admitted, 2, from(905), costs(2))
			j.at(1, Denied, 3, from(850))
		}, Denials, 0},
		"of unknown outcome": {func(j *Case) {
			j.at(0, Unknown, 0, costs(3), from(0), func(e *Entry) { e.Stamp = 0 })
			j.at(0, Denied, 3, from(900))
		}, Denials, 0},
		"it lacks some of it":           {func(j *Case) { full(j); j.at(1, Admitted, 1, from(0)) }, Counts, 1},
		"a wait of too little":          {func(j *Case) { full(j); j.at(1, Denied, 2, from(500), costs(3), again(1)) }, RetryAfter, 1},
		"a wait of more than is needed": {func(j *Case) { full(j); j.at(1, Denied, 2, from(500), costs(3), again(3)) }, RetryAfter, 1},
	} {
		j := caseOf(t, wire.Limit{Name: "l", Limit: 1, Window: "1s", Burst: 3, Algorithm: events.TokenBucket})
		c.change(j)
		j.Judge()
		assert.Equal(t, c.wrong, j.Findings.Total[c.check], "%s: %+v", name, j.Findings.All())
	}
}

// Of two leases of 5 s a third is wrong while both are surely live, and a denial if one of them surely is not.
func TestLeases(t *testing.T) {
	release := func(j *Case, entry int32, at int64, done bool) {
		j.Log.Release(Release{Call: Call{Sent: at * 1e6, Answered: at*1e6 + 1e7}, Entry: entry, Done: done})
	}
	for name, c := range map[string]struct {
		at     int64 // seconds, of the third
		change func(j *Case)
		live   int // wrong if it was admitted
		denied int // and if it was denied
	}{
		"both are live":                        {2, func(*Case) {}, 1, 0},
		"one has ended":                        {6, func(*Case) {}, 0, 1},
		"just before one ends, of such clocks": {4, func(j *Case) { j.Skew = 1e9 }, 0, 0},
		"one was released":                     {2, func(j *Case) { release(j, 0, 900, true) }, 0, 1},
		"one may have been released":           {2, func(j *Case) { release(j, 0, 1000, false) }, 0, 0},
		"another process knows it not yet":     {2, func(j *Case) { release(j, 0, 1500, true) }, 0, 0},
		"one was released behind it":           {2, func(j *Case) { release(j, 0, 2020, true) }, 1, 0},
		"costs are of no matter":               {2, func(j *Case) { j.Log.entries[0].Cost = 9; release(j, 0, 500, true) }, 0, 1},
	} {
		for outcome, wrong := range map[Outcome]map[string]int{Admitted: {Windows: c.live}, Denied: {Denials: c.denied}} {
			j := caseOf(t, wire.Limit{Name: "l", Limit: 2, Window: "5s", Algorithm: events.Concurrency})
			j.at(0, Admitted, 1, from(0))
			j.at(0, Admitted, 2, from(500))
			c.change(j)
			j.at(c.at, outcome, 2, from(0))
			j.Judge()
			for check, n := range wrong {
				assert.Equal(t, n, j.Findings.Total[check], "%s, %d: %+v", name, outcome, j.Findings.All())
			}
		}
	}
}
