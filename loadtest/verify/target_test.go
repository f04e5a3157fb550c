package verify

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/verify/contract"
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
	deniesAbove       func(l contract.Limit) int64      // admits so many
	answers           func(d *wire.Decision)            // changes a decision before its headers are made, and its retry_after
	says              func(h http.Header)               // changes headers
	status            int                               // answers hits with it, whatever the body says
	counts            func(c *wire.Count)               // changes a count
	history           func(h *wire.History)             // changes a history
	stampsAhead       int64                             // stamps so much later where there is no room
	admits            func(d *wire.Decision, over bool) // decides otherwise
	refuses           func(route string) bool           // is too busy for that
	precise           bool                              // decides to the second, whatever the rules' precision is
	countsPrecisely   bool                              // counts to the second, and says that it rounds, or slides
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
	bySeconds         bool                              // has windows of whole seconds, where they slide by milliseconds
	longer            int64                             // has those longer by so many milliseconds
	slides            bool                              // has windows slide that follow one another
	turnsLate         int64                             // has those turn so many seconds late
	refills           int64                             // has so many percent more tokens return
	leasesEnd         int64                             // has leases end so many milliseconds late
	releasesNothing   bool                              // releases no lease
	renewsLonger      int64                             // renews leases for so many milliseconds more
	renewsNone        bool                              // has none that it could renew
	settlesAs         func(cost, reserved int64) int64  // settles with another cost
	releasesAll       bool                              // releases those of all others, too
	settled           int                               // answers a release with that status

	mu       sync.Mutex
	contract *contract.Contract
	log      map[string][]kept
	full     map[string]int64 // by bucket, when it is full: in milliseconds times its rate
	leases   map[string][]leased
	admitted int
	renewals int
	reserved map[string]reserved
}

type reserved struct {
	features map[string]string
	kept
}

type leased struct {
	name string // of the counter
	from int64  // milliseconds
}

type kept struct {
	milli, by int64
	late      bool
}

// ruleOf is a rule with limits that are written like 3/1s.
func ruleOf(per string, limits ...string) wire.Rule {
	r := wire.Rule{Precision: "second", Count: "admitted", Throttle: "hard", OnError: "deny"}
	if per != "" {
		r.Per = []string{per}
	}
	for _, l := range limits {
		n, window, _ := strings.Cut(l, "/")
		number, _ := strconv.ParseInt(n, 10, 64)
		name := fmt.Sprintf("%s-%s-per-%s", cmp.Or(per, "event"), n, window)
		r.Limits = append(r.Limits, wire.Limit{Name: name, Limit: number, Window: window})
	}
	return r
}

func with(r wire.Rule, changes ...func(*wire.Rule)) wire.Rule {
	for _, change := range changes {
		change(&r)
	}
	return r
}

func minutes(r *wire.Rule) { r.Precision = "minute" }
func elastic(r *wire.Rule) { r.Throttle = "elastic" }
func allHits(r *wire.Rule) { r.Count = "all" }

// by has the limits of a rule count by that algorithm.
func by(algorithm string) func(*wire.Rule) {
	return func(r *wire.Rule) {
		for i := range r.Limits {
			r.Limits[i].Algorithm = algorithm
		}
	}
}

// of has the windows of a rule be of the calendar.
func of(calendar string) func(*wire.Rule) {
	return func(r *wire.Rule) {
		for i := range r.Limits {
			r.Limits[i].Calendar = calendar
		}
	}
}

// bucket has the limits of a rule be token buckets, or leaky ones.
func bucket(burst int64) func(*wire.Rule) {
	return func(r *wire.Rule) {
		for i := range r.Limits {
			r.Limits[i].Burst = burst
		}
	}
}

