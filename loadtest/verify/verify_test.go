package verify

import (
	"bytes"
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

func reportOf(t *testing.T, config Config) (*Report, string) {
	t.Helper()
	r := newRun(config)
	r.alone = true // no other client calls
	report, err := r.run(t.Context())
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	return report, text.String()
}

// against is a run of some thousand calls. It is for a bubble, in whose fake time a busy machine makes no
// less of them.
func against(s *target) Config {
	return Config{
		URLs: []string{"http://a", "http://b"}, Duration: 2500 * time.Millisecond, Clients: 4, Features: 12, Rate: 300, Seed: 1,
		Skew: time.Millisecond, transport: s.transport(),
	}
}

// What is right passes, and all was looked at, whatever the rules are.
func TestRightTargets(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]wire.Rule{
		"limits by the second": targetRules, "by the minute": minuteRules, "the whole event": wholeRules,
		"all hits counted": allRules, "elastic": elasticRules, "logs": logRules, "a log beside buckets": bothRules,
		"fixed windows": fixedRules, "a calendar": calendarRules, "token buckets": bucketRules, "queues": queueRules,
		"leases": leaseRules, "buckets that count all": takenRules, "buckets and leases alone": aloneRules,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				awaitTurn(rules)
				config := against(&target{rules: rules})
				config.Clients = 8
				if rules[0].Precision == "minute" { // there is time to come back in
					config.Duration, config.Rate = 90*time.Second, 20
				}
				report, text := reportOf(t, config)
				require.True(t, report.OK(), text)
				assert.NotContains(t, text, "others may call for it", "all is held")
				assert.Equal(t, !strings.Contains(name, "alone"), report.Calls["late"] > 0, "buckets alone remember no past")
				assert.Positive(t, report.Calls["reset"])
				assert.Equal(t, strings.Contains(name, "leases"), report.Calls["renew"] > 0)
				assert.Positive(t, report.Calls["settle"])
				c := report.Checked
				for name, n := range map[string]int64{
					"windows": c.Windows, "denials": c.Denials, "counts": c.Counts, "bodies": c.Bodies, "headers": c.Headers,
					"waits": c.Waits, "predictions": 2*c.Predictions - c.Lone,
				} {
					assert.Positive(t, n, name)
				}
				if !slices.ContainsFunc(rules, func(r wire.Rule) bool { return len(r.Per) == 0 }) { // which others fill
					assert.Positive(t, c.Retries)
				}
				if rules[0].Count != "all" { // what comes too early would make the wait longer
					assert.Positive(t, c.Early)
				}
				e := report.Excused
				assert.Zero(t, e.Windows+e.OnError+e.LowCounts+e.HighCounts+e.UnknownOutcome+e.Repeated+e.Overshoot, text)
			})
		})
	}
}

// wrong is a target that is wrong, and what finds it.
type wrong struct {
	target *target
	check  string
	text   string // of the violation
}

// third is true of each third hit.
func third(n int) bool { return n%3 == 0 }

