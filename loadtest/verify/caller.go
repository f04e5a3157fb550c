package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/rlsclient"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// maxAnswer bounds an answer that is read.
const maxAnswer = 16 << 20

// caller makes calls, holds each answer to the contract by itself, and notes it in the log.
// It is safe for concurrent use.
type caller struct {
	*contract.Contract
	targets  []*client.Client
	rls      []rlsclient.Asker // in their place; none: they speak HTTP
	hosts    []string
	findings *judge.Findings
	skew     time.Duration
	log      *judge.Log // of the round

	calls   [judge.Kinds]atomic.Int64
	slowest atomic.Int64 // nanoseconds of a call
	// The token does not let this caller reset counters.
	mayNotReset atomic.Bool
}

// answer is what came back to a call, whatever the client makes of it.
type answer struct {
	judge.Entry
	user    *judge.User
	target  *client.Client
	request string // in short, for the report
	status  int    // 0: there is none
	header  http.Header
	body    []byte
	whole   bool // all of the body came
	reserve bool // the cost
	lease   lease
}

// reserving is for how long hits reserve.
const reserving = time.Minute

// lease is what a hit has taken or reserved, until it is settled or ends.
type lease struct {
	reservation string // empty: it is none
	entry, user int32
	reserved    bool  // the cost was
	ends        int64 // at the soonest, in nanoseconds since the log began
}

type answerKey struct{}

// recorder is a transport that keeps answers as they came, and when.
type recorder struct {
	http.RoundTripper
	*caller
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	a, kept := request.Context().Value(answerKey{}).(*answer)
	if !kept {
		return response, err
	}
	if err == nil {
		defer response.Body.Close()
		a.request = request.Method + " " + request.URL.Path
		a.status, a.header = response.StatusCode, response.Header
		a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	}
	a.Answered = int64(time.Since(r.log.Began))
	r.slow(a)
	if err != nil {
		return nil, err
	}
	a.whole = true
	response.Body = io.NopCloser(bytes.NewReader(a.body))
	return response, nil
}

// slow notes how long a call took.
func (c *caller) slow(a *answer) {
	took := a.Answered - a.Sent
	for slowest := c.slowest.Load(); took > slowest && !c.slowest.CompareAndSwap(slowest, took); {
		slowest = c.slowest.Load()
	}
}

// newCaller returns a caller of those targets, with what makes the calls.
func newCaller(config Config, urls []string, transport http.RoundTripper) (*caller, error) {
	c := &caller{findings: &judge.Findings{}, skew: config.Skew}
	for _, target := range urls {
		base, err := url.Parse(target)
		if err != nil {
			return nil, err
		}
		to, err := client.New(client.Config{
			URL: target, Token: config.Token, Transport: recorder{transport, c}, Timeout: judge.CallTimeout, MaxWaiting: -1, NoCoalescing: true,
		})
		if err != nil {
			return nil, err
		}
		c.targets, c.hosts = append(c.targets, to), append(c.hosts, base.Host)
	}
	return c, nil
}

// begin begins a call: what is called with the context is recorded in the answer.
func (c *caller) begin(ctx context.Context, kind judge.Kind, call judge.Call, user int32, cost int64) (context.Context, *answer) {
	c.calls[kind].Add(1)
	call.Sent = int64(time.Since(c.log.Began))
	call.Answered = call.Sent
	a := &answer{
		Entry: judge.Entry{Call: call, Kind: kind, User: user, Cost: int32(cost)},
		user:  c.log.User(user),
	}
	if len(c.rls) == 0 {
		a.target = c.targets[call.Target]
	}
	return context.WithValue(ctx, answerKey{}, a), a
}

