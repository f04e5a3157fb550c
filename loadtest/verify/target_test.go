package verify

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// target is a server that speaks the contract, keeps every event and sums them all; or is
// wrong on purpose, in one of many ways.
type target struct {
	rules []wire.Rule // nil: targetRules

	// What it does wrong; each is nil or false in one that is right.
	readThenIncrement bool                              // decides on what it read, and adds later
	fixedWindows      bool                              // begins again from zero at each multiple of the window
	forgets           func(n int) bool                  // does not keep the n-th hit that it admits
	twice             func(n int) bool                  // keeps it twice
	deniesAbove       func(l wire.Limit) int64          // admits so many
	answers           func(d *wire.Decision)            // changes a decision before its headers are made
	says              func(h http.Header, status int)   // changes headers
	status            func(status int) int              // changes the status
	counts            func(c *wire.Count)               // changes a count
	history           func(h *wire.History)             // changes a history
	stamps            func(over bool, now int64) int64  // stamps otherwise; over: there is no room
	admits            func(d *wire.Decision, over bool) // decides otherwise
	refuses           func(route string) bool           // is too busy for that
	precise           bool                              // decides to the second, whatever the rules' precision is
	countsPrecisely   bool                              // counts to the second, and says that it rounds
	splits            bool                              // counts the whole event by user
	takesBack         bool                              // does not count denied hits, where the rules say so
	takesNoneBack     bool                              // counts them, where they do not
	forgetsItself     bool                              // says that one has room that a denied hit, which it counts, has filled
	elasticAlways     bool                              // stretches a limit however full the whole event is
	elasticNever      bool                              // stretches none
	lateIsNow         bool                              // adds late increments to the present
	lateIsLost        bool                              // does not add them at all
	lateIsUndecided   bool                              // does not decide on them
	resetsNothing     bool                              // forgets no counter
	resetsAll         bool                              // forgets those of all features

	mu       sync.Mutex
	log      map[string][]kept
	admitted int
}

type kept struct {
	second, by int64
	late       bool
}

var targetRules = []wire.Rule{
	{Per: []string{"user"}, Limits: []wire.Limit{{Name: "user-3-per-1s", Limit: 3, Window: "1s"}, {Name: "user-5-per-3s", Limit: 5, Window: "3s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-8-per-2s", Limit: 8, Window: "2s"}}},
}

// Rules that count by the minute, beside one that counts by the second.
var minuteRules = []wire.Rule{
	{Per: []string{"user"}, Precision: "minute", Limits: []wire.Limit{{Name: "user-9-per-60s", Limit: 9, Window: "60s"}, {Name: "user-20-per-90s", Limit: 20, Window: "90s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-8-per-2s", Limit: 8, Window: "2s"}}},
}

// A rule that denies no hit, so that none waits.
var roomyRules = []wire.Rule{{Per: []string{"user"}, Limits: []wire.Limit{{Name: "user-100000-per-600s", Limit: 100000, Window: "600s"}}}}

// Rules with one for the whole event.
var wholeRules = []wire.Rule{
	{Per: []string{"user"}, Limits: []wire.Limit{{Name: "user-3-per-1s", Limit: 3, Window: "1s"}, {Name: "user-5-per-3s", Limit: 5, Window: "3s"}}},
	{Limits: []wire.Limit{{Name: "event-40-per-1s", Limit: 40, Window: "1s"}, {Name: "event-80-per-4s", Limit: 80, Window: "4s"}}},
}

// wholeLimitOf are rules with one limit for the whole event.
func wholeLimitOf(n int64, window string) []wire.Rule {
	return []wire.Rule{
		{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-5-per-2s", Limit: 5, Window: "2s"}}},
		{Limits: []wire.Limit{{Name: "event", Limit: n, Window: window}}},
	}
}

// Rules of which one counts denied hits, too.
var allRules = []wire.Rule{
	{Per: []string{"user"}, Count: "all", Limits: []wire.Limit{{Name: "user-3-per-1s", Limit: 3, Window: "1s"}, {Name: "user-6-per-3s", Limit: 6, Window: "3s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-4-per-2s", Limit: 4, Window: "2s"}}},
}

// Rules of which one is elastic.
var elasticRules = []wire.Rule{
	{Per: []string{"user"}, Throttle: "elastic", Limits: []wire.Limit{{Name: "user-1-per-1s", Limit: 1, Window: "1s"}, {Name: "user-3-per-3s", Limit: 3, Window: "3s"}}},
	{Limits: []wire.Limit{{Name: "event-40-per-2s", Limit: 40, Window: "2s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-4-per-2s", Limit: 4, Window: "2s"}}},
}

// transport returns one that calls the target in this process, and takes about as long as a
// network does, by a seed: in a bubble its time is fake.
func (s *target) transport() http.RoundTripper {
	s.log = map[string][]kept{}
	if s.rules == nil {
		s.rules = targetRules
	}
	return &inProcess{target: s, rng: rand.New(rand.NewPCG(1, 2))}
}

type inProcess struct {
	target *target
	mu     sync.Mutex
	rng    *rand.Rand
}

// RoundTrip hands a request over and brings the answer back, each in up to 2 ms.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	p.travel()
	to := httptest.NewRecorder()
	p.target.ServeHTTP(to, r)
	p.travel()
	if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	return to.Result(), r.Context().Err()
}

