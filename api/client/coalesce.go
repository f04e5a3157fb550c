package client

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api/wire"
)

const (
	// maxBatchBytes bounds the body of a batch of hits: half of what the server reads.
	maxBatchBytes = 512 << 10
	// maxJoining bounds a hit that joins others, in bytes of JSON, far above what the contract has. A larger one
	// goes by itself, as the fault that it is.
	maxJoining = 64 << 10
	// usualHit is about how long a hit is there.
	usualHit = 128
	// maxHold and holdShare, a part of the timeout, bound for how long an exchange that does not end, as on a connection
	// that is lost, holds up those after it.
	maxHold   = time.Second
	holdShare = 4
	// maxTurns is how many exchanges go side by side at most, when many hits come, and fullTurn how many hits each has at
	// least then. With one alone, client, server and store would wait for each other.
	maxTurns = 3
	fullTurn = 16
)

// coalescer has the hits that arrive while an exchange of hits is under way wait for its end, and then go together, in
// the order of their calls. No hit waits for others to arrive: one that finds no exchange under way goes at once.
//
// When an exchange of many hits ends and as many wait, one more may be under way from then on: they are shared out. When
// none waits, it is one again.
type coalescer struct {
	server  server
	timeout time.Duration // of a hit, with its wait

	mu      sync.Mutex
	turns   []*turn   // whose exchanges hits wait for; none: no hit waits
	more    int       // how many turns there may be beside the first
	waiting list.List // of *waiting, for the next exchange
	watched bool      // a timer is to call watch
}

// turn is an exchange, or several one after the other, that hits wait for.
type turn struct {
	began time.Time // of the exchange under way
	hits  int       // that it has
}

// waiting is a hit that goes with the next exchange.
type waiting struct {
	ctx   context.Context
	event string
	body  jsontext.Value // as a hit of a batch: once it has left, the caller may change what it gave
	since time.Time
	done  chan outcome // has room for one

	// Of the coalescer's lock.
	place *list.Element // in waiting
	batch *batch        // that the hit went with; nil: it waits
}

// alone returns the body without the event, which is then in the path.
func (w *waiting) alone() jsontext.Value {
	return append(jsontext.Value("{"), w.body[len(`{"event":"",`)+len(w.event):]...)
}

// batch is the hits of an exchange.
type batch struct {
	ctx     context.Context
	cancel  context.CancelFunc
	hits    []*waiting
	callers int // that wait for it, of the coalescer's lock
}

// outcome is what became of the exchange that a hit went with.
type outcome struct {
	answer answer       // to the whole batch
	result *wire.Result // of the hit; nil: the answer has none
	at     int          // the hit's place in the batch
	err    error        // there is no answer
	panic  any          // not nil: nor an error
}

// decide returns the decision of a hit.
func (c *coalescer) decide(ctx context.Context, event string, hit wire.Hit) (wire.Decision, error) {
	if t := c.begin(); t != nil {
		return c.alone(ctx, t, event, hit)
	}
	if err := checkName(event); err != nil {
		return wire.Decision{}, err
	}
	in := wire.BatchHit{Event: event, Features: hit.Features, Cost: hit.Cost, Reserve: hit.Reserve}
	body, err := in.AppendTo(make([]byte, 0, usualHit))
	if err != nil {
		return wire.Decision{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(body) > maxJoining || len(hit.Features) > wire.MaxFeatures/wire.MaxHits {
		return c.server.hit(ctx, event, hit)
	}
	w := &waiting{ctx: ctx, event: event, body: body, since: time.Now(), done: make(chan outcome, 1)}
	if t := c.join(w); t != nil {
		return c.alone(ctx, t, event, hit)
	}
	select {
	case o := <-w.done:
		return c.decisionOf(w, o)
	case <-ctx.Done():
		if c.leave(w) {
			go c.giveBack(w)
		}
		return wire.Decision{}, c.server.unavailable(ctx, http.MethodPost, nil)
	}
}

// giveBack gives back what a hit gets whose caller has left: a lease, or a turn in a queue, is of no use then.
func (c *coalescer) giveBack(w *waiting) {
	defer func() { _ = recover() }() // of the config's Transport or Token: no caller is there
	if o := <-w.done; o.result != nil && o.result.Decision != nil {
		_ = giveBack(w.ctx, c.server, o.result.Reservation) // else it ends by itself, as when no answer comes
	}
}

// begin returns a turn if there is none, else nil.
func (c *coalescer) begin() *turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turns) > 0 {
		return nil
	}
	return c.addTurn()
}

