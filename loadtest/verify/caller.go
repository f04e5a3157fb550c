package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	// callTimeout is the longest that a call takes.
	callTimeout = 10 * time.Second
	// maxAnswer bounds an answer that is read.
	maxAnswer = 16 << 20
)

// caller makes calls, holds each answer to the contract by itself, and notes it in the log.
// It is safe for concurrent use.
type caller struct {
	contract *contract
	users    *users
	log      *log
	findings *findings
	targets  []*url.URL
	http     *http.Client
	token    func() (string, error)
	skew     time.Duration
	began    time.Time

	calls    [kinds]atomic.Int64
	headers  atomic.Int64 // answers whose headers were held to their bodies
	bodies   atomic.Int64
	families atomic.Pointer[families]
	resets   atomic.Int64
	slowest  atomic.Int64 // nanoseconds of a call
	// The token does not let this caller reset counters.
	mayNotReset atomic.Bool
}

// answer is what came back.
type answer struct {
	sent, answered int64
	status         int
	header         http.Header
	body           []byte
	request        string // in short, for the report
}

func (c *caller) now() int64 { return nanoseconds(time.Since(c.began)) }

// exchange makes one call. An error says that no answer came, or not all of it.
func (c *caller) exchange(ctx context.Context, target int, method, path string, query url.Values, in any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	to := c.targets[target].JoinPath(path)
	to.RawQuery = query.Encode()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return answer{}, err
	}
	if in != nil {
		request.Header.Set("Content-Type", wire.TypeJSON)
	}
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return answer{}, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	a := answer{sent: c.now(), request: method + " " + path}
	response, err := c.http.Do(request)
	if err == nil {
		defer response.Body.Close()
		a.status, a.header = response.StatusCode, response.Header
		a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	}
	a.answered = c.now()
	took := a.answered - a.sent
	for slowest := c.slowest.Load(); took > slowest && !c.slowest.CompareAndSwap(slowest, took); {
		slowest = c.slowest.Load()
	}
	return a, err
}

func (c *caller) path(route string) string { return "v1/events/" + c.contract.event + "/" + route }

// hit makes one hit and returns what became of it.
func (c *caller) hit(ctx context.Context, client, target int, who int32, cost int64) entry {
	c.calls[hit].Add(1)
	person := c.users.who(who)
	a, err := c.exchange(ctx, target, http.MethodPost, c.path("hit"), nil, wire.Hit{Features: person.features, Cost: &cost})
	e := entry{who: who, cost: int32(cost), client: uint16(client), target: uint16(target), kind: hit}
	if err != nil {
		return c.lost(e, a)
	}
	var denial wire.Denial
	switch a.status {
	case http.StatusOK:
		err = json.Unmarshal(a.body, &denial.Decision)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		err = json.Unmarshal(a.body, &denial)
	}
	if err != nil || !c.isDecision(a.status, denial.Decision) {
		return c.undecided(e, a, a.status, err)
	}
	if a.status == http.StatusTooManyRequests {
		c.blame(CheckBodies, e, a, denialFaults(a.header, denial))
	}
	first := familiesOf(a.header)
	c.families.CompareAndSwap(nil, &first)
	c.headers.Add(1)
	c.blame(CheckHeaders, e, a, headerFaults(a.header, a.status, denial.Decision, *c.families.Load()))
	return c.decided(e, a, a.status, denial.Decision)
}

// batch makes several hits in one call and returns what became of each.
func (c *caller) batch(ctx context.Context, client, target int, whos []int32, costs []int64) (list []entry) {
	c.calls[batch].Add(1)
	var in wire.Batch
	for i, who := range whos {
		in.Hits = append(in.Hits, wire.BatchHit{Event: c.contract.event, Features: c.users.who(who).features, Cost: &costs[i]})
		list = append(list, entry{who: who, cost: int32(costs[i]), client: uint16(client), target: uint16(target), kind: batch})
	}
	a, err := c.exchange(ctx, target, http.MethodPost, "v1/batch", nil, in)
	var out wire.Results
	var each struct {
		Results []jsontext.Value `json:"results"`
	}
	if err == nil && a.status == http.StatusOK {
		err = errors.Join(json.Unmarshal(a.body, &out), json.Unmarshal(a.body, &each))
		if err == nil && len(out.Results) != len(whos) {
			err = fmt.Errorf("%d results for %d hits", len(out.Results), len(whos))
		}
		c.headers.Add(1)
		c.blame(CheckHeaders, list[0], a, noHeaderFaults(a.header))
	}
	for i, e := range list {
		switch {
		case err != nil && a.status == 0:
			list[i] = c.lost(e, a)
		case err != nil || a.status != http.StatusOK:
			list[i] = c.undecided(e, a, a.status, err)
		case out.Results[i].Decision == nil || !c.isDecision(out.Results[i].Status, *out.Results[i].Decision):
			list[i] = c.undecided(e, a, out.Results[i].Status, nil)
		default:
			a.body = each.Results[i]
			list[i] = c.decided(e, a, out.Results[i].Status, *out.Results[i].Decision)
		}
	}
	return list
}