// hit makes one hit and returns what became of it, and what is to be released, or settled. It waits for no turn.
func (c *caller) hit(ctx context.Context, call judge.Call, user int32, cost int64, reserve bool) (judge.Entry, lease) {
	if len(c.rls) > 0 {
		return c.ask(ctx, judge.Hit, call, user, cost), lease{}
	}
	ctx, a := c.begin(ctx, judge.Hit, call, user, cost)
	// Its answer is read here, whatever its status.
	if a.reserve = reserve; reserve {
		_, _ = a.target.Reserve(ctx, c.Event, a.user.Features, cost, reserving)
	} else {
		_, _ = a.target.Hit(ctx, c.Event, a.user.Features, cost)
	}
	var denial wire.Denial
	err := json.Unmarshal(a.body, &denial)
	if c.decided(a, a.status, &denial.Decision, err) {
		atomic.AddInt64(&c.findings.Checked.Headers, 1)
		c.blame(judge.Headers, a, c.HeaderFaults(a.header, a.status, denial.Decision))
		if a.status == http.StatusTooManyRequests {
			c.blame(judge.Bodies, a, contract.DenialFaults(a.header, denial))
		}
	}
	return a.Entry, a.lease
}

// settle releases a lease, or settles what was reserved by the true cost. One that has ended is gone.
func (c *caller) settle(ctx context.Context, call judge.Call, l lease, cost int64) {
	if l.reservation == "" {
		return
	}
	ctx, a := c.begin(ctx, judge.Settle, call, 0, 0)
	err := a.target.Settle(ctx, l.reservation, cost)
	if err != nil && (a.status != http.StatusGone || a.Answered < l.ends) {
		c.unanswered(a, a.status, err)
	}
	c.log.Release(judge.Release{Call: a.Call, Entry: l.entry, Reserved: l.reserved, Cost: int32(cost), Done: err == nil && a.status == http.StatusOK})
}

// renew has a lease end no sooner than so many seconds from now, and returns the one that it is then. One that has
// ended is none.
func (c *caller) renew(ctx context.Context, call judge.Call, l lease, seconds int64) lease {
	ctx, a := c.begin(ctx, judge.Renew, call, l.user, 1)
	next, err := a.target.Renew(ctx, l.reservation, time.Duration(seconds)*time.Second)
	a.Stamp, a.Renewed, a.Renews = c.log.At(a.Sent).Unix(), int32(seconds), l.entry
	switch gone := a.status == http.StatusGone; {
	case err == nil && next != "":
	case gone && a.Answered < l.ends:
		a.Outcome = judge.Denied
	default:
		if a.Outcome = judge.Unknown; !gone {
			c.unanswered(a, a.status, err)
		}
	}
	renewed := c.log.Note(a.Entry, nil)
	c.log.Release(judge.Release{Call: a.Call, Entry: l.entry, Done: a.Outcome == judge.Admitted})
	return lease{next, renewed, l.user, false, max(l.ends, c.soonest(a, seconds))}
}

// soonest returns when a lease of so many seconds ends at the soonest that a call has taken.
func (c *caller) soonest(a *answer, seconds int64) int64 {
	return a.Sent + int64(time.Duration(seconds-1)*time.Second-2*c.skew)
}

// batch makes several hits in one call.
func (c *caller) batch(ctx context.Context, call judge.Call, users []int32, costs []int64) {
	var hits []wire.BatchHit
	for i, user := range users {
		hits = append(hits, wire.BatchHit{Event: c.Event, Features: c.log.User(user).Features, Cost: &costs[i]})
	}
	ctx, a := c.begin(ctx, judge.Batch, call, users[0], costs[0])
	results, err := a.target.Batch(ctx, hits)
	c.noHeaders(a)
	for i, user := range users {
		one, result := *a, wire.Result{Status: a.status}
		one.Sent += int64(i) // so they have an order
		one.User, one.user, one.Cost = user, c.log.User(user), int32(costs[i])
		if err == nil {
			result = results[i]
		}
		c.decided(&one, result.Status, result.Decision, err)
	}
}

// check asks how a hit would stand.
func (c *caller) check(ctx context.Context, call judge.Call, user int32, cost int64) {
	if len(c.rls) > 0 {
		c.ask(ctx, judge.Check, call, user, cost)
		return
	}
	ctx, a := c.begin(ctx, judge.Check, call, user, cost)
	d, err := a.target.Check(ctx, c.Event, a.user.Features, cost)
	c.noHeaders(a)
	c.decided(a, a.status, &d, err)
}

// noHeaders holds an answer to having no headers on limits.
func (c *caller) noHeaders(a *answer) {
	if a.whole && a.status == http.StatusOK {
		atomic.AddInt64(&c.findings.Checked.Headers, 1)
		c.blame(judge.Headers, a, contract.NoHeaderFaults(a.header))
	}
}

