package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
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
	hosts    []string
	findings *judge.Findings
	skew     time.Duration
	log      *judge.Log // of the round

	calls   [judge.Kinds]atomic.Int64
	resets  atomic.Int64
	headers atomic.Int64 // answers whose headers were held to their bodies
	bodies  atomic.Int64
	slowest atomic.Int64 // nanoseconds of a call
	// The token does not let this caller reset counters.
	mayNotReset atomic.Bool
}

// answer is what came back, whatever the client makes of it.
type answer struct {
	judge.Call
	request string // in short, for the report
	status  int    // 0: there is none
	header  http.Header
	body    []byte
	whole   bool // all of the body came
}

type answerKey struct{}

// recorder is a transport that keeps answers as they came.
type recorder struct{ http.RoundTripper }

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	a, kept := request.Context().Value(answerKey{}).(*answer)
	if err != nil || !kept {
		return response, err
	}
	defer response.Body.Close()
	a.request = request.Method + " " + request.URL.Path
	a.status, a.header = response.StatusCode, response.Header
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return nil, err
	}
	a.whole = true
	response.Body = io.NopCloser(bytes.NewReader(a.body))
	return response, nil
}

// connect has a caller of those targets, with what makes the calls.
func (c *caller) connect(config Config, urls []string, transport http.RoundTripper) error {
	for _, target := range urls {
		base, err := url.Parse(target)
		if err != nil {
			return err
		}
		to, err := client.New(client.Config{URL: target, Token: config.Token, Transport: recorder{transport}, Timeout: judge.CallTimeout})
		if err != nil {
			return err
		}
		c.targets, c.hosts = append(c.targets, to), append(c.hosts, base.Host)
	}
	return nil
}

// do makes one call. What the client makes of the answer is in the error.
func (c *caller) do(ctx context.Context, call judge.Call, exchange func(ctx context.Context, to *client.Client) error) (*answer, error) {
	a := &answer{Call: call}
	a.Sent = int64(time.Since(c.log.Began))
	err := exchange(context.WithValue(ctx, answerKey{}, a), c.targets[a.Target])
	a.Answered = int64(time.Since(c.log.Began))
	took := a.Answered - a.Sent
	for slowest := c.slowest.Load(); took > slowest && !c.slowest.CompareAndSwap(slowest, took); {
		slowest = c.slowest.Load()
	}
	return a, err
}

// hit makes one hit and returns what became of it.
func (c *caller) hit(ctx context.Context, call judge.Call, user int32, cost int64) judge.Entry {
	c.calls[judge.Hit].Add(1)
	a, _ := c.do(ctx, call, func(ctx context.Context, to *client.Client) error {
		_, err := to.Hit(ctx, c.Event, c.log.User(user).Features, cost)
		return err // its answer is read below, whatever its status
	})
	e := judge.Entry{Call: a.Call, User: user, Cost: int32(cost), Kind: judge.Hit}
	var denial wire.Denial
	err := json.Unmarshal(a.body, &denial)
	if !c.isDecided(&e, a, a.status, &denial.Decision, err) {
		return e
	}
	if a.status == http.StatusTooManyRequests {
		c.blame(judge.Bodies, e, a, contract.Denial(a.header, denial))
	}
	c.headers.Add(1)
	c.blame(judge.Headers, e, a, c.Headers(a.header, a.status, denial.Decision))
	return c.decided(e, a, a.status, denial.Decision)
}

// batch makes several hits in one call.
func (c *caller) batch(ctx context.Context, call judge.Call, users []int32, costs []int64) {
	c.calls[judge.Batch].Add(1)
	var hits []wire.BatchHit
	for i, user := range users {
		hits = append(hits, wire.BatchHit{Event: c.Event, Features: c.log.User(user).Features, Cost: &costs[i]})
	}
	var results []wire.Result
	a, err := c.do(ctx, call, func(ctx context.Context, to *client.Client) (err error) {
		results, err = to.Batch(ctx, hits)
		return err
	})
	for i, user := range users {
		e := judge.Entry{Call: a.Call, User: user, Cost: int32(costs[i]), Kind: judge.Batch}
		if i == 0 && a.status == http.StatusOK {
			c.headers.Add(1)
			c.blame(judge.Headers, e, a, contract.NoHeaders(a.header))
		}
		one := wire.Result{Status: a.status}
		if err == nil {
			one = results[i]
		}
		if c.isDecided(&e, a, one.Status, one.Decision, err) {
			c.decided(e, a, one.Status, *one.Decision)
		}
	}
}