// Each way of being wrong is found, and called by its name. Those that need seconds are in TestTargetsThatAreWrongAtTimes.
func TestWrongTargets(t *testing.T) {
	t.Parallel()
	findWrong(t, map[string]wrong{
		"read-then-increment": {&target{readThenIncrement: true}, judge.Windows, "admitted in the "},
		"headers that lie": {&target{says: func(h http.Header) {
			h.Set("RateLimit", strings.Replace(h.Get("RateLimit"), ";r=0", ";r=1", 1))
		}}, judge.Headers, `Ratelimit is`},
		"no Retry-After":        {&target{says: func(h http.Header) { h.Del("Retry-After") }}, judge.Headers, `Retry-After is ""`},
		"retry_after too short": {&target{answers: waitOtherwise(-1, anyLimit)}, judge.RetryAfter, "has a retry_after of 1s"},
		"retry_after too long":  {&target{answers: waitOtherwise(1, anyLimit)}, judge.RetryAfter, "by the log it fits all limits a second before"},
		"lost hits":             {&target{forgets: third}, judge.Counts, "the log"},
		"hits twice":            {&target{twice: third}, judge.Counts, "the log"},
		"counts of less":        {&target{counts: func(c *wire.Count) { c.Count = c.Count * 9 / 10 }}, judge.Counts, "a count of"},
		"windows of seconds, where the rules say minutes": {
			&target{rules: minuteRules, precise: true}, judge.RetryAfter, "and by the log user-",
		},
		"the whole event by user": {&target{rules: wholeRules, splits: true}, judge.Counts, "the whole event: the answer to a hit counts"},
		"denies the whole event early": {&target{rules: wholeLimit("400/4s"), deniesAbove: func(l contract.Limit) int64 {
			if l.Whole() {
				return 5
			}
			return l.N
		}}, judge.Denials, "the whole event: a cost of"},
		"retry_after of the whole event too short": {
			// Without increments: beside a late one a denial may tell of before it.
			&target{rules: wholeLimit("50/10s"), answers: waitOtherwise(-8, whole), refuses: func(route string) bool { return route == "/increment" }},
			judge.RetryAfter, "and by the log event-50-per-10s then has at least",
		},
		"retry_after of the whole event too long": {
			&target{rules: wholeRules, answers: waitOtherwise(8, whole)}, judge.RetryAfter, "by the log it fits all limits a second before",
		},
		"takes back what it counts":         {&target{rules: allRules, takesBack: true}, judge.Counts, "the log"},
		"counts what it takes back":         {&target{rules: allRules, takesNoneBack: true}, judge.Counts, "ip:"},
		"forgets the denied hit that fills": {&target{rules: allRules, forgetsItself: true}, judge.Bodies, "it counts the denied hit"},
		"elastic, and it stretches not":     {&target{rules: elasticRules, elasticNever: true}, judge.Bodies, "user-1-per-1s: denied, and with the hit it holds"},
		"elastic, and it always stretches": {
			&target{rules: append(wholeLimit("20/10s"), elasticRules[0]), elasticAlways: true}, judge.Bodies, "user-1-per-1s: allowed, and with the hit it holds",
		},
		"late increments of now":              {&target{lateIsNow: true}, judge.Counts, "the log"},
		"lost late increments":                {&target{lateIsLost: true}, judge.Counts, "the log"},
		"late increments that decide nothing": {&target{rules: roomyRules, lateIsUndecided: true}, judge.Counts, "by the log it is"},
		"resets that forget nothing":          {&target{resetsNothing: true}, judge.Counts, "the log"},
		"resets that forget others":           {&target{resetsAll: true}, judge.Counts, "the log"},
		"a window too short": {&target{counts: func(c *wire.Count) {
			c.From.Time = c.From.Add(time.Second)
		}}, judge.Bodies, "the window of"},
		"a history of more":     {&target{history: func(h *wire.History) { h.Buckets[len(h.Buckets)-1].Count++ }}, judge.Counts, "a bucket of the history"},
		"stamps that make room": {&target{stampsAhead: 3, admits: allow}, judge.Stamps, "stamped"},
		"denies everything":     {&target{deniesAbove: func(contract.Limit) int64 { return 0 }}, judge.Denials, "is denied, and"},
		"denies the last":       {&target{deniesAbove: func(l contract.Limit) int64 { return l.N - 1 }}, judge.Denials, "is denied, and"},
		"admits everything":     {&target{admits: allow}, judge.Windows, "admitted in the "},
		"a denial with a 200":   {&target{status: http.StatusOK}, judge.Bodies, "denied, with status 200"},
		"remaining of before":   {&target{answers: func(d *wire.Decision) { d.Limits[0].Remaining++ }}, judge.Bodies, "remaining is"},
		"windows of seconds, where a log slides by milliseconds": {&target{rules: logRules, bySeconds: true}, judge.Windows, "admitted in the 1s"},
		"windows of a log that are too short":                    {&target{rules: logRules, longer: -300}, judge.Windows, "admitted in the 1s"},
		"waits of a log that are too short": {
			&target{rules: logRules, answers: waitOtherwise(-1, anyLimit)}, judge.RetryAfter, "has a retry_after of 1s",
		},
		"waits of a log that are too long": {
			&target{rules: logRules, answers: waitOtherwise(1, anyLimit)}, judge.RetryAfter, "by the log it fits all limits a second before",
		},
		"buckets, where the rules say logs": {&target{rules: logRules, answers: func(d *wire.Decision) {
			d.Limits[0].Algorithm = ""
		}}, judge.Bodies, "counts by the algorithm"},
		"a wait in milliseconds that is none": {&target{rules: logRules, answers: func(d *wire.Decision) {
			d.RetryAfterMS = 1000
		}}, judge.Bodies, "retry_after_ms is 1000"},
		"fixed windows that turn late":   {&target{rules: fixedRules, turnsLate: 2}, judge.Windows, "admitted in the 4s"},
		"a calendar that turns late":     {&target{rules: calendarRules, turnsLate: 1}, judge.Windows, "admitted in the hour"},
		"waits that end before the turn": {&target{rules: calendarRules, answers: waitOtherwise(-1, anyLimit)}, judge.RetryAfter, "and by the log user-"},
		"waits beyond the turn":          {&target{rules: calendarRules, answers: waitOtherwise(1, anyLimit)}, judge.RetryAfter, "by the log it fits all limits a second before"},
		"a calendar of another window":   {&target{rules: calendarRules, answers: func(d *wire.Decision) { d.Limits[0].Window = "1h" }}, judge.Bodies, "the rules have user-6-per-hour"},
		"waits of no turn":               {&target{rules: calendarRules, answers: waitOtherwise(1, anyLimit)}, judge.Bodies, "and no window begins then"},
		"the usual length of a day that is longer": {&target{rules: havana, says: func(h http.Header) {
			h.Set("RateLimit-Policy", strings.Replace(h.Get("RateLimit-Policy"), "w=90000", "w=86400", 1))
		}}, judge.Headers, "w=86400"},
		"a bucket that less returns to":   {&target{rules: bucketRules, refills: -40}, judge.Denials, "is denied, and"},
		"a bucket with a larger burst":    {&target{rules: bucketRules, deniesAbove: func(l contract.Limit) int64 { return l.Most() + l.Burst }}, judge.Windows, " ms of "},
		"a bucket with a smaller burst":   {&target{rules: bucketRules, deniesAbove: func(l contract.Limit) int64 { return min(l.Most(), l.N) }}, judge.Denials, "is denied, and"},
		"a bucket that forgets hits":      {&target{rules: aloneRules, forgets: third}, judge.Counts, "user:"},
		"a bucket that takes hits twice":  {&target{rules: aloneRules, twice: third}, judge.Counts, "user:"},
		"a bucket that takes back":        {&target{rules: takenRules, takesBack: true}, judge.Counts, "user:"},
		"a bucket's waits that are short": {&target{rules: slowRules, answers: waitOtherwise(-1, anyLimit)}, judge.RetryAfter, "by the log user-3-per-4s then has at least"},
		"a bucket's waits that are long":  {&target{rules: slowRules, answers: waitOtherwise(1, anyLimit)}, judge.RetryAfter, "by the log it fits all limits a second before"},
		"what remains of a rate":          {&target{rules: bucketRules, answers: func(d *wire.Decision) { d.Limits[0].Remaining = max(3-d.Limits[0].Count, 0) }}, judge.Bodies, "remaining is"},
		"turns that come late":            {&target{rules: queueRules, answers: func(d *wire.Decision) { d.Wait *= 2 }}, judge.Bodies, "ms, and its turn is in"},
		"turns that are all now":          {&target{rules: queueRules, answers: func(d *wire.Decision) { d.Wait = 0 }}, judge.Bodies, "wait is 0 ms"},
		"a wait without a queue":          {&target{rules: bucketRules, answers: func(d *wire.Decision) { d.Wait = 0.1 }}, judge.Bodies, "wait is 100 ms"},
		"releases that release nothing":   {&target{rules: leaseRules, releasesNothing: true}, judge.Denials, "is denied, and"},
		"releases that release all":       {&target{rules: leaseRules, releasesAll: true}, judge.Windows, "leases that are live at"},
		"more leases":                     {&target{rules: leaseRules, deniesAbove: func(l contract.Limit) int64 { return l.N + 2 }}, judge.Windows, "leases that are live at"},
		"a lease that cannot be released": {&target{rules: leaseRules, answers: func(d *wire.Decision) { d.Reservation = "" }}, judge.Bodies, "the reservation is"},
		"a lease that was settled":        {&target{rules: leaseRules, settled: http.StatusConflict}, judge.Answers, "with status 409"},
		"a lease that has ended at once":  {&target{rules: leaseRules, settled: http.StatusGone}, judge.Answers, "with status 410"},
		"renewals that end early":         {&target{rules: leaseRules, renewsLonger: -1000}, judge.Counts, "the log"},
		"renewals of what has not ended":  {&target{rules: leaseRules, renewsNone: true}, judge.Answers, "is not renewed, and has not ended"},
		"settlements that change nothing": {&target{settlesAs: func(_, reserved int64) int64 { return reserved }}, judge.Counts, "the log"},
		"settlements that give all back":  {&target{settlesAs: func(int64, int64) int64 { return 0 }}, judge.Counts, "the log"},
		"settlements in a log":            {&target{rules: logRules, settlesAs: func(cost, _ int64) int64 { return cost + 1 }}, judge.Counts, "the log"},
		"an error of its own":             {&target{status: http.StatusInternalServerError}, judge.Answers, "with status 500"},
		"another limit's name":            {&target{answers: func(d *wire.Decision) { d.Limits[1].Name = "other" }}, judge.Bodies, "the rules have user-5-per-3s"},
	})
}