// addTurn adds a turn, with an exchange of one hit. It is called with the lock.
func (c *coalescer) addTurn() *turn {
	t := &turn{time.Now(), 1}
	c.turns = append(c.turns, t)
	return t
}

// join has the hit go with the next exchange. It returns a turn, and the hit goes by itself, if none is under way. If
// all that are under way are late, all that wait go now.
func (c *coalescer) join(w *waiting) *turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turns) == 0 {
		return c.addTurn()
	}
	w.place = c.waiting.PushBack(w)
	c.release()
	return nil
}

// release has the hits that wait go now if all exchanges under way are late, else when they are. Turns that are late are
// none from then on. It is called with the lock.
func (c *coalescer) release() {
	if c.waiting.Len() == 0 {
		return
	}
	c.turns = slices.DeleteFunc(c.turns, func(t *turn) bool { return time.Since(t.began) > c.hold() })
	if len(c.turns) == 0 {
		t := c.addTurn()
		go c.run(t, c.take(t, c.waiting.Len()))
	}
	if c.waiting.Len() > 0 && !c.watched {
		c.watched = true
		first := slices.MinFunc(c.turns, func(a, b *turn) int { return a.began.Compare(b.began) })
		time.AfterFunc(c.hold()-time.Since(first.began)+1, c.watch)
	}
}

// hold is for how long hits wait for an exchange under way.
func (c *coalescer) hold() time.Duration { return min(maxHold, c.timeout/holdShare) }

// watch looks whether exchanges under way are late.
func (c *coalescer) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = false
	c.release()
}

// leave has a hit that waits not go, and reports whether it went before. Then the exchange ends when no caller waits for it.
func (c *coalescer) leave(w *waiting) (went bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.batch == nil {
		c.waiting.Remove(w.place)
		return false
	}
	if w.batch.callers--; w.batch.callers == 0 {
		w.batch.cancel()
	}
	return true
}

// alone makes the exchange of a turn with one hit.
func (c *coalescer) alone(ctx context.Context, t *turn, event string, hit wire.Hit) (wire.Decision, error) {
	defer func() {
		if b := c.next(t); b != nil {
			go c.run(t, b)
		}
	}()
	return c.server.hit(ctx, event, hit)
}

// yields is how often a goroutine gives way between two exchanges, so that callers that have their answers and call again
// go with the next one: fewer exchanges take less time in all.
const yields = 3

// run makes one exchange of a turn after the other, until no hit waits. It ends with its callers.
func (c *coalescer) run(t *turn, b *batch) {
	for ; b != nil; b = c.next(t) {
		c.send(b)
		for range yields {
			runtime.Gosched()
		}
	}
}

// send makes the exchange of a batch, and hands on what became of it. One hit alone goes as a hit.
func (c *coalescer) send(b *batch) {
	o := outcome{err: fmt.Errorf("%w: the exchange was broken off", ErrUnavailable)}
	var results []wire.Result
	defer func() {
		b.cancel()
		o.panic = recover() // of the config's Transport or Token: the callers', as if each hit went by itself
		for i, w := range b.hits {
			o.at = i
			if results != nil {
				o.result = &results[i]
			}
			w.done <- o
		}
	}()
	if w := b.hits[0]; len(b.hits) == 1 {
		var decision wire.Decision
		decision, o.err = c.server.hit(b.ctx, w.event, w.alone())
		results = []wire.Result{{Decision: &decision}}
		return
	}
	o.answer, o.err = c.exchange(b)
	if o.err == nil && o.answer.succeeds() {
		results, o.err = o.answer.results(len(b.hits))
	}
}