// check asks how a hit would stand.
func (c *caller) check(ctx context.Context, client, target int, who int32, cost int64) entry {
	c.calls[check].Add(1)
	query := featureQuery(c.users.who(who).features)
	query.Set("cost", fmt.Sprint(cost))
	a, err := c.exchange(ctx, target, http.MethodGet, c.path("check"), query, nil)
	e := entry{who: who, cost: int32(cost), client: uint16(client), target: uint16(target), kind: check}
	if err != nil {
		return c.lost(e, a)
	}
	c.headers.Add(1)
	if a.status == http.StatusOK {
		c.blame(CheckHeaders, e, a, noHeaderFaults(a.header))
	}
	var d wire.Decision
	if err := json.Unmarshal(a.body, &d); err != nil || !c.isDecision(a.status, d) {
		return c.undecided(e, a, a.status, err)
	}
	return c.decided(e, a, a.status, d)
}

// increment adds without deciding, now or in a second of the past; 0: now.
func (c *caller) increment(ctx context.Context, client, target int, who int32, by, at int64) entry {
	of, in := increment, wire.Increment{Features: c.users.who(who).features, By: &by}
	if at != 0 {
		of, in.At = late, wire.Moment{Time: time.Unix(at, 0).UTC()}
	}
	c.calls[of].Add(1)
	a, err := c.exchange(ctx, target, http.MethodPost, c.path("increment"), nil, in)
	e := entry{who: who, cost: int32(by), client: uint16(client), target: uint16(target), kind: of}
	if err != nil {
		return c.lost(e, a)
	}
	var done wire.Incremented
	if a.status == http.StatusOK {
		err = json.Unmarshal(a.body, &done)
	}
	if a.status != http.StatusOK || err != nil {
		return c.undecided(e, a, a.status, err)
	}
	var f faults
	f.add(done.Event != c.contract.event || done.By != by, "the answer to an increment by %d is by %d", by, done.By)
	f.add(at != 0 && done.At.Unix() != at, "the answer to an increment at %d is at %d", at, done.At.Unix())
	for _, l := range c.contract.limits {
		name := c.users.nameOf(c.users.who(who), l)
		f.add(name != "" && !slices.Contains(done.Counters, name), "an increment is not counted by %s", name)
	}
	c.blame(CheckBodies, e, a, f)
	c.bodies.Add(1)
	e.sent, e.answered, e.stamp = a.sent, a.answered, done.At.Unix()
	if at == 0 {
		c.stamped(e, a)
	}
	c.log.note(e, nil)
	return e
}

// reset forgets a counter. It reports whether it may be.
func (c *caller) reset(ctx context.Context, client, target int, id int32) bool {
	c.resets.Add(1)
	a, err := c.exchange(ctx, target, http.MethodDelete, c.path("counters"), featureQuery(c.users.counterOf(id).features), nil)
	r := reset{sent: a.sent, answered: a.answered, counter: id, client: uint16(client), target: uint16(target)}
	switch {
	case err != nil:
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		c.mayNotReset.Store(true)
		return false
	case a.status == http.StatusNoContent:
		r.done = true
	default:
		c.unanswered(entry{client: r.client, target: r.target, kind: count}, a, a.status, nil)
	}
	c.log.reset(r)
	return true
}

// count asks for a window of a counter, as of a moment; 0: now. It reports whether there
// was an answer.
func (c *caller) count(ctx context.Context, client, target int, id int32, of counter, window, at int64) bool {
	query := featureQuery(of.features)
	query.Set("window", fmt.Sprintf("%ds", window))
	if at != 0 {
		query.Set("at", fmt.Sprint(at))
	}
	var got wire.Count
	e, a, answered := c.ask(ctx, client, target, "count", query, &got)
	if !answered {
		return false
	}
	var f faults
	f.add(got.Event != c.contract.event || got.Feature != of.name, "it is a count of another counter than %s", of.name)
	from, to := got.From.Unix(), got.To.Unix()
	f.add(at == 0 && !c.within(to, a, of.step), "now is %s, which is not when it was asked", got.To.UTC().Format(time.RFC3339))
	first, last := c.asked(from, to, window, at, a, of.step)
	f.add(to != last || from != first, "the window of %ds is that of %d to %d, not %d to %d", window, from, to, first, last)
	b := got.Buckets
	f.add(b.Total != b.Second+b.Minute+b.Hour+b.Day, "buckets: the total is %d", b.Total)
	c.blame(CheckBodies, e, a, f)
	c.bodies.Add(1)
	c.log.look(look{sent: a.sent, answered: a.answered, counter: id, client: e.client, target: e.target, from: from, to: to, count: got.Count})
	return true
}