func (p *inProcess) travel() {
	p.mu.Lock()
	long := time.Duration(p.rng.Int64N(int64(2 * time.Millisecond)))
	p.mu.Unlock()
	time.Sleep(long)
}

func (s *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := strings.TrimPrefix(r.URL.Path, "/v1/events/verify")
	switch {
	case s.refuses != nil && s.refuses(route):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too busy", http.StatusServiceUnavailable)
	case r.URL.Path == "/v1/batch":
		var in wire.Batch
		read(r, &in)
		var out wire.Results
		for _, h := range in.Hits {
			d := s.decide(h.Features, *h.Cost, true)
			out.Results = append(out.Results, wire.Result{Status: statusOf(d), Decision: &d})
		}
		write(w, http.StatusOK, out)
	case route == "":
		write(w, http.StatusOK, s.event())
	case route == "/hit":
		var in wire.Hit
		read(r, &in)
		s.hit(w, s.decide(in.Features, *in.Cost, true))
	case route == "/check":
		cost, _ := strconv.ParseInt(r.URL.Query().Get("cost"), 10, 64)
		write(w, http.StatusOK, s.decide(featuresOf(r), cost, false))
	case route == "/increment":
		var in wire.Increment
		read(r, &in)
		s.increment(w, in)
	case route == "/counters":
		s.reset(strings.Join(r.URL.Query()["feature"], "+"))
		w.WriteHeader(http.StatusNoContent)
	case route == "/count":
		s.count(w, r)
	case route == "/history":
		s.tell(w, r)
	}
}

// event tells the rules, with all that they leave out.
func (s *target) event() wire.Event {
	event := wire.Event{Name: "verify", Retention: "1h"}
	for _, rule := range s.rules {
		rule.OnError = "deny"
		rule.Precision = cmp.Or(rule.Precision, "second")
		rule.Count = cmp.Or(rule.Count, "admitted")
		rule.Throttle = cmp.Or(rule.Throttle, "hard")
		event.Rules = append(event.Rules, rule)
	}
	return event
}

// counters returns those of the features that the rules name, and of each feature.
func (s *target) counters(features map[string]string) []string {
	var names []string
	for kind, v := range features {
		names = append(names, kind+":"+v)
	}
	for _, rule := range s.rules {
		names = append(names, s.nameIn(rule, features))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nameIn names the counter of a rule.
func (s *target) nameIn(rule wire.Rule, features map[string]string) string {
	if s.splits && len(rule.Per) == 0 {
		return "the event of " + features["user"]
	}
	var parts []string
	for _, kind := range rule.Per {
		parts = append(parts, kind+":"+features[kind])
	}
	return strings.Join(parts, "+")
}

func (s *target) increment(w http.ResponseWriter, in wire.Increment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Unix()
	at, late := now, !in.At.IsZero()
	if late {
		at = in.At.Unix()
	}
	done := wire.Incremented{Event: "verify", At: unix(at), By: *in.By}
	if late && s.lateIsNow {
		at = now
	}
	for _, name := range s.counters(in.Features) {
		if !late || !s.lateIsLost {
			s.log[name] = append(s.log[name], kept{at, *in.By, late})
		}
		done.Counters = append(done.Counters, name)
	}
	write(w, http.StatusOK, done)
}

func (s *target) reset(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.resetsAll:
		clear(s.log)
	case !s.resetsNothing:
		delete(s.log, name)
	}
}

// decide decides a hit by summing every event of its counters.
func (s *target) decide(features map[string]string, cost int64, adds bool) wire.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Unix()
	d := wire.Decision{Allowed: true, Event: "verify", RetryAfter: new(int64)}
	roomy := true // the whole event has room
	var of []wire.Rule
	for _, rule := range s.rules {
		for _, l := range rule.Limits {
			state := s.state(s.nameIn(rule, features), rule, l, now, cost)
			if len(rule.Per) == 0 {
				state.Feature = ""
				roomy = roomy && state.Allowed
			}
			d.Limits, of = append(d.Limits, state), append(of, rule)
		}
	}
	for i := range d.Limits {
		if of[i].Throttle == "elastic" && (roomy || s.elasticAlways) && !s.elasticNever {
			d.Limits[i].Allowed = true
		}
		d.Allowed = d.Allowed && d.Limits[i].Allowed
	}
	over := !d.Allowed
	if s.admits != nil {
		s.admits(&d, over)
	}
	if s.stamps != nil {
		now = s.stamps(over, now)
	}
	d.At = unix(now)
	if s.readThenIncrement && adds {
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
	}
	if adds {
		s.keep(features, now, cost, d.Allowed)
	}
	for i, rule := range of {
		state := &d.Limits[i]
		counts := adds && !d.Allowed && rule.Count == "all" && rule.Throttle != "elastic" && !s.forgetsItself
		s.wait(state, counts, rule, s.nameIn(rule, features), rule.Limits[slices.IndexFunc(rule.Limits, func(l wire.Limit) bool { return l.Name == state.Name })], now, cost)
		if adds && (d.Allowed || rule.Count == "all") {
			state.Count += cost
			state.Remaining = max(state.Limit-state.Count, 0)
		}
		state.Over = state.Allowed && state.Count > state.Limit
	}
	stretch(&d, of)
	d.RetryAfter = longest(d)
	if s.answers != nil {
		s.answers(&d)
	}
	return d
}