var (
	bucketRules   = []wire.Rule{with(ruleOf("user", "3/1s"), bucket(5), by(events.TokenBucket)), ruleOf("user", "30/4s"), ruleOf("ip", "20/2s")}
	queueRules    = []wire.Rule{with(ruleOf("user", "3/1s"), bucket(5), by(events.LeakyBucket)), with(ruleOf("user", "9/4s"), by(events.SlidingLog)), ruleOf("ip", "20/2s")}
	leaseRules    = []wire.Rule{with(ruleOf("user", "4/2s"), by(events.Concurrency)), ruleOf("user", "9/1s"), ruleOf("ip", "20/2s")}
	takenRules    = []wire.Rule{with(ruleOf("user", "3/1s"), bucket(4), by(events.TokenBucket), allHits), with(ruleOf("user", "9/4s"), allHits), ruleOf("ip", "8/2s")}
	aloneRules    = []wire.Rule{with(ruleOf("user", "5/1s"), bucket(5), by(events.TokenBucket)), with(ruleOf("ip", "9/3s"), by(events.Concurrency))}
	slowRules     = []wire.Rule{with(ruleOf("user", "3/4s"), bucket(2), by(events.TokenBucket)), ruleOf("ip", "20/2s")}
	fixedRules    = []wire.Rule{with(ruleOf("user", "3/1s", "6/4s"), by(events.FixedWindow)), ruleOf("ip", "8/2s")}
	calendarRules = []wire.Rule{with(ruleOf("user", "6/hour", "60/day"), by(events.FixedWindow), of("Asia/Kathmandu")), ruleOf("ip", "8/2s")}
	havana        = []wire.Rule{with(ruleOf("user", "5/day"), by(events.FixedWindow), of("America/Havana")), ruleOf("ip", "8/2s")}
	targetRules   = []wire.Rule{ruleOf("user", "3/1s", "5/3s"), ruleOf("ip", "8/2s")}
	minuteRules   = []wire.Rule{with(ruleOf("user", "9/60s", "20/90s"), minutes), ruleOf("ip", "8/2s")}
	logRules      = []wire.Rule{with(ruleOf("user", "3/1s", "5/3s", "90/60s"), by(events.SlidingLog)), with(ruleOf("ip", "8/2s"), by(events.SlidingLog))}
	bothRules     = []wire.Rule{with(ruleOf("user", "3/1s", "90/60s"), by(events.SlidingLog)), ruleOf("user", "5/3s", "9/4s"), ruleOf("ip", "8/2s")}
	roomyRules    = []wire.Rule{ruleOf("user", "100000/600s")} // deny no hit, so that none waits
	wholeRules    = []wire.Rule{ruleOf("user", "3/1s", "5/3s"), ruleOf("", "40/1s", "80/4s")}
	allRules      = []wire.Rule{with(ruleOf("user", "3/1s", "6/3s"), allHits), ruleOf("ip", "4/2s")}
	// A limit of the elastic rule has room as long as the whole event has.
	elasticRules = []wire.Rule{with(ruleOf("user", "1/1s", "3/3s"), elastic), ruleOf("", "40/2s"), ruleOf("ip", "4/2s")}
)

// wholeLimit are rules with one limit for the whole event.
func wholeLimit(limit string) []wire.Rule {
	return []wire.Rule{ruleOf("ip", "5/2s"), ruleOf("", limit)}
}

// transport returns one that calls the target in this process, and takes about as long as a
// network does, by a seed: in a bubble its time is fake.
func (s *target) transport() http.RoundTripper {
	s.log, s.full, s.leases = map[string][]kept{}, map[string]int64{}, map[string][]leased{}
	s.reserved = map[string]reserved{}
	if s.rules == nil {
		s.rules = targetRules
	}
	var err error
	if s.contract, err = contract.New(s.event()); err != nil {
		panic(err)
	}
	return inProcess(s)
}

// inProcess returns a transport that calls a server in this process, over a network by a seed.
func inProcess(server http.Handler) http.RoundTripper {
	return &network{server: server, rng: rand.New(rand.NewPCG(1, 2))}
}

type network struct {
	server http.Handler
	mu     sync.Mutex
	rng    *rand.Rand
}

// RoundTrip hands a request over and brings the answer back, each in up to 2 ms.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.travel()
	served := r.WithContext(r.Context())
	if served.Body == nil { // a server always has one
		served.Body = http.NoBody
	}
	to := httptest.NewRecorder()
	n.server.ServeHTTP(to, served)
	n.travel()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return to.Result(), nil
}