// findWrong runs verify against each target, which it must find wrong.
func findWrong(t *testing.T, targets map[string]wrong) {
	for i, name := range slices.Sorted(maps.Keys(targets)) {
		if bubble.RaceDetector && i%8 != 0 { // they differ in what one goroutine judges
			continue
		}
		wrong := targets[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				awaitTurn(wrong.target.rules)
				config := against(wrong.target)
				if wrong.target.turnsLate > 0 { // the windows still have room when they should turn
					time.Sleep(1900 * time.Millisecond)
				}
				switch {
				case wrong.target.fixedWindows:
					// Hits begin in the second second of a window of three: so they are not spread as
					// they are where the windows begin with the traffic.
					for time.Now().Unix()%3 != 1 {
						time.Sleep(10 * time.Millisecond)
					}
				case wrong.target.bySeconds:
					config.Duration, config.Clients = 5*time.Second, 8
				case strings.Contains(name, "renewals"):
					config.Duration, config.Clients, config.Rate = 15*time.Second, 32, 600
				case wrong.check == judge.RetryAfter, wrong.check == judge.Denials, strings.Contains(name, "late"), strings.Contains(name, "reset"):
					// There is a wait to come back from, or a denial to be sure of, for many users with one caller.
					config.Duration, config.Clients, config.Rate = 5*time.Second, 32, 600
				}
				report, text := reportOf(t, config)
				assert.Positive(t, report.Wrong[wrong.check], text)
				found := slices.ContainsFunc(report.Violations, func(v judge.Violation) bool {
					return v.Check == wrong.check && strings.Contains(v.Text, wrong.text) && len(v.Events) > 0
				})
				assert.True(t, found, text)
				assert.Contains(t, text, "WRONG  "+wrong.check)
			})
		})
	}
}