// stretch lets elastic limits have room as soon as the whole event has.
func stretch(d *wire.Decision, of []wire.Rule) {
	whole := int64(0)
	for i, state := range d.Limits {
		if len(of[i].Per) == 0 && !state.Allowed {
			if state.Reset == nil {
				return
			}
			whole = max(whole, *state.Reset)
		}
	}
	for i := range d.Limits {
		state := &d.Limits[i]
		if of[i].Throttle == "elastic" && !state.Allowed && (state.Reset == nil || whole < *state.Reset) {
			state.Reset = new(int64)
			*state.Reset = whole
		}
	}
}

// longest is retry_after.
func longest(d wire.Decision) *int64 {
	wait := new(int64)
	for _, state := range d.Limits {
		if state.Reset == nil {
			return nil
		}
		if !d.Allowed {
			*wait = max(*wait, *state.Reset)
		}
	}
	return wait
}

func (s *target) state(name string, rule wire.Rule, l wire.Limit, now, cost int64) wire.LimitState {
	sum := s.sum(name, s.decidingStep(rule), l, now)
	state := wire.LimitState{Name: l.Name, Feature: name, Limit: l.Limit, Window: l.Window, Count: sum, Remaining: max(l.Limit-sum, 0), Reset: new(int64)}
	state.Allowed = sum+cost <= s.most(l)
	return state
}

// wait sets when a limit that denies, or counts what others deny, has room. What was added is in
// the way.
func (s *target) wait(state *wire.LimitState, counts bool, rule wire.Rule, name string, l wire.Limit, now, cost int64) {
	state.Reset = new(int64)
	switch {
	case state.Allowed && !counts:
	case cost > l.Limit:
		state.Reset = nil
	default:
		for s.sum(name, s.decidingStep(rule), l, now+*state.Reset)+cost > s.most(l) && *state.Reset < 200 {
			*state.Reset++
		}
	}
}

func (s *target) most(l wire.Limit) int64 {
	if s.deniesAbove != nil {
		return s.deniesAbove(l)
	}
	return l.Limit
}

func (s *target) decidingStep(rule wire.Rule) int64 {
	if s.precise {
		return 1
	}
	return s.stepOf(rule)
}

// stepOf is the precision of a rule, in seconds.
func (s *target) stepOf(rule wire.Rule) int64 {
	if rule.Precision == "minute" {
		return 60
	}
	return 1
}

// stepAt is that of the rule with that counter.
func (s *target) stepAt(name string) int64 {
	kind, _, _ := strings.Cut(name, ":")
	for _, rule := range s.rules {
		if strings.Join(rule.Per, "") == kind {
			return s.stepOf(rule)
		}
	}
	return 1
}

func (s *target) sum(name string, step int64, l wire.Limit, at int64) (sum int64) {
	window, _ := events.ParseDuration(l.Window)
	length := int64(window / time.Second)
	from := (at - length + 1) / step * step
	if s.fixedWindows {
		from = at / length * length
	}
	for _, k := range s.log[name] {
		if from <= k.second && k.second <= at && !(k.late && s.lateIsUndecided) {
			sum += k.by
		}
	}
	return sum
}