func (n *network) travel() {
	n.mu.Lock()
	long := time.Duration(n.rng.Int64N(int64(2 * time.Millisecond)))
	n.mu.Unlock()
	time.Sleep(long)
}

func (s *target) event() wire.Event {
	return wire.Event{Name: "verify", Retention: "1h", Rules: s.rules}
}

func (s *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := strings.TrimPrefix(r.URL.Path, "/v1/events/verify")
	switch {
	case s.refuses != nil && s.refuses(route):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too busy", http.StatusServiceUnavailable)
	case r.URL.Path == "/v1/batch":
		in := read[wire.Batch](r)
		var out wire.Results
		for _, h := range in.Hits {
			d := s.decide(h.Features, *h.Cost, true, false)
			out.Results = append(out.Results, wire.Result{Status: statusOf(d), Decision: &d})
		}
		write(w, http.StatusOK, out)
	case r.URL.Path == "/v1/settle":
		s.settle(w, read[wire.Settle](r))
	case route == "":
		write(w, http.StatusOK, s.event())
	case route == "/hit":
		in := read[wire.Hit](r)
		s.hit(w, s.decide(in.Features, *in.Cost, true, in.Reserve != nil))
	case route == "/check":
		features, _ := events.ParseFeatures(r.URL.Query()["feature"])
		cost, _ := strconv.ParseInt(r.URL.Query().Get("cost"), 10, 64)
		write(w, http.StatusOK, s.decide(features, cost, false, false))
	case route == "/increment":
		s.increment(w, read[wire.Increment](r))
	case route == "/counters":
		s.reset(strings.Join(r.URL.Query()["feature"], "+"))
		w.WriteHeader(http.StatusNoContent)
	case route == "/count":
		s.count(w, r.URL.Query())
	case route == "/history":
		s.tell(w, r.URL.Query())
	}
}

// name names the counter of a rule.
func (s *target) name(r contract.Rule, features map[string]string) string {
	if s.splits && r.Whole() {
		return "the event of " + features["user"]
	}
	var parts []string
	for _, kind := range r.Per {
		parts = append(parts, kind+":"+features[kind])
	}
	return strings.Join(parts, "+")
}

func (s *target) increment(w http.ResponseWriter, in wire.Increment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	at, late := now, !in.At.IsZero()
	if late {
		at = in.At.UnixMilli()
	}
	done := wire.Incremented{Event: "verify", At: unix(at / 1000), By: *in.By}
	if late && s.lateIsNow {
		at = now
	}
	for kind, v := range in.Features {
		done.Counters = append(done.Counters, kind+":"+v)
	}
	for _, r := range s.contract.Rules {
		done.Counters = append(done.Counters, s.name(r, in.Features))
	}
	slices.Sort(done.Counters)
	done.Counters = slices.Compact(done.Counters)
	for _, name := range done.Counters {
		if !late || !s.lateIsLost {
			s.log[name] = append(s.log[name], kept{at, *in.By, late})
		}
	}
	for _, l := range s.contract.Limits {
		s.take(l, in.Features, at, *in.By)
		for range *in.By {
			if name := s.name(l.Rule, in.Features); l.Leases && s.contract.Increments(l.Rule) {
				s.leases[""] = append(s.leases[""], leased{name, at})
			}
		}
	}
	write(w, http.StatusOK, done)
}

// take takes tokens of a limit that is a token bucket.
func (s *target) take(l contract.Limit, features map[string]string, at, tokens int64) {
	if l.Burst > 0 {
		name := l.Name + " " + s.name(l.Rule, features)
		s.full[name] = max(s.full[name], at*s.rate(l)) + tokens*s.window(l)
	}
}

func (s *target) rate(l contract.Limit) int64 { return l.N * (100 + s.refills) }

func (s *target) window(l contract.Limit) int64 { return l.Window.Milliseconds() * 100 }