// check asks how a hit would stand.
func (c *caller) check(ctx context.Context, call judge.Call, user int32, cost int64) {
	c.calls[judge.Check].Add(1)
	var d wire.Decision
	a, err := c.do(ctx, call, func(ctx context.Context, to *client.Client) (err error) {
		d, err = to.Check(ctx, c.Event, c.log.User(user).Features, cost)
		return err
	})
	e := judge.Entry{Call: a.Call, User: user, Cost: int32(cost), Kind: judge.Check}
	if a.whole && a.status == http.StatusOK {
		c.headers.Add(1)
		c.blame(judge.Headers, e, a, contract.NoHeaders(a.header))
	}
	if c.isDecided(&e, a, a.status, &d, err) {
		c.decided(e, a, a.status, d)
	}
}

// increment adds without deciding, now or in a second of the past; 0: now.
func (c *caller) increment(ctx context.Context, call judge.Call, user int32, by, at int64) judge.Entry {
	kind := judge.Increment
	if at != 0 {
		kind = judge.Late
	}
	c.calls[kind].Add(1)
	var done wire.Incremented
	a, err := c.do(ctx, call, func(ctx context.Context, to *client.Client) (err error) {
		done, err = to.Increment(ctx, c.Event, c.log.User(user).Features, by, moment(at))
		return err
	})
	e := judge.Entry{Call: a.Call, User: user, Cost: int32(by), Kind: kind}
	if err != nil {
		return c.undecided(e, a, a.status, err)
	}
	c.bodies.Add(1)
	c.blame(judge.Bodies, e, a, c.Incremented(done, by, at, c.log.NamesOf(c.log.User(user))))
	e.Stamp = done.At.Unix()
	if at == 0 {
		c.stamped(e, a)
	}
	c.log.Note(e, nil)
	return e
}

// reset forgets a counter. It reports whether it may be.
func (c *caller) reset(ctx context.Context, call judge.Call, id int32) bool {
	c.resets.Add(1)
	a, err := c.do(ctx, call, func(ctx context.Context, to *client.Client) error {
		return to.Reset(ctx, c.Event, c.log.Counter(id).Features)
	})
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		c.mayNotReset.Store(true)
		return false
	}
	done := err == nil && a.status == http.StatusNoContent
	if !done && a.whole {
		c.unanswered(judge.Entry{Call: a.Call, Kind: judge.Count}, a, a.status, nil)
	}
	c.log.Reset(judge.Reset{Call: a.Call, Counter: id, Done: done})
	return true
}

// count asks for a window of a counter, as of a moment; 0: now. It reports whether there
// was an answer.
func (c *caller) count(ctx context.Context, call judge.Call, id int32, window, at int64) bool {
	of := c.log.Counter(id)
	var got wire.Count
	a, answered := c.ask(ctx, call, func(ctx context.Context, to *client.Client) (err error) {
		got, err = to.Count(ctx, c.Event, of.Features, time.Duration(window)*time.Second, moment(at))
		return err
	}, func(a *answer) contract.Faults { return c.Count(got, of.Name, of.Step, window, at, c.span(a)) })
	if answered {
		c.log.Look(judge.Look{Call: a.Call, Counter: id, From: got.From.Unix(), To: got.To.Unix(), Count: got.Count})
	}
	return answered
}

// history asks for a counter's buckets at a level, from a second on.
func (c *caller) history(ctx context.Context, call judge.Call, id int32, level string, length, from, to int64) bool {
	of := c.log.Counter(id)
	var got wire.History
	a, answered := c.ask(ctx, call, func(ctx context.Context, at *client.Client) (err error) {
		got, err = at.History(ctx, c.Event, of.Features, level, moment(from), moment(to))
		return err
	}, func(*answer) contract.Faults { return c.History(got, of.Name, level, length, from, to) })
	for _, bucket := range got.Buckets {
		start := bucket.Start.Unix()
		c.log.Look(judge.Look{Call: a.Call, Counter: id, Bucket: true, From: start, To: start + length - 1, Count: bucket.Count})
	}
	return answered
}