// awaitTurn waits, in fake time, for the last seconds before a calendar's hour turns, if the rules have one:
// Havana's clock goes back that night.
func awaitTurn(rules []wire.Rule) {
	for _, r := range rules {
		switch r.Limits[0].Calendar {
		case "Asia/Kathmandu":
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 14, 58, 0, time.UTC)))
		case "America/Havana":
			time.Sleep(time.Until(time.Date(2000, 10, 29, 12, 0, 0, 0, time.UTC)))
		}
	}
}

// waitOtherwise has hits that such limits deny wait for so much more.
func waitOtherwise(by int64, such func(s wire.LimitState) bool) func(d *wire.Decision) {
	return func(d *wire.Decision) {
		for i, s := range d.Limits {
			if !s.Allowed && s.Reset != nil && such(s) {
				wait := max(*s.Reset+by, 1)
				d.Limits[i].Reset = &wait
			}
		}
	}
}

func anyLimit(wire.LimitState) bool { return true }
func whole(s wire.LimitState) bool  { return s.Feature == "" }

// allow admits whatever there is room for or not.
func allow(d *wire.Decision, _ bool) {
	d.Allowed = true
	for i := range d.Limits {
		d.Limits[i].Allowed, d.Limits[i].Reset = true, new(int64)
	}
}

// Rules of kinds that the rules made up here have not.
const (
	ownMinutes = `{events: {verify: {retention: 24h, limits: [
		{per: user, rate: [9/m, 20/90s, 30/2h], precision: minute, on_error: deny},
		{per: [ip, user], rate: [40/h, 300/d], precision: hour, on_error: deny},
		{per: ip, rate: 12/s, on_error: deny}]}}}`
	ownWhole = `{events: {verify: {retention: 24h, limits: [
		{per: user, rate: [2/s, 5/3s], throttle: elastic, on_error: deny},
		{per: [], rate: [40/s, 300/10s], on_error: deny},
		{per: ip, rate: 12/s, throttle: soft 20%, on_error: deny}]}}}`
	ownAll = `{events: {verify: {retention: 24h, limits: [
		{per: user, rate: [4/s, 9/3s, 60/m], count: all, on_error: deny},
		{per: ip, rate: [5/s, 50/10s], on_error: deny}]}}}`
	ownFixed = `{events: {verify: {limits: [
		{per: user, rate: [2/2s, 6/5s], algorithm: fixed-window, on_error: deny},
		{per: user, rate: [40/h, 300/month], algorithm: fixed-window, calendar: Australia/Lord_Howe, on_error: deny},
		{per: [ip, user], rate: [30/7s, 900/30d], algorithm: fixed-window, count: all, on_error: deny},
		{per: ip, rate: 12/s, on_error: deny}]}}}`
	ownBuckets = `{events: {verify: {retention: 2h, limits: [
		{per: user, rate: 3/s, burst: 6, count: all, on_error: deny},
		{per: user, rate: 40/m, algorithm: sliding-log, count: all, on_error: deny},
		{per: [ip, user], rate: 5/2s, queue: 3, throttle: soft 50%, on_error: deny},
		{per: ip, concurrent: 5, lease: 2s, on_error: deny},
		{per: user, concurrent: 2, lease: 90s, shadow: true, on_error: deny},
		{per: ip, rate: 20/s, on_error: deny}]}}}`
	ownLogs = `{events: {verify: {retention: 2h, limits: [
		{per: user, rate: [2/s, 5/3s, 60/m, 300/h], algorithm: sliding-log, on_error: deny},
		{per: user, rate: 9/4s, on_error: deny},
		{per: [ip, user], rate: [12/s, 600/h], algorithm: sliding-log, count: all, on_error: deny},
		{per: ip, rate: 12/s, on_error: deny}]}}}`
)