// history asks for a counter's buckets at a level, from a second on.
func (c *caller) history(ctx context.Context, client, target int, id int32, of counter, level string, length, from, to int64) bool {
	query := featureQuery(of.features)
	query.Set("level", level)
	query.Set("from", fmt.Sprint(from))
	query.Set("to", fmt.Sprint(to))
	var got wire.History
	e, a, answered := c.ask(ctx, client, target, "history", query, &got)
	if !answered {
		return false
	}
	var f faults
	f.add(got.Event != c.contract.event || got.Feature != of.name || got.Level != level, "it is a history of another counter than %s", of.name)
	first, last := outward(from, to, length)
	f.add(got.From.Unix() != first || got.To.Unix() != last, "the history is of %d to %d, not %d to %d", got.From.Unix(), got.To.Unix(), first, last)
	f.add(int64(len(got.Buckets)) != (last-first+1)/length, "there are %d buckets of %d to %d", len(got.Buckets), first, last)
	for i, bucket := range got.Buckets {
		start := bucket.Start.Unix()
		f.add(start != first+int64(i)*length, "bucket %d begins at %d, not %d", i, start, first+int64(i)*length)
		c.log.look(look{sent: a.sent, answered: a.answered, counter: id, client: e.client, target: e.target, bucket: true, from: start, to: start + length - 1, count: bucket.Count})
	}
	c.blame(CheckBodies, e, a, f)
	c.bodies.Add(1)
	return true
}

// ask asks a question that adds nothing, and reports whether there was an answer.
func (c *caller) ask(ctx context.Context, client, target int, route string, query url.Values, into any) (e entry, a answer, answered bool) {
	c.calls[count].Add(1)
	a, err := c.exchange(ctx, target, http.MethodGet, c.path(route), query, nil)
	e = entry{client: uint16(client), target: uint16(target), kind: count, sent: a.sent, answered: a.answered}
	if err == nil && a.status == http.StatusOK {
		err = json.Unmarshal(a.body, into)
	}
	if err != nil || a.status != http.StatusOK {
		c.unanswered(e, a, a.status, err)
		return e, a, false
	}
	return e, a, true
}

// outward rounds a window to whole steps.
func outward(from, to, step int64) (first, last int64) {
	return from / step * step, to/step*step + step - 1
}

// isDecision reports whether an answer with that status is one.
func (c *caller) isDecision(status int, d wire.Decision) bool {
	return (status == http.StatusOK || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) &&
		d.Event != "" && len(d.Limits) > 0
}

// decided holds a decision to the contract, and notes it.
func (c *caller) decided(e entry, a answer, status int, d wire.Decision) entry {
	e.sent, e.answered, e.stamp = a.sent, a.answered, d.At.Unix()
	e.retryAfter = int32(value(d.RetryAfter))
	person := c.users.who(e.who)
	features := make([]string, len(c.contract.limits))
	for i, l := range c.contract.limits {
		features[i] = c.users.nameOf(person, l)
	}
	f := c.contract.decisionFaults(features, int64(e.cost), d, e.kind != check)
	counts := make([]int64, 0, len(d.Limits))
	for i, s := range d.Limits[:min(len(d.Limits), len(c.contract.limits))] {
		bit := uint64(1) << i
		set := func(mask *uint64, on bool) {
			if on {
				*mask |= bit
			}
		}
		set(&e.denies, !s.Allowed)
		set(&e.incomplete, s.Incomplete)
		set(&e.onError, s.OnError != "")
		set(&e.inexact, !s.IsExact())
		counts = append(counts, s.Count)
	}
	switch {
	case d.Allowed:
		e.outcome = admitted
		f.add(status != http.StatusOK, "allowed, with status %d", status)
	case status == http.StatusServiceUnavailable:
		e.outcome = unknown
		f.add(e.onError == 0, "a 503 without on_error")
	default:
		e.outcome = denied
		want := http.StatusTooManyRequests
		if e.kind == check {
			want = http.StatusOK
		}
		f.add(status != want, "denied, with status %d", status)
	}
	c.blame(CheckBodies, e, a, f)
	c.bodies.Add(1)
	c.stamped(e, a)
	c.log.note(e, counts)
	return e
}

// stamped holds a stamp to the time of its call.
func (c *caller) stamped(e entry, a answer) {
	if !c.within(e.stamp, a, 1) {
		c.blame(CheckStamps, e, a, faults{fmt.Sprintf("stamped %s, and the call took from %s to %s (clocks may differ by %s)",
			time.Unix(e.stamp, 0).UTC().Format(time.TimeOnly), c.wall(a.sent).Format(clockLayout), c.wall(a.answered).Format(clockLayout), c.skew)})
	}
}