// next returns the hits that have waited longest, as many as go together, and has others go beside them if so many wait.
// If no hit waits it is nil, and the turn is over; so it is if it was late.
func (c *coalescer) next(t *turn) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, wait := slices.Index(c.turns, t), c.waiting.Len()
	switch {
	case at < 0:
		return nil
	case wait == 0:
		c.turns, c.more = slices.Delete(c.turns, at, at+1), 0
		return nil
	case min(t.hits, wait) >= fullTurn:
		c.more = min(c.more+1, maxTurns-1)
	}
	shares := max(min(c.more+2-len(c.turns), wait/fullTurn), 1)
	share := (wait + shares - 1) / shares
	b := c.take(t, share)
	for range shares - 1 {
		beside := c.addTurn()
		go c.run(beside, c.take(beside, share))
	}
	return b
}

// take begins an exchange of the turn with the hits that have waited longest, at most so many. It is called with the
// lock, when hits wait.
func (c *coalescer) take(t *turn, most int) *batch {
	b, size := &batch{}, 0
	for c.waiting.Len() > 0 && len(b.hits) < min(most, wire.MaxHits) {
		w := c.waiting.Front().Value.(*waiting)
		if size += len(w.body); size > maxBatchBytes {
			break
		}
		c.waiting.Remove(w.place)
		w.batch = b
		b.hits = append(b.hits, w)
	}
	b.callers = len(b.hits)
	t.began, t.hits = time.Now(), len(b.hits)
	// It has the values of the first caller's context, a trace among them, and no caller's end. No call takes longer than
	// the timeout: the first one has waited longest.
	b.ctx, b.cancel = context.WithDeadline(context.WithoutCancel(b.hits[0].ctx), b.hits[0].since.Add(c.timeout))
	return b
}

// exchange returns the answer to a batch.
func (c *coalescer) exchange(b *batch) (answer, error) {
	size := len(beginHits) + len(endHits)
	for _, w := range b.hits {
		size += len(w.body) + 1
	}
	body := append(make(jsontext.Value, 0, size), beginHits...)
	for i, w := range b.hits {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, w.body...)
	}
	body = append(body, endHits...)
	return c.server.exchange(b.ctx, http.MethodPost, c.server.base.JoinPath(batchPath...), nil, body)
}

// A batch is its hits between these.
const beginHits, endHits = `{"hits":[`, `]}`

// decisionOf returns the decision of a hit that went with a batch.
func (c *coalescer) decisionOf(w *waiting, o outcome) (wire.Decision, error) {
	if o.panic != nil {
		panic(o.panic)
	}
	switch result := o.result; {
	case o.err != nil:
		return wire.Decision{}, o.err
	case result == nil && o.answer.refusesBatches():
		ctx, cancel := context.WithDeadline(w.ctx, w.since.Add(c.timeout))
		defer cancel()
		return c.server.hit(ctx, w.event, w.alone())
	case result == nil:
		return wire.Decision{}, o.answer.problem()
	case result.Problem != nil:
		problem := *result.Problem
		place := "/hits/" + strconv.Itoa(o.at)
		problem.Status = result.Status
		problem.Detail = strings.TrimPrefix(problem.Detail, place)
		for i := range problem.Errors {
			problem.Errors[i].Pointer = strings.TrimPrefix(problem.Errors[i].Pointer, place)
		}
		return wire.Decision{}, &Error{Problem: problem, RequestID: o.answer.requestID()}
	case result.Status == http.StatusServiceUnavailable:
		return wire.Decision{}, &Error{RequestID: o.answer.requestID(), Problem: wire.Problem{
			Type: "about:blank", Title: http.StatusText(result.Status), Status: result.Status,
			Detail: wire.StoreFailed,
		}}
	}
	return *o.result.Decision, nil
}