// All limits in one log.
const ownLog = `{events: {verify: {retention: 2h, limits: [
	{per: user, rate: [2/s, 9/4s, 200/h], algorithm: sliding-log, on_error: deny},
	{per: user, rate: 12/5s, algorithm: sliding-log, on_error: deny}]}}}`

// Without rules of others all algorithms are called for.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	rules, err := rulesfile.Parse([]byte(ownRules))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, r := range rules.Events["verify"].Rules {
		found[cmp.Or(r.Limits[0].Algorithm, events.DefaultAlgorithm)] = true
	}
	require.ElementsMatch(t, events.AlgorithmNames(), slices.Collect(maps.Keys(found)))
}

// wholeAPI serves the routes for clients and those for operators.
func wholeAPI(l *counterd.Limiter) http.Handler {
	return api.NewServerHandler(api.ServerConfig{Service: l.Parts().Service, Log: slog.New(slog.DiscardHandler)})
}

// counterd passes by each kind of rules, on the embedded store and in virtual time. TestCounterdOnServers has its
// processes and other stores.
func TestCounterd(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"own": ownRules, "minutes": ownMinutes, "whole, elastic": ownWhole, "count: all": ownAll, "fixed": ownFixed,
		"buckets": ownBuckets, "logs": ownLogs, "one log": ownLog,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				parsed, err := counterd.ParseRules([]byte(rules))
				require.NoError(t, err)
				server, err := counterd.New(parsed, counterd.WithLog(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				defer func() { require.NoError(t, server.Close()) }()
				report, text := reportOf(t, Config{
					URLs: []string{"http://a"}, transport: inProcess(wholeAPI(server)), Skew: time.Millisecond,
					Duration: 3 * time.Second, Clients: 6, Features: 12, Rate: 200, Seed: 1,
				})
				require.True(t, report.OK(), text)
				assert.Positive(t, report.Admitted)
				assert.Positive(t, report.Denied)
				e := report.Excused
				assert.Zero(t, e.Windows+e.LowCounts+e.Repeated+e.Overshoot, "one process knows what it has admitted: %s", text)
			})
		})
	}
}

// Where nothing was decided nothing was verified, and only what was counted is said to be.
func TestATargetThatRefuses(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		config := against(&target{refuses: func(route string) bool { return route != "" }})
		config.Duration = time.Second
		_, err := Run(t.Context(), config)
		require.ErrorIs(t, err, ErrNothing)

		config = against(&target{refuses: func(route string) bool { return route == "/history" }})
		config.Duration = time.Second
		report, text := reportOf(t, config)
		require.True(t, report.OK(), text)
		assert.Positive(t, report.Counters)
		assert.Zero(t, report.CountersClosed)
	})
}

// A log that is full is judged, and the calls go on with a new one.
func TestOneLogAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target *target
		right  bool
	}{
		"right":                           {&target{}, true},
		"with a limit of the whole event": {&target{rules: wholeRules}, true},
		"wrong":                           {&target{readThenIncrement: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				config := against(c.target)
				config.maxEvents = 400
				r := newRun(config)
				r.alone = true
				require.NoError(t, r.prepare(t.Context(), config.URLs))
				require.NoError(t, r.load(t.Context(), 5*time.Second))
				report := r.finish(t.Context())
				assert.Equal(t, c.right, report.OK(), "%v", report.Violations)
				assert.Greater(t, r.rounds, 2)
				assert.Greater(t, report.Calls["hit"]+report.Calls["count"], 2*int64(config.maxEvents))
				assert.Positive(t, report.Checked.Predictions)
			})
		})
	}
}