// within reports whether a step of that last second can be the one in which the call was.
func (c *caller) within(last int64, a answer, step int64) bool {
	_, earliest := outward(0, c.wall(a.sent).Add(-c.skew).Unix(), step)
	_, latest := outward(0, c.wall(a.answered).Add(c.skew).Unix(), step)
	return earliest <= last && last <= latest
}

// asked returns the first and the last second of the window that was asked for. Of one that
// ends now the target alone knows when that was: it is what the answer says, if it may be.
func (c *caller) asked(from, to, window, at int64, a answer, step int64) (first, last int64) {
	if at != 0 {
		return outward(at-window+1, at, step)
	}
	latest := c.wall(a.answered).Add(c.skew).Unix()
	for now := c.wall(a.sent).Add(-c.skew).Unix(); now <= latest; now++ {
		if first, last = outward(now-window+1, now, step); first == from && last == to {
			return first, last
		}
	}
	return outward(to-window+1, to, step)
}

func (c *caller) wall(at int64) time.Time { return c.began.Add(time.Duration(at)).UTC() }

// lost notes a call without an answer: its outcome is unknown.
func (c *caller) lost(e entry, a answer) entry {
	e.sent, e.answered, e.outcome = a.sent, a.answered, unknown
	c.log.note(e, nil)
	return e
}

// undecided notes an answer without a decision.
func (c *caller) undecided(e entry, a answer, status int, err error) entry {
	e.sent, e.answered, e.outcome = a.sent, a.answered, unknown
	if status == http.StatusServiceUnavailable && a.header.Get(retryHeader) != "" {
		e.outcome = refused // overload: nothing was done
	}
	c.unanswered(e, a, status, err)
	c.log.note(e, nil)
	return e
}

// unanswered finds out whether the contract has such an answer to a call that is right.
func (c *caller) unanswered(e entry, a answer, status int, err error) {
	switch {
	case a.status == 0 || status == http.StatusServiceUnavailable:
	case err != nil:
		c.blame(CheckAnswers, e, a, faults{"an answer that cannot be read"})
	default:
		c.blame(CheckAnswers, e, a, faults{fmt.Sprintf("a call that is right is answered with status %d", status)})
	}
}

// blame makes violations of faults, with the answer as it came.
func (c *caller) blame(which string, e entry, a answer, f faults) {
	e.sent, e.answered = a.sent, a.answered
	for _, text := range f {
		c.findings.add(Violation{Check: which, Text: text, Events: []Event{c.event(e, nil)}, Raw: a.raw()})
	}
}

// raw is the answer as it came: its status, its headers on limits, and its body.
func (a answer) raw() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s -> %d", a.request, a.status)
	for _, name := range append([]string{policyHeader, stateHeader, retryHeader}, tightestHeaders[:]...) {
		for _, v := range a.header[name] {
			fmt.Fprintf(&b, "\n  %s: %s", name, v)
		}
	}
	fmt.Fprintf(&b, "\n  %s", compact(a.body))
	return b.String()
}

// compact is a body on one line.
func compact(body []byte) []byte {
	v := jsontext.Value(bytes.Clone(body))
	if v.Compact() != nil {
		return bytes.TrimSpace(body)
	}
	return v
}

// event is an entry as the report has it.
func (c *caller) event(e entry, counts []int64) Event {
	out := Event{
		Sent: c.wall(e.sent), Answered: c.wall(e.answered), Client: int(e.client), Target: c.targets[e.target].Host,
		Call: e.kind.String(), Cost: int64(e.cost), Answer: e.answer(counts),
	}
	if e.stamp != 0 {
		out.Stamped = time.Unix(e.stamp, 0).UTC()
	}
	return out
}

// answer is the answer to an entry, in words.
func (e entry) answer(counts []int64) string {
	text := [...]string{"admitted", "denied", "unknown", "refused"}[e.outcome]
	switch {
	case (e.kind == increment || e.kind == late) && e.outcome == admitted:
		text = "counted"
	case e.kind == count:
		text = "counted"
	case e.outcome == denied && e.retryAfter == never:
		text += ", never"
	case e.outcome == denied:
		text += fmt.Sprintf(", again in %ds", e.retryAfter)
	}
	if len(counts) > 0 && e.stamp != 0 && e.kind <= check {
		text += fmt.Sprintf(", count %v", counts)
	}
	if e.incomplete != 0 {
		text += ", incomplete"
	}
	if e.onError != 0 {
		text += ", on_error"
	}
	return text
}

func featureQuery(features events.Features) url.Values {
	query := url.Values{}
	for kind, v := range features {
		query.Add("feature", kind+":"+v)
	}
	return query
}