// increment adds without deciding, now or in a second of the past; 0: now.
func (c *caller) increment(ctx context.Context, call judge.Call, user int32, by, at int64) judge.Entry {
	kind := judge.Increment
	if at != 0 {
		kind = judge.Late
	}
	ctx, a := c.begin(ctx, kind, call, user, by)
	done, err := a.target.Increment(ctx, c.Event, a.user.Features, by, moment(at))
	if err != nil {
		c.undecided(a, a.status, err)
		return a.Entry
	}
	a.Stamp = done.At.Unix()
	c.answered(a, c.IncrementFaults(done, by, at, a.user.Names))
	c.log.Note(a.Entry, nil)
	return a.Entry
}

// reset forgets a counter.
func (c *caller) reset(ctx context.Context, call judge.Call, id int32) {
	ctx, a := c.begin(ctx, judge.Forget, call, 0, 0)
	err := a.target.Reset(ctx, c.Event, c.log.Counter(id).Features)
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		c.mayNotReset.Store(true)
		return
	case http.StatusNoContent:
	default:
		c.unanswered(a, a.status, nil)
	}
	c.log.Reset(judge.Reset{Call: a.Call, Counter: id, Done: err == nil && a.status == http.StatusNoContent})
}

// count asks for a window of a counter, as of a moment; 0: now. It reports whether there
// was an answer.
func (c *caller) count(ctx context.Context, call judge.Call, id int32, window, at int64) bool {
	if id = c.log.Counter(id).First; id < 0 {
		return false
	}
	of := c.log.Counter(id)
	ctx, a := c.begin(ctx, judge.Count, call, 0, 0)
	got, err := a.target.Count(ctx, c.Event, of.Features, time.Duration(window)*time.Second, moment(at))
	if err != nil {
		c.unanswered(a, a.status, err)
		return false
	}
	end := c.span(a)
	if at != 0 {
		end = contract.Span{Earliest: at, Latest: at}
	}
	slides := at == 0 && of.Rule.Slides(window)
	c.answered(a, c.CountFaults(got, of.Name, of.Rule.Step, window, slides, end))
	look := judge.Look{Call: a.Call, Counter: id, Least: judge.Seconds(got.From.Unix(), got.To.Unix()), Count: got.Count}
	look.Most = look.Least
	if slides && got.To.Unix()-got.From.Unix() == window {
		look.Least, look.Most = c.log.SlidingWindow(a.Call, c.skew, got.To.Unix(), window)
	}
	c.log.Look(look)
	return true
}

// history asks for a counter's buckets at a level, from a second on.
func (c *caller) history(ctx context.Context, call judge.Call, id int32, level contract.Level, from, to int64) bool {
	if id = c.log.Counter(id).First; id < 0 {
		return false
	}
	of := c.log.Counter(id)
	ctx, a := c.begin(ctx, judge.Count, call, 0, 0)
	got, err := a.target.History(ctx, c.Event, of.Features, level.Name, moment(from), moment(to), "")
	if err != nil {
		c.unanswered(a, a.status, err)
		return false
	}
	c.answered(a, c.HistoryFaults(got, of.Name, level, from, to))
	for _, bucket := range got.Buckets {
		whole := judge.Seconds(bucket.Start.Unix(), bucket.Start.Unix()+level.Length-1)
		c.log.Look(judge.Look{Call: a.Call, Counter: id, Bucket: true, Least: whole, Most: whole, Count: bucket.Count})
	}
	return true
}

// moment is a second as a time; 0 is now.
func moment(second int64) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return time.Unix(second, 0)
}

