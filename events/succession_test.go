package events_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// overrides returns the limits of the rule's overrides, by value.
func overrides(rule *events.Rule) [][]events.Limit {
	var all [][]events.Limit
	var values []string
	for value := range rule.Overrides {
		values = append(values, value)
	}
	slices.Sort(values)
	for _, value := range values {
		all = append(all, rule.Overrides[value])
	}
	return all
}

func TestSucceedTakesOverFromRulesMadeByHand(t *testing.T) {
	rule := func(limits ...events.Limit) *events.Rules {
		return &events.Rules{Events: map[string]*events.Event{"e": {Name: "e", Rules: []events.Rule{{Per: []string{"ip"}, Limits: limits}}}}}
	}
	old := rule(events.Limit{N: 1, Window: time.Minute}, events.Limit{N: 2, Window: time.Hour, Since: 5000})
	next := events.Succeed(old, rule(events.Limit{N: 1, Window: time.Minute}, events.Limit{N: 2, Window: time.Hour}), 6000)
	assert.Equal(t, []events.Limit{{N: 1, Window: time.Minute}, {N: 2, Window: time.Hour, Since: 5000}}, next.Events["e"].Rules[0].Limits)
}

func TestSucceedChangesNeither(t *testing.T) {
	parse := func(text string) *events.Rules {
		rules, err := rulesfile.Parse([]byte(text))
		require.NoError(t, err)
		return rules
	}
	const before = "events: {e: {limits: [{per: ip, rate: 5/m, overrides: {192.0.2.1: 6/m}}]}}"
	const after = "events: {e: {limits: [{per: ip, rate: 5/h, overrides: {192.0.2.1: 6/h}}]}}\nheaders: none\ntrusted_proxies: 10.0.0.1"
	old, next := parse(before), parse(after)
	got := events.Succeed(old, next, 1000)
	assert.Equal(t, parse(before), old)
	assert.Equal(t, parse(after), next)
	assert.Equal(t, next.Headers, got.Headers)
	assert.Equal(t, next.TrustedProxies, got.TrustedProxies)

	again := events.Succeed(got, next, 2000)
	assert.Equal(t, int64(1000), got.Events["e"].Rules[0].Limits[0].Since)
	again.Events["e"].Rules[0].Revision = got.Revision
	assert.Equal(t, got.Events["e"].Rules, again.Events["e"].Rules)
}

// randomFile writes rules of event e, or of another one.
func randomFile(rng *rand.Rand) string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	if rng.IntN(12) == 0 {
		return pick("events: {f: {}}", "events: {e: {}}", "events: {e: {retention: 2h}}")
	}
	var limits []string
	for _, per := range []string{"ip", "user", "[ip, user]", "[]"} {
		if rng.IntN(4) == 0 {
			continue
		}
		limit := "per: " + per + ", rate: 1000000/" + pick("1s", "30s", "m", "90s", "10m", "h", "90m", "2h")
		limit += pick("", "", ", precision: minute", ", precision: hour")
		limit += pick("", "", "", "", ", count: all")
		if strings.Contains(per, "ip") {
			limit += pick("", "", "", "", ", ipv6_prefix: 48")
		}
		if per == "user" {
			limit += pick("", ", overrides: {somebody: 1/"+pick("m", "h", "2h")+"}")
		}
		limits = append(limits, "{"+limit+"}")
	}
	return "events: {e: {" + pick("", "", "retention: 1h, ", "retention: 2h, ") + "limits: [" + strings.Join(limits, ", ") + "]}}"
}

// randomRules returns rules that are valid.
func randomRules(rng *rand.Rand) *events.Rules {
	for {
		if rules, err := rulesfile.Parse([]byte(randomFile(rng))); err == nil {
			return rules
		}
	}
}

// reign is a stretch of time, in Unix seconds, in which rules were in force.
type reign struct {
	until int64
	rules *events.Rules
}

// sinceOf is what Succeed says, by all that was ever in force: the end of the
// last reign in which the counter was not kept as the limit wants it.
func sinceOf(history []reign, want *events.Event, rule *events.Rule, window time.Duration, now int64) int64 {
	var since int64
	for _, r := range history {
		kept := false
		if event := r.rules.Events[want.Name]; event != nil {
			for _, was := range event.Rules {
				kept = kept || slices.Equal(was.Per, rule.Per) &&
					was.Count == rule.Count &&
					was.IPv6Prefix == rule.IPv6Prefix &&
					was.Precision <= rule.Precision &&
					event.Remembered() >= window
			}
		}
		if !kept {
			since = r.until
		}
	}
	if since != 0 {
		since = hierarchy.BucketAt(hierarchy.RankLevel(rule.Precision.Length()), since).Last()
	}
	if since+int64(window/time.Second) <= now {
		return 0
	}
	return since
}

// What Succeed keeps of the past is enough: however often rules follow on one
// another, it says what all of the past says.
func TestSucceedIsWhatTheWholePastSays(t *testing.T) {
	incomplete := 0
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(3, seed))
		now := int64(1_700_000_000)
		rules := randomRules(rng)
		var history []reign
		for range 25 {
			now += []int64{1, 20, 300, 1800, 7200}[rng.IntN(5)] * (1 + rng.Int64N(3))
			history = append(history, reign{now, rules})
			rules = events.Succeed(rules, randomRules(rng), now)
			for _, event := range rules.Events {
				for i := range event.Rules {
					rule := &event.Rules[i]
					for _, limits := range append(overrides(rule), rule.Limits) {
						for _, limit := range limits {
							want := sinceOf(history, event, rule, limit.Window, now)
							require.Equal(t, want, limit.Since, "seed %d at %d: %s per %q", seed, now, events.FormatRate(limit), rule.Per)
							if want != 0 {
								incomplete++
							}
						}
					}
				}
			}
		}
	}
	assert.Greater(t, incomplete, 200)
}

