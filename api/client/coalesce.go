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
	// usualHit is the room that a hit has there at first. That of one larger than maxUsual is not for later hits.
	usualHit = 128
	maxUsual = 1 << 10
	// maxHold and holdShare, a part of the timeout, bound for how long an exchange that does not end, as on a connection
	// that is lost, holds up those after it.
	maxHold   = time.Second
	holdShare = 4
	// maxTurns is how many exchanges go side by side at most, and fullTurn how many hits each has at least then. With one
	// alone, client, server and store would wait for each other.
	maxTurns = 3
	fullTurn = 8
)

// coalescer has the hits that arrive while an exchange of hits is under way wait for its end, and then go together, in
// the order of their calls. No hit waits for others to arrive: one that finds no exchange under way goes at once.
//
// When an exchange of many hits ends and many wait, they are shared out to as many exchanges of many as may go side by side.
// A turn at whose end none waits is over.
type coalescer struct {
	server  server
	timeout time.Duration // of a hit, with its wait
	freed   sync.Pool     // of *waiting

	mu      sync.Mutex
	turns   []*turn   // whose exchanges hits wait for; none: no hit waits
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
	done  chan struct{} // has room for one: the batch has ended

	// Of the coalescer's lock, until the batch has ended.
	place *list.Element // in waiting
	batch *batch        // that the hit went with; nil: it waits
	at    int           // its place there
}

// newWaiting returns one that is to be filled in.
func (c *coalescer) newWaiting() *waiting {
	if w, ok := c.freed.Get().(*waiting); ok {
		return w
	}
	return &waiting{body: make([]byte, 0, usualHit), done: make(chan struct{}, 1)}
}

// free gives the memory of a hit whose batch has ended, and is over, to a later one.
func (c *coalescer) free(w *waiting) {
	if cap(w.body) <= maxUsual {
		*w = waiting{body: w.body[:0], done: w.done}
		c.freed.Put(w)
	}
}

// alone returns the body without the event, which is then in the path.
func (w *waiting) alone() jsontext.Value {
	return append(jsontext.Value("{"), w.body[len(`{"event":"",`)+len(w.event):]...)
}

// batch is the hits of an exchange, and what became of it.
type batch struct {
	ctx     context.Context
	cancel  context.CancelFunc
	hits    []*waiting
	size    int // of its body, in bytes
	callers int // that wait for it, of the coalescer's lock

	results   []wire.Result // of the hits; nil: there are none
	requestID string
	refused   bool  // the server takes no such batch: no hit was counted
	err       error // there are no results, and the batch was not refused
	panic     any   // not nil: nothing else counts
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
	w := c.newWaiting()
	var err error
	if w.body, err = in.AppendTo(w.body); err != nil {
		return wire.Decision{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(w.body) > maxJoining || len(hit.Features) > wire.MaxFeatures/wire.MaxHits {
		return c.server.hit(ctx, event, hit)
	}
	w.ctx, w.event, w.since = ctx, event, time.Now()
	if t := c.join(w); t != nil {
		return c.alone(ctx, t, event, hit)
	}
	select {
	case <-w.done:
		defer c.free(w)
		return c.decisionOf(w)
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
	<-w.done
	if results := w.batch.results; results != nil && results[w.at].Decision != nil {
		_ = giveBack(w.ctx, c.server, results[w.at].Reservation) // else it ends by itself, as when no answer comes
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
const yields = 2

// run makes one exchange of a turn after the other, until no hit waits. It ends with its callers.
func (c *coalescer) run(t *turn, b *batch) {
	defer func() {
		if b != nil { // the config's Transport or Token has ended the goroutine
			go c.run(t, c.next(t))
		}
	}()
	for ; b != nil; b = c.next(t) {
		c.send(b)
		for range yields {
			runtime.Gosched()
		}
	}
}

// errBrokenOff is the error of a batch whose exchange has not come to its end.
var errBrokenOff = fmt.Errorf("%w: the exchange was broken off", ErrUnavailable)

// send makes the exchange of a batch, and hands on what became of it. One hit alone goes as a hit.
func (c *coalescer) send(b *batch) {
	b.err = errBrokenOff
	defer func() {
		b.cancel()
		b.panic = recover() // of the config's Transport or Token: the callers', as if each hit went by itself
		for _, w := range b.hits {
			w.done <- struct{}{}
		}
	}()
	if w := b.hits[0]; len(b.hits) == 1 {
		var decision wire.Decision
		decision, b.err = c.server.hit(b.ctx, w.event, w.alone())
		if b.err == nil {
			b.results = []wire.Result{{Decision: &decision}}
		}
		return
	}
	answer, err := c.exchange(b)
	if b.err = err; err != nil {
		return
	}
	defer answer.free()
	b.requestID = answer.requestID()
	if b.refused = answer.refusesBatches(); !b.refused {
		b.results, b.err = answer.results(len(b.hits))
	}
}

// next returns the hits that have waited longest, as many as go together, and has others go beside them if many wait.
// If no hit waits it is nil, and the turn is over; so it is if it was late.
func (c *coalescer) next(t *turn) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, wait := slices.Index(c.turns, t), c.waiting.Len()
	if at < 0 {
		return nil
	}
	if wait == 0 {
		c.turns = slices.Delete(c.turns, at, at+1)
		return nil
	}
	shares := 1
	if t.hits >= fullTurn {
		shares = max(min(maxTurns+1-len(c.turns), wait/fullTurn), 1)
	}
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
	most = min(most, c.waiting.Len(), wire.MaxHits)
	b := &batch{hits: make([]*waiting, 0, most), size: len(beginHits) + len(endHits) - 1}
	for len(b.hits) < most {
		w := c.waiting.Front().Value.(*waiting)
		if b.size+len(w.body)+1 > maxBatchBytes {
			break
		}
		b.size += len(w.body) + 1
		c.waiting.Remove(w.place)
		w.batch, w.at = b, len(b.hits)
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
	body := append(make(jsontext.Value, 0, b.size), beginHits...)
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

// decisionOf returns the decision of a hit whose batch has ended.
func (c *coalescer) decisionOf(w *waiting) (wire.Decision, error) {
	b := w.batch
	switch {
	case b.panic != nil:
		panic(b.panic)
	case b.refused:
		ctx, cancel := context.WithDeadline(w.ctx, w.since.Add(c.timeout))
		defer cancel()
		return c.server.hit(ctx, w.event, w.alone())
	case b.err != nil:
		return wire.Decision{}, b.err
	}
	switch result := b.results[w.at]; {
	case result.Problem != nil:
		problem := *result.Problem
		place := "/hits/" + strconv.Itoa(w.at)
		problem.Status = result.Status
		problem.Detail = strings.TrimPrefix(problem.Detail, place)
		for i := range problem.Errors {
			problem.Errors[i].Pointer = strings.TrimPrefix(problem.Errors[i].Pointer, place)
		}
		return wire.Decision{}, &Error{Problem: problem, RequestID: b.requestID}
	case result.Status == http.StatusServiceUnavailable:
		return wire.Decision{}, &Error{RequestID: b.requestID, Problem: wire.Problem{
			Type: "about:blank", Title: http.StatusText(result.Status), Status: result.Status,
			Detail: wire.StoreFailed,
		}}
	default:
		return *result.Decision, nil
	}
}