// decided holds a decision to the contract, and notes it. It reports whether the answer is one.
func (c *caller) decided(a *answer, status int, d *wire.Decision, err error) bool {
	decides := status == http.StatusOK || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if !decides || err != nil || !a.whole || d == nil || d.Event == "" || len(d.Limits) == 0 {
		c.undecided(a, status, err)
		return false
	}
	a.Stamp, a.RetryAfter = d.At.Unix(), int32(contract.Value(d.RetryAfter))
	var counts []int64
	for i, s := range d.Limits[:min(len(d.Limits), len(c.Limits))] {
		set := func(mask *uint64, on bool) {
			if on {
				*mask |= 1 << i
			}
		}
		set(&a.Denies, !s.Allowed)
		set(&a.Incomplete, s.Incomplete)
		set(&a.OnError, s.OnError != "")
		set(&a.Inexact, !s.IsExact())
		counts = append(counts, s.Count)
	}
	switch {
	case d.Allowed:
	case status == http.StatusServiceUnavailable:
		a.Outcome = judge.Unknown
	default:
		a.Outcome = judge.Denied
	}
	asked, reservation := contract.Asked{Cost: int64(a.Cost), Check: a.Kind == judge.Check, Counters: a.user.Names}, d.Reservation
	if a.reserve && d.Allowed && d.Wait == 0 && !c.HasLeases() {
		d.Reservation = "" // which is held here
		inLog := slices.ContainsFunc(c.Limits, func(l contract.Limit) bool { return l.Log })
		if reservation == "" && a.OnError == 0 && !inLog { // a large log reserves nothing
			c.blame(judge.Bodies, a, contract.Faults{"it reserves nothing"})
		}
	}
	c.answered(a, c.DecisionFaults(asked, status, *d))
	if d.Wait > 0 { // a release would give its turn back
		reservation = ""
	}
	lasts := c.ShortestLease()
	if !c.HasLeases() {
		lasts = reserving
	}
	a.lease = lease{reservation, c.log.Note(a.Entry, counts), a.User, a.reserve, c.soonest(a, contract.Seconds(lasts))}
	return true
}

// answered holds the faults of a body against it, and its stamp to the time of the call.
func (c *caller) answered(a *answer, faults contract.Faults) {
	atomic.AddInt64(&c.findings.Checked.Bodies, 1)
	c.blame(judge.Bodies, a, faults)
	if during := c.span(a); a.Stamp != 0 && a.Kind != judge.Late && (a.Stamp < during.Earliest || a.Stamp > during.Latest) {
		c.blame(judge.Stamps, a, contract.Faults{fmt.Sprintf("stamped %s, which is not within the call (clocks may differ by %s)",
			time.Unix(a.Stamp, 0).UTC().Format(time.TimeOnly), c.skew)})
	}
}

// span is when a call was, by a target's clock.
func (c *caller) span(a *answer) contract.Span {
	return contract.Span{Earliest: c.log.At(a.Sent).Add(-c.skew).Unix(), Latest: c.log.At(a.Answered).Add(c.skew).Unix()}
}

// undecided notes a call without an answer, or with one that has no decision.
func (c *caller) undecided(a *answer, status int, err error) {
	a.Outcome = judge.Unknown
	if a.whole {
		if status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" {
			a.Outcome = judge.Refused // overload: nothing was done
		}
		c.unanswered(a, status, err)
	}
	c.log.Note(a.Entry, nil)
}

// unanswered finds out whether the contract has such an answer to a call that is right.
func (c *caller) unanswered(a *answer, status int, err error) {
	switch {
	case a.status == 0 || status == http.StatusServiceUnavailable:
	case err != nil && status == http.StatusOK:
		c.blame(judge.Answers, a, contract.Faults{"an answer that cannot be read"})
	default:
		c.blame(judge.Answers, a, contract.Faults{fmt.Sprintf("a call that is right is answered with status %d", status)})
	}
}

// blame makes violations of faults, with the answer as it came.
func (c *caller) blame(which string, a *answer, faults contract.Faults) {
	for _, text := range faults {
		c.findings.Add(judge.Violation{Check: which, Text: text, Raw: a.raw()}, func() []judge.Event {
			return []judge.Event{c.log.Event(a.Entry, nil)}
		})
	}
}

// raw is the answer as it came: its status, its headers on limits, and its body, on one line.
func (a *answer) raw() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s -> %d", a.request, a.status)
	for _, name := range contract.StateHeaders {
		for _, v := range a.header[name] {
			fmt.Fprintf(&b, "\n  %s: %s", name, v)
		}
	}
	body := jsontext.Value(bytes.Clone(a.body))
	if body.Compact() != nil {
		body = bytes.TrimSpace(a.body)
	}
	fmt.Fprintf(&b, "\n  %s", body)
	return b.String()
}