func (s *target) settle(w http.ResponseWriter, in wire.Settle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Renew != nil {
		s.renew(w, in)
		return
	}
	switch {
	case s.releasesAll:
		clear(s.leases)
	case !s.releasesNothing:
		delete(s.leases, in.Reservation)
	}
	if r, found := s.reserved[in.Reservation]; found {
		delete(s.reserved, in.Reservation)
		s.replace(r, *in.Cost)
	}
	write(w, cmp.Or(s.settled, http.StatusOK), wire.Settled{Settled: true, Cost: in.Cost})
}

// replace has the true cost count in place of what was reserved. Token buckets give nothing back.
func (s *target) replace(r reserved, cost int64) {
	if s.settlesAs != nil {
		cost = s.settlesAs(cost, r.by)
	}
	var names []string
	for _, rule := range s.contract.Rules {
		names = append(names, s.name(rule, r.features))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for i, k := range s.log[name] {
			if k == r.kept { // or one that is alike
				s.log[name][i].by = cost
				break
			}
		}
	}
	for _, l := range s.contract.Limits {
		s.take(l, r.features, r.milli, max(cost-r.by, 0))
	}
}

// renew has leases end later, all of them as long as the only limit on leases says.
func (s *target) renew(w http.ResponseWriter, in wire.Settle) {
	now, length, all := time.Now().UnixMilli(), s.contract.ShortestLease().Milliseconds(), s.leases[in.Reservation]
	if s.renewsNone || len(all) == 0 || all[0].from <= now-length {
		write(w, http.StatusGone, wire.Problem{Status: http.StatusGone})
		return
	}
	by, _ := events.ParseDuration(*in.Renew)
	delete(s.leases, in.Reservation)
	s.renewals++
	renewed := fmt.Sprint("renewal ", s.renewals)
	for _, one := range all {
		s.leases[renewed] = append(s.leases[renewed], leased{one.name, max(one.from, now-length+by.Milliseconds()) + s.renewsLonger})
	}
	write(w, http.StatusOK, wire.Settled{Reservation: renewed})
}

func (s *target) reset(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.resetsAll:
		clear(s.log)
	case !s.resetsNothing:
		delete(s.log, name)
		for reservation, all := range s.leases {
			s.leases[reservation] = slices.DeleteFunc(slices.Clone(all), func(l leased) bool { return l.name == name })
		}
		for of := range s.full {
			if strings.HasSuffix(of, " "+name) {
				delete(s.full, of)
			}
		}
	}
}

// decide decides a hit by summing every event of its counters.
func (s *target) decide(features map[string]string, cost int64, adds, reserves bool) wire.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	d := wire.Decision{Allowed: true, Event: "verify"}
	roomy := true // the whole event has room
	for _, l := range s.contract.Limits {
		sum := s.sum(l, features, now)
		state := wire.LimitState{Name: l.Name, Limit: l.N, Window: l.WindowName(), Count: sum, Remaining: max(l.Most()-sum, 0), Allowed: sum+l.Charge(cost) <= s.most(l)}
		if l.Queues() {
			d.Wait = max(d.Wait, float64(max(contract.Ceil(s.full[l.Name+" "+s.name(l.Rule, features)]-now*s.rate(l), s.rate(l)), 0))/1000)
		}
		state.Algorithm = l.Algorithm
		if !l.Whole() {
			state.Feature = s.name(l.Rule, features)
		} else {
			roomy = roomy && state.Allowed
		}
		d.Limits = append(d.Limits, state)
	}
	for i, l := range s.contract.Limits {
		if l.Elastic && (roomy || s.elasticAlways) && !s.elasticNever {
			d.Limits[i].Allowed = true
		}
		d.Allowed = d.Allowed && d.Limits[i].Allowed
	}
	if !d.Allowed {
		d.Wait = 0
	}
	over := !d.Allowed
	if s.admits != nil {
		s.admits(&d, over)
	}
	if over {
		now += 1000 * s.stampsAhead
	}
	d.At = unix(now / 1000)
	if s.readThenIncrement && adds {
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
	}
	if adds {
		d.Reservation = s.keep(features, now, cost, d.Allowed)
		if reserves && d.Allowed {
			d.Reservation = cmp.Or(d.Reservation, fmt.Sprint("reserved ", s.admitted))
			s.reserved[d.Reservation] = reserved{features, kept{now, cost, false}}
		}
	}
	whole := int64(0) // how long the whole event denies
	for i, l := range s.contract.Limits {
		state := &d.Limits[i]
		counts := adds && !d.Allowed && l.CountAll && !l.Elastic && !s.forgetsItself
		state.Reset = s.wait(l, features, now, cost, state.Allowed && !counts)
		if adds && (d.Allowed || l.CountAll) {
			state.Count += l.Charge(cost)
			state.Remaining = max(l.Most()-state.Count, 0)
		}
		state.Over = state.Allowed && state.Count > l.Most()
		if l.Whole() && !state.Allowed {
			whole = max(whole, *state.Reset) // the costs of these tests fit
		}
	}
	for i, l := range s.contract.Limits { // an elastic limit has room as soon as the whole event has
		if state := &d.Limits[i]; l.Elastic && !state.Allowed && (state.Reset == nil || whole < *state.Reset) {
			state.Reset = &whole
		}
	}
	d.RetryAfter = s.contract.RetryAfter(d)
	if s.answers != nil {
		s.answers(&d)
		d.RetryAfter = s.contract.RetryAfter(d)
	}
	return d
}