func (s *target) keep(features map[string]string, now, cost int64, admitted bool) {
	times := 1
	if admitted {
		s.admitted++
		if s.forgets != nil && s.forgets(s.admitted) {
			times = 0
		}
		if s.twice != nil && s.twice(s.admitted) {
			times = 2
		}
	}
	var names []string
	for _, rule := range s.rules {
		if admitted || rule.Count == "all" && !s.takesBack || rule.Count != "all" && s.takesNoneBack {
			names = append(names, s.nameIn(rule, features))
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for range times {
			s.log[name] = append(s.log[name], kept{now, cost, false})
		}
	}
}

// hit answers a hit, with headers and all.
func (s *target) hit(w http.ResponseWriter, d wire.Decision) {
	var policies, states, violated []string
	for _, l := range d.Limits {
		policies = append(policies, fmt.Sprintf("%q;q=%d;w=%s", l.Name, l.Limit, strings.TrimSuffix(l.Window, "s")))
		state := fmt.Sprintf("%q;r=%d", l.Name, l.Remaining)
		if !l.Allowed {
			violated = append(violated, l.Name)
			if l.Reset != nil {
				state += fmt.Sprintf(";t=%d", *l.Reset)
			}
		}
		states = append(states, state)
	}
	w.Header().Set("RateLimit-Policy", strings.Join(policies, ", "))
	w.Header().Set("RateLimit", strings.Join(states, ", "))
	status := statusOf(d)
	if status == http.StatusTooManyRequests && d.RetryAfter != nil {
		w.Header().Set("Retry-After", fmt.Sprint(*d.RetryAfter))
	}
	if s.says != nil {
		s.says(w.Header(), status)
	}
	answered := status
	if s.status != nil {
		answered = s.status(status)
	}
	if status == http.StatusOK {
		write(w, answered, d)
		return
	}
	w.Header().Set("Content-Type", wire.TypeProblem)
	write(w, answered, wire.Denial{Problem: wire.Problem{Type: wire.TypeQuotaExceeded, Title: "no", Status: status}, ViolatedPolicies: violated, Decision: d})
}

func (s *target) count(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	window, _ := events.ParseDuration(query.Get("window"))
	to := time.Now().Unix()
	if query.Has("at") {
		to = secondOf(query.Get("at"))
	}
	name := strings.Join(query["feature"], "+")
	from, step := to-int64(window/time.Second)+1, s.stepAt(name)
	c := wire.Count{Event: "verify", Feature: name, From: unix(from / step * step), To: unix(to/step*step + step - 1)}
	if !s.countsPrecisely {
		from, to = c.From.Unix(), c.To.Unix()
	}
	for _, k := range s.log[name] {
		if from <= k.second && k.second <= to {
			c.Count += k.by
		}
	}
	if s.counts != nil {
		s.counts(&c)
	}
	write(w, http.StatusOK, c)
}

func (s *target) tell(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	length := map[string]int64{"second": 1, "minute": 60, "hour": 3600}[query.Get("level")]
	from, to := secondOf(query.Get("from")), secondOf(query.Get("to"))
	h := wire.History{Event: "verify", Feature: strings.Join(query["feature"], "+"), Level: query.Get("level")}
	h.From, h.To = unix(from/length*length), unix(to/length*length+length-1)
	for start := from / length * length; start <= to; start += length {
		b := wire.Bucket{Start: unix(start)}
		for _, k := range s.log[h.Feature] {
			if k.second >= start && k.second < start+length {
				b.Count += k.by
			}
		}
		h.Buckets = append(h.Buckets, b)
	}
	if s.history != nil {
		s.history(&h)
	}
	write(w, http.StatusOK, h)
}

func statusOf(d wire.Decision) int {
	if d.Allowed {
		return http.StatusOK
	}
	return http.StatusTooManyRequests
}

func featuresOf(r *http.Request) map[string]string {
	features := map[string]string{}
	for _, text := range r.URL.Query()["feature"] {
		kind, v, _ := strings.Cut(text, ":")
		features[kind] = v
	}
	return features
}

func unix(second int64) wire.Moment { return wire.Moment{Time: time.Unix(second, 0).UTC()} }

func secondOf(text string) int64 {
	m, _ := wire.ParseMoment(text)
	return m.Unix()
}

func read(r *http.Request, into any) {
	if err := json.UnmarshalRead(r.Body, into); err != nil {
		panic(err)
	}
}

func write(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", wire.TypeJSON)
	}
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, body) // the client may have gone
}
