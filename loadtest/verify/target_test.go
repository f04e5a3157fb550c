package verify_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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

	mu       sync.Mutex
	log      map[string][]kept
	admitted int
}

type kept struct{ second, by int64 }

var targetRules = []wire.Rule{
	{Per: []string{"user"}, Limits: []wire.Limit{{Name: "user-3-per-1s", Limit: 3, Window: "1s"}, {Name: "user-5-per-3s", Limit: 5, Window: "3s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-8-per-2s", Limit: 8, Window: "2s"}}},
}

// Rules that count by the minute, beside one that counts by the second.
var minuteRules = []wire.Rule{
	{Per: []string{"user"}, Precision: "minute", Limits: []wire.Limit{{Name: "user-9-per-60s", Limit: 9, Window: "60s"}, {Name: "user-20-per-90s", Limit: 20, Window: "90s"}}},
	{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip-8-per-2s", Limit: 8, Window: "2s"}}},
}

// Rules with one for the whole event.
var wholeRules = []wire.Rule{
	{Per: []string{"user"}, Limits: []wire.Limit{{Name: "user-3-per-1s", Limit: 3, Window: "1s"}, {Name: "user-5-per-3s", Limit: 5, Window: "3s"}}},
	{Limits: []wire.Limit{{Name: "event-40-per-1s", Limit: 40, Window: "1s"}, {Name: "event-80-per-4s", Limit: 80, Window: "4s"}}},
}

func (s *target) serve(t *testing.T) string {
	t.Helper()
	s.log = map[string][]kept{}
	if s.rules == nil {
		s.rules = targetRules
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
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
	done := wire.Incremented{Event: "verify", At: unix(now), By: *in.By}
	for _, name := range s.counters(in.Features) {
		s.log[name] = append(s.log[name], kept{now, *in.By})
		done.Counters = append(done.Counters, name)
	}
	write(w, http.StatusOK, done)
}

// decide decides a hit by summing every event of its counters.
func (s *target) decide(features map[string]string, cost int64, adds bool) wire.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Unix()
	d := wire.Decision{Allowed: true, Event: "verify", RetryAfter: new(int64)}
	for _, rule := range s.rules {
		name := s.nameIn(rule, features)
		for _, l := range rule.Limits {
			state := s.state(name, rule, l, now, cost)
			d.Allowed = d.Allowed && state.Allowed
			if len(rule.Per) == 0 {
				state.Feature = ""
			}
			d.Limits = append(d.Limits, state)
		}
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
	if d.Allowed && adds {
		s.keep(features, now, cost)
		for i := range d.Limits {
			d.Limits[i].Count += cost
			d.Limits[i].Remaining = max(d.Limits[i].Limit-d.Limits[i].Count, 0)
		}
	}
	d.RetryAfter = longest(d)
	if s.answers != nil {
		s.answers(&d)
	}
	return d
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
	n := l.Limit
	if s.deniesAbove != nil {
		n = s.deniesAbove(l)
	}
	step := s.stepOf(rule)
	if s.precise {
		step = 1
	}
	sum := s.sum(name, step, l, now)
	state := wire.LimitState{Name: l.Name, Feature: name, Limit: l.Limit, Window: l.Window, Count: sum, Remaining: max(l.Limit-sum, 0), Reset: new(int64)}
	state.Allowed = sum+cost <= n
	if cost > l.Limit {
		state.Reset = nil
		return state
	}
	for s.sum(name, step, l, now+*state.Reset)+cost > n && *state.Reset < 200 {
		*state.Reset++
	}
	return state
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
		if from <= k.second && k.second <= at {
			sum += k.by
		}
	}
	return sum
}

func (s *target) keep(features map[string]string, now, cost int64) {
	s.admitted++
	times := 1
	if s.forgets != nil && s.forgets(s.admitted) {
		times = 0
	}
	if s.twice != nil && s.twice(s.admitted) {
		times = 2
	}
	for range times {
		for _, rule := range s.rules {
			name := s.nameIn(rule, features)
			s.log[name] = append(s.log[name], kept{now, cost})
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
		to, _ = strconv.ParseInt(query.Get("at"), 10, 64)
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
	from, _ := strconv.ParseInt(query.Get("from"), 10, 64)
	to, _ := strconv.ParseInt(query.Get("to"), 10, 64)
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