// wait is when a limit that denies, or counts what others deny, has room. What was added is in
// the way.
func (s *target) wait(l contract.Limit, features map[string]string, now, cost int64, roomy bool) *int64 {
	wait := new(int64)
	cost = l.Charge(cost)
	if !roomy && cost > l.Most() {
		return nil
	}
	if !roomy && l.Tiles() && !s.slides {
		second := now/1000 - s.turnsLate
		*wait = l.Begins(second) + contract.Seconds(l.WindowAt(second)) - second
		return wait
	}
	for !roomy && s.sum(l, features, now+1000*(*wait))+cost > s.most(l) && *wait < 200 {
		*wait++
	}
	return wait
}

func (s *target) most(l contract.Limit) int64 {
	if s.deniesAbove != nil {
		return s.deniesAbove(l)
	}
	return l.Most()
}

// sum is what a limit's window holds.
func (s *target) sum(l contract.Limit, features map[string]string, at int64) (sum int64) {
	if l.Burst > 0 {
		return max(contract.Ceil(s.full[l.Name+" "+s.name(l.Rule, features)]-at*s.rate(l), s.window(l)), 0)
	}
	for _, all := range s.leases {
		for _, one := range all {
			if l.Leases && one.name == s.name(l.Rule, features) && one.from > at-1000*l.Length-s.leasesEnd {
				sum++
			}
		}
	}
	if l.Leases {
		return sum
	}
	second := at / 1000
	from := (second - l.Length + 1) / l.Step * l.Step
	if s.precise {
		from = second - l.Length + 1
	}
	if s.fixedWindows {
		from = second / l.Length * l.Length
	}
	if l.Tiles() && !s.slides {
		from = l.Begins(second-s.turnsLate) + s.turnsLate
	}
	first, last := 1000*from, 1000*second+999
	if l.Slides() && !s.bySeconds {
		first, last = at-1000*l.Length-s.longer+1, at
	}
	for _, k := range s.log[s.name(l.Rule, features)] {
		if first <= k.milli && k.milli <= last && !(k.late && s.lateIsUndecided) {
			sum += k.by
		}
	}
	return sum
}