// world is a store with a clock, and what really happened.
type world struct {
	now      int64
	counters *hierarchy.Counters
	hits     []happened
}

// happened is a hit or an increment; not every hit is admitted.
type happened struct {
	at                  int64
	increment, admitted bool
}

func newWorld(now int64) *world {
	w := &world{now: now}
	clock := func() time.Time { return time.Unix(w.now, 0) }
	w.counters = hierarchy.NewCounters(hierarchy.Config{
		Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Clock: clock, Grace: time.Second,
	})
	return w
}

var everyone = events.Features{"ip": "2001:db8::1", "user": "u"}

// happen does something to the event, as the rules in force have it counted.
func (w *world) happen(t *testing.T, rules *events.Rules, h happened) {
	t.Helper()
	h.at = w.now
	w.hits = append(w.hits, h)
	event := rules.Events["e"]
	if event == nil {
		return
	}
	counters, err := event.Counters(everyone)
	require.NoError(t, err)
	if !h.increment {
		counters = counters[:0]
		for _, a := range applied(t, event) {
			if (h.admitted || a.Rule.Count == events.CountAll) && !slices.Contains(counters, a.Counter) {
				counters = append(counters, a.Counter)
			}
		}
	}
	if len(counters) == 0 {
		return
	}
	_, err = w.counters.Increment(t.Context(), 1, time.Time{}, counters...)
	require.NoError(t, err)
}

// want is what a counter would hold on which all that happened had been counted.
func (w *world) want(count events.Count, in hierarchy.Window) int64 {
	var n int64
	for _, h := range w.hits {
		if h.at >= in.First && h.at <= in.Last && (h.increment || h.admitted || count == events.CountAll) {
			n++
		}
	}
	return n
}

// look compares the counter of each limit that is not incomplete with what
// happened, and returns how many there were.
func (w *world) look(t *testing.T, rules *events.Rules, seed uint64) int {
	t.Helper()
	looked := 0
	for _, event := range rules.Events {
		for _, a := range applied(t, event) {
			rule, counter := a.Rule, a.Counter
			for _, limit := range rule.Limits {
				if limit.Since != 0 && w.now < limit.Since+int64(limit.Window/time.Second) {
					continue
				}
				got, err := w.counters.Count(t.Context(), counter, limit.Window, time.Time{})
				require.NoError(t, err)
				require.Equal(t, w.want(rule.Count, hierarchy.Window{First: got.From.Unix(), Last: got.To.Unix()}), got.Count,
					"seed %d at %d: %s per %q, since %d", seed, w.now, events.FormatRate(limit), rule.Per, limit.Since)
				looked++
			}
		}
	}
	return looked
}

// A limit that is not incomplete has counted all of its window: in a store, with
// hits and increments before, between and after reloads. It is looked at in each
// of the seconds in which one may be complete for the first time.
func TestLimitsThatAreCompleteHaveCountedAll(t *testing.T) {
	looked := 0
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(4, seed))
		w := newWorld(1_700_000_000 + rng.Int64N(7200))
		began := w.now
		rules := randomRules(rng)
		reload := w.now + 100
		for w.now < began+5*3600 {
			if rng.IntN(4) == 0 {
				w.happen(t, rules, happened{increment: rng.IntN(3) == 0, admitted: rng.IntN(2) == 0})
			}
			if w.now == reload {
				rules = events.Succeed(rules, randomRules(rng), w.now)
				w.happen(t, rules, happened{admitted: true})
				reload += []int64{2, 40, 600, 4000}[rng.IntN(4)] * (1 + rng.Int64N(2))
			}
			// In the first hours what came before the beginning is missing.
			if w.now > began+2*3600+60 && (rng.IntN(200) == 0 || completes(rules, w.now)) {
				looked += w.look(t, rules, seed)
			}
			w.now++
		}
	}
	assert.Greater(t, looked, 500)
}

// completes reports whether a limit is complete from now on.
func completes(rules *events.Rules, now int64) bool {
	for _, event := range rules.Events {
		for _, rule := range event.Rules {
			for _, limit := range rule.Limits {
				if limit.Since != 0 && limit.Since+int64(limit.Window/time.Second) == now {
					return true
				}
			}
		}
	}
	return false
}

func ExampleSucceed() {
	parse := func(text string) *events.Rules {
		rules, err := rulesfile.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		return rules
	}
	old := parse("events: {login: {limits: [{per: ip, rate: 5/m}]}}")
	next := parse("events: {login: {limits: [{per: ip, rate: [5/m, 100/d]}]}}")
	for _, limit := range events.Succeed(old, next, 1_790_000_000).Events["login"].Rules[0].Limits {
		fmt.Println(limit.Name, limit.Since)
	}
	// Output:
	// ip-5-per-1m 0
	// ip-100-per-24h 1790000000
}

// applied returns all rules of the event, with their counters of everyone.
func applied(t *testing.T, event *events.Event) []events.Applied {
	t.Helper()
	if len(event.Rules) == 0 {
		return nil
	}
	list, err := event.Apply(nil, everyone)
	require.NoError(t, err)
	require.Len(t, list, len(event.Rules))
	return list
}