// ask asks a question that adds nothing, and reports whether there was an answer.
func (c *caller) ask(ctx context.Context, call judge.Call, exchange func(ctx context.Context, to *client.Client) error, faults func(*answer) contract.Faults) (*answer, bool) {
	c.calls[judge.Count].Add(1)
	a, err := c.do(ctx, call, exchange)
	e := judge.Entry{Call: a.Call, Kind: judge.Count}
	if err != nil {
		c.unanswered(e, a, a.status, err)
		return a, false
	}
	c.bodies.Add(1)
	c.blame(judge.Bodies, e, a, faults(a))
	return a, true
}

// moment is a second as a time; 0 is now.
func moment(second int64) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return time.Unix(second, 0)
}

// isDecided reports whether an answer is a decision; else it notes that it is none.
func (c *caller) isDecided(e *judge.Entry, a *answer, status int, d *wire.Decision, err error) bool {
	switch status {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if err == nil && a.whole && d != nil && d.Event != "" && len(d.Limits) > 0 {
			return true
		}
	}
	*e = c.undecided(*e, a, status, err)
	return false
}

// decided holds a decision to the contract, and notes it.
func (c *caller) decided(e judge.Entry, a *answer, status int, d wire.Decision) judge.Entry {
	e.Stamp, e.RetryAfter = d.At.Unix(), int32(contract.Value(d.RetryAfter))
	asked := contract.Asked{Cost: int64(e.Cost), Check: e.Kind == judge.Check, Counters: c.log.NamesOf(c.log.User(e.User))}
	var counts []int64
	for i, s := range d.Limits[:min(len(d.Limits), len(c.Limits))] {
		set := func(mask *uint64, on bool) {
			if on {
				*mask |= 1 << i
			}
		}
		set(&e.Denies, !s.Allowed)
		set(&e.Incomplete, s.Incomplete)
		set(&e.OnError, s.OnError != "")
		set(&e.Inexact, !s.IsExact())
		counts = append(counts, s.Count)
	}
	switch {
	case d.Allowed:
	case status == http.StatusServiceUnavailable:
		e.Outcome = judge.Unknown
	default:
		e.Outcome = judge.Denied
	}
	c.bodies.Add(1)
	c.blame(judge.Bodies, e, a, c.Decision(asked, status, d))
	c.stamped(e, a)
	c.log.Note(e, counts)
	return e
}

// stamped holds a stamp to the time of its call.
func (c *caller) stamped(e judge.Entry, a *answer) {
	if !c.span(a).Holds(e.Stamp, 1) {
		c.blame(judge.Stamps, e, a, contract.Faults{fmt.Sprintf("stamped %s, which is not within the call (clocks may differ by %s)",
			time.Unix(e.Stamp, 0).UTC().Format(time.TimeOnly), c.skew)})
	}
}

// span is when a call was, by a target's clock.
func (c *caller) span(a *answer) contract.Span {
	return contract.Span{Earliest: c.log.At(a.Sent).Add(-c.skew).Unix(), Latest: c.log.At(a.Answered).Add(c.skew).Unix()}
}

// undecided notes a call without an answer, or with one that has no decision.
func (c *caller) undecided(e judge.Entry, a *answer, status int, err error) judge.Entry {
	e.Outcome = judge.Unknown
	if a.whole && status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" {
		e.Outcome = judge.Refused // overload: nothing was done
	}
	if a.whole {
		c.unanswered(e, a, status, err)
	}
	c.log.Note(e, nil)
	return e
}

// unanswered finds out whether the contract has such an answer to a call that is right.
func (c *caller) unanswered(e judge.Entry, a *answer, status int, err error) {
	switch {
	case a.status == 0 || status == http.StatusServiceUnavailable:
	case err != nil && status == http.StatusOK:
		c.blame(judge.Answers, e, a, contract.Faults{"an answer that cannot be read"})
	default:
		c.blame(judge.Answers, e, a, contract.Faults{fmt.Sprintf("a call that is right is answered with status %d", status)})
	}
}

// blame makes violations of faults, with the answer as it came.
func (c *caller) blame(which string, e judge.Entry, a *answer, faults contract.Faults) {
	for _, text := range faults {
		c.findings.Add(judge.Violation{Check: which, Text: text, Raw: a.raw()}, func() []judge.Event {
			return []judge.Event{c.log.Event(e, nil)}
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