// keep keeps a hit, and returns the reservation of its leases.
func (s *target) keep(features map[string]string, now, cost int64, admitted bool) (reservation string) {
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
	for _, r := range s.contract.Rules {
		if admitted || r.CountAll && !s.takesBack || !r.CountAll && s.takesNoneBack {
			names = append(names, s.name(r, features))
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for range times {
			s.log[name] = append(s.log[name], kept{now, cost, false})
		}
	}
	for _, l := range s.contract.Limits {
		if admitted || l.CountAll && !s.takesBack {
			s.take(l, features, now, cost*int64(times))
		}
		if admitted && l.Leases {
			reservation = fmt.Sprint("lease ", s.admitted)
			s.leases[reservation] = append(s.leases[reservation], leased{s.name(l.Rule, features), now})
		}
	}
	return reservation
}

// hit answers a hit, with headers and all.
func (s *target) hit(w http.ResponseWriter, d wire.Decision) {
	var policies, states, violated []string
	for i, l := range d.Limits {
		unit := fmt.Sprintf(";w=%d", s.windowOf(i, d))
		if l.Algorithm == events.Concurrency {
			unit = `;qu="concurrent-requests"`
		}
		policies = append(policies, fmt.Sprintf("%q;q=%d%s", l.Name, l.Limit, unit))
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
		s.says(w.Header())
	}
	answered := cmp.Or(s.status, status)
	if status == http.StatusOK {
		write(w, answered, d)
		return
	}
	w.Header().Set("Content-Type", wire.TypeProblem)
	write(w, answered, wire.Denial{Problem: wire.Problem{Type: wire.TypeQuotaExceeded, Title: "no", Status: status}, ViolatedPolicies: violated, Decision: d})
}

func (s *target) windowOf(i int, d wire.Decision) int64 {
	return contract.Seconds(s.contract.Limits[i].WindowAt(d.At.Unix()))
}

// added is what a counter got in those milliseconds.
func (s *target) added(name string, from, to int64) (sum int64) {
	for _, k := range s.log[name] {
		if from <= k.milli && k.milli <= to {
			sum += k.by
		}
	}
	return sum
}

func (s *target) count(w http.ResponseWriter, query url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window, _ := events.ParseDuration(query.Get("window"))
	now := time.Now().UnixMilli()
	to, slides := now/1000, false
	if query.Has("at") {
		to = secondOf(query.Get("at"))
	}
	c := wire.Count{Event: "verify", Feature: strings.Join(query["feature"], "+")}
	from, step := to-contract.Seconds(window)+1, int64(1)
	for _, r := range s.contract.Rules {
		kind, _, _ := strings.Cut(c.Feature, ":")
		if at := s.contract.Counting([]string{kind}); strings.Join(r.Per, "") == kind && at >= 0 && s.contract.Limits[at].Index == r.Index {
			step, slides = r.Step, !query.Has("at") && r.Slides(contract.Seconds(window))
			break
		}
	}
	first, last := contract.Outward(from, to, step)
	if !s.countsPrecisely {
		from, to = first, last
	}
	begin, end := 1000*from, 1000*to+999
	if slides && now%1000 < 999 {
		if first--; !s.countsPrecisely {
			begin, end = now-window.Milliseconds()+1, now
		}
	}
	c.From, c.To, c.Count = unix(first), unix(last), s.added(c.Feature, begin, end)
	if s.counts != nil {
		s.counts(&c)
	}
	write(w, http.StatusOK, c)
}

func (s *target) tell(w http.ResponseWriter, query url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	length := map[string]int64{"second": 1, "minute": 60, "hour": 3600}[query.Get("level")]
	first, last := contract.Outward(secondOf(query.Get("from")), secondOf(query.Get("to")), length)
	h := wire.History{Event: "verify", Feature: strings.Join(query["feature"], "+"), Level: query.Get("level"), From: unix(first), To: unix(last)}
	for start := first; start <= last; start += length {
		h.Buckets = append(h.Buckets, wire.Bucket{Start: unix(start), Count: s.added(h.Feature, 1000*start, 1000*(start+length)-1)})
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

func unix(second int64) wire.Moment { return wire.Moment{Time: moment(second).UTC()} }

func secondOf(text string) int64 {
	m, _ := wire.ParseMoment(text)
	return m.Unix()
}

func read[T any](r *http.Request) (body T) {
	if err := json.UnmarshalRead(r.Body, &body); err != nil {
		panic(err)
	}
	return body
}

func write(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", wire.TypeJSON)
	}
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, body) // the client may have gone
}
