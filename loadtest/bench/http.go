package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/memcached"
)

// batchHits is how many hits a batch has.
const batchHits = 100

// answerTimeout is the longest wait for an answer, beyond the length of a slice.
const answerTimeout = 20 * time.Second

// Rates of the rows over HTTP: far ones, those of the server that does nothing, and
// with one hit a day full ones.
const (
	webRates     = "[1000000/s, 1000000/m, 1000000/h, 1000000/d]"
	webFullRates = "[1000000/s, 1000000/m, 1000000/h, 1/d]"
)

func httpRows() []row {
	return []row{
		{id: "B1", name: "do-nothing handler, 64 connections", stage: stageHTTP, callers: 64, prepare: prepareNothing},
		{id: "B2", name: "counterd, hit, 64 connections", stage: stageHTTP, callers: 64, prepare: prepareWebFar, against: []string{"B1"}},
		{id: "B3", name: "counterd, denied flood, 64 connections", stage: stageHTTP, callers: 64, prepare: prepareWebFlood, against: []string{"B1"}, rates: webFullRates},
		{id: "B4", name: "counterd, batches of 100 hits, 16 connections", stage: stageHTTP, callers: 16, prepare: prepareBatch, against: []string{"B2"}},
		{id: "B5", name: "counterd on the embedded store, hit, 64 connections", stage: stageHTTP, callers: 64, prepare: prepareWebEmbedded, against: []string{"B1"}},
		{id: "B6", name: "do-nothing handler, 1 connection", stage: stageHTTP, callers: 1, prepare: prepareNothing},
		{id: "B7", name: "counterd, hit, 1 connection", stage: stageHTTP, callers: 1, prepare: prepareWebFar, against: []string{"B6"}},
		{id: "B8", name: "do-nothing handler, 16 connections", stage: stageHTTP, callers: 16, prepare: prepareNothing},
		{id: "B9", name: "counterd, hit, 16 connections", stage: stageHTTP, callers: 16, prepare: prepareWebFar, against: []string{"B8"}},
		{id: "B10", name: "do-nothing handler, 256 connections", stage: stageHTTP, callers: 256, prepare: prepareNothing},
		{id: "B11", name: "counterd, hit, 256 connections", stage: stageHTTP, callers: 256, prepare: prepareWebFar, against: []string{"B10"}},
		{id: "B12", name: "do-nothing handler, open model", stage: stageHTTP, callers: 64, prepare: prepareNothing, halfOf: "B2"},
		{id: "B13", name: "counterd, hit, open model", stage: stageHTTP, callers: 64, prepare: prepareWebFar, against: []string{"B12"}, halfOf: "B2"},
		{id: "B14", name: "counterd, batches of 100 hits on one counter, 16 connections", stage: stageHTTP, callers: 16, prepare: prepareBatchOfOne, against: []string{"B2"}},
	}
}

// web is the servers of the rows over HTTP.
type web struct {
	memcached                   *memcached.Server
	nothing, counterd, embedded *child.Child
}

// servers returns the stage's servers.
func (s *stage) servers(ctx context.Context) (*web, error) {
	s.once.servers.Do(func() { s.web, s.webErr = s.startServers(ctx) })
	return s.web, s.webErr
}

func (s *stage) startServers(ctx context.Context) (*web, error) {
	dir, err := os.MkdirTemp("", "counterd-bench-")
	if err != nil {
		return nil, err
	}
	s.closing(func() error { return os.RemoveAll(dir) })
	var rules strings.Builder
	rules.WriteString("events:\n")
	for _, r := range httpRows() {
		rules.WriteString(strings.TrimPrefix(rulesOf(eventName(r), cmp.Or(r.rates, webRates), "24h"), "events:\n"))
	}
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		return nil, err
	}
	w := &web{}
	if w.memcached, err = s.memcached(ctx); err != nil {
		return nil, err
	}
	counterd := func(more ...string) (*child.Child, error) {
		return s.startServer(ctx, s.config.Counterd, func(addr string) []string {
			return append([]string{"-listen", addr, "-rules", file, "-timeout", s.config.sizes.patience.String(), "-grace", (2 * s.config.sizes.patience).String()}, more...)
		}, "/readyz", http.StatusOK)
	}
	if w.counterd, err = counterd("-memcached", w.memcached.Addr); err != nil {
		return nil, err
	}
	if w.embedded, err = counterd(); err != nil {
		return nil, err
	}
	w.nothing, err = s.startServer(ctx, s.config.Nothing[0], func(addr string) []string {
		return append(s.config.Nothing[1:len(s.config.Nothing):len(s.config.Nothing)], addr)
	}, "/", http.StatusNotFound)
	return w, err
}

// startServer starts a server that is ready when it answers a path with a status.
func (s *stage) startServer(ctx context.Context, binary string, args func(addr string) []string, path string, status int) (*child.Child, error) {
	asking := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: child.StartTimeout}
	c, err := child.Start(ctx, child.Program{Path: binary, Args: args, Ready: func(addr string) error {
		answer, err := asking.Get("http://" + addr + path)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != status {
			return fmt.Errorf("%s is answered with %s", path, answer.Status)
		}
		return nil
	}})
	if err == nil {
		s.closing(c.Stop)
	}
	return c, err
}

// asking is hits over HTTP, of one event of the row's own.
type asking struct {
	row      row
	length   time.Duration // of a slice
	server   *child.Child
	conns    []*conn
	requests []asked
	admitted []atomic.Int64 // by address, all slices together
	status   int            // that every answer has to have
	contains []byte         // and what has to be in it, as often as it has hits
}

// asked is a request, and whose hits are in it.
type asked struct {
	bytes  []byte
	people []int
}

// newAsking prepares hits on a server, one of each address.
func newAsking(s *stage, r row, server *child.Child) (*asking, *subject, error) {
	a := &asking{
		row: r, length: s.config.Duration, server: server, admitted: make([]atomic.Int64, s.config.sizes.people),
		status: http.StatusOK, contains: []byte(`{"allowed":true,"event":`),
	}
	for i := range s.config.sizes.people {
		a.requests = append(a.requests, asked{
			request("/v1/events/"+eventName(r)+"/hit", `{"features":{"ip":"`+address(i)+`"},"cost":1}`), []int{i},
		})
	}
	return a, &subject{server: server, before: a.before, after: a.hangUp, steps: a.steps}, nil
}

// before opens the connections of a slice, which are kept for all of it, and bounds
// the time that an answer may take. From one slice to the next the server would close
// them for want of traffic.
func (a *asking) before() error {
	if err := a.server.Alive(); err != nil {
		return err
	}
	for range a.row.callers {
		c, err := dial(a.server.Addr)
		if err != nil {
			return err
		}
		a.conns = append(a.conns, c)
		if err := c.SetDeadline(time.Now().Add(a.length + answerTimeout)); err != nil {
			return err
		}
	}
	return nil
}

func (a *asking) hangUp() error {
	var faults []error
	for _, c := range a.conns {
		faults = append(faults, c.Close())
	}
	a.conns = nil
	return errors.Join(faults...)
}

func (a *asking) steps() ([]step, error) {
	steps := make([]step, len(a.conns))
	for i, c := range a.conns {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		first := true
		steps[i] = func() (int, error) {
			request := a.requests[random.IntN(len(a.requests))]
			status, body, err := c.exchange(request.bytes)
			if err != nil {
				return 1, errors.Join(err, a.server.Alive())
			}
			if err := a.check(status, body, len(request.people), first); err != nil {
				return 1, err
			}
			first = false
			for _, who := range request.people {
				a.admitted[who].Add(1)
			}
			return len(request.people), nil
		}
	}
	return steps, nil
}

var onError = []byte(`"on_error":`)

// check finds an answer that is not the one expected. The first one of each
// connection and slice is read in full, the others are looked through.
func (a *asking) check(status int, body []byte, hits int, first bool) error {
	if status != a.status || bytes.Count(body, a.contains) != hits || bytes.Contains(body, onError) {
		return fmt.Errorf("an answer of status %d was not expected: %.500s", status, body)
	}
	if !first {
		return nil
	}
	var answers struct {
		nothingDecision
		Results []nothingDecision `json:"results"`
	}
	if err := json.Unmarshal(body, &answers); err != nil {
		return fmt.Errorf("an answer is not JSON: %w", err)
	}
	if len(answers.Results) == 0 {
		answers.Results = []nothingDecision{answers.nothingDecision}
	}
	for _, d := range answers.Results {
		if d.Event != eventName(a.row) || len(d.Limits) != len(nothingLimits) || d.At.IsZero() {
			return fmt.Errorf("an answer is not a decision on four limits: %.500s", body)
		}
	}
	return nil
}

func prepareNothing(ctx context.Context, s *stage, r row) (*subject, error) {
	w, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	_, subject, err := newAsking(s, r, w.nothing)
	return subject, err
}

func prepareWebFar(ctx context.Context, s *stage, r row) (*subject, error) {
	_, subject, err := newWeb(ctx, s, r)
	return subject, err
}

// newWeb prepares hits on counterd with Memcached.
func newWeb(ctx context.Context, s *stage, r row) (*asking, *subject, error) {
	w, err := s.servers(ctx)
	if err != nil {
		return nil, nil, err
	}
	a, subject, err := newAsking(s, r, w.counterd)
	if err != nil {
		return nil, nil, err
	}
	subject.memcached, subject.verify = w.memcached, a.verify
	return a, subject, nil
}

func prepareWebEmbedded(ctx context.Context, s *stage, r row) (*subject, error) {
	w, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	a, subject, err := newAsking(s, r, w.embedded)
	if err != nil {
		return nil, err
	}
	subject.verify = a.verify
	return subject, nil
}

// prepareBatch sends a hundred hits at once, of a hundred addresses. Sixteen
// connections keep the server busy; those of 64 would be thousands of hits under way,
// which wait for one another until the time for a decision is over.
func prepareBatch(ctx context.Context, s *stage, r row) (*subject, error) {
	return prepareBatches(ctx, s, r, func(_, i int) int { return i })
}

// prepareBatchOfOne sends a hundred hits at once, of one address.
func prepareBatchOfOne(ctx context.Context, s *stage, r row) (*subject, error) {
	return prepareBatches(ctx, s, r, func(from, _ int) int { return from })
}

// prepareBatches sends batches, in which who says whose the i-th hit is, where the
// batch begins with the hit from.
func prepareBatches(ctx context.Context, s *stage, r row, whose func(from, i int) int) (*subject, error) {
	a, subject, err := newWeb(ctx, s, r)
	if err != nil {
		return nil, err
	}
	a.requests, a.contains = nil, []byte(`"status":200`)
	for from := 0; from < s.config.sizes.people; from += batchHits {
		var body strings.Builder
		var who []int
		body.WriteString(`{"hits":[`)
		for i := from; i < from+batchHits; i++ {
			if i > from {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"event":"%s","features":{"ip":"%s"},"cost":1}`, eventName(r), address(whose(from, i)))
			who = append(who, whose(from, i))
		}
		body.WriteString(`]}`)
		a.requests = append(a.requests, asked{request("/v1/batch", body.String()), who})
	}
	return subject, nil
}

// prepareWebFlood fills one counter, on which everybody hits from then on.
func prepareWebFlood(ctx context.Context, s *stage, r row) (*subject, error) {
	a, subject, err := newWeb(ctx, s, r)
	if err != nil {
		return nil, err
	}
	if err := a.before(); err != nil {
		return nil, err
	}
	status, body, err := a.conns[0].exchange(a.requests[0].bytes)
	if err == nil {
		err = a.check(status, body, 1, true)
	}
	if err := errors.Join(err, a.hangUp()); err != nil {
		return nil, err
	}
	a.requests, a.status, a.contains = a.requests[:1], http.StatusTooManyRequests, []byte(`"allowed":false,"event":`)
	subject.verify = func(ctx context.Context) error {
		a.admitted[0].Store(1) // what was denied since is not there
		return a.verify(ctx)
	}
	return subject, nil
}

// verify finds hits that were admitted and not counted, or the other way round.
func (a *asking) verify(ctx context.Context) error {
	c, err := client.New(client.Config{URL: "http://" + a.server.Addr})
	if err != nil {
		return err
	}
	defer c.Close()
	return verifySome(a.admitted, func(i int) (int64, error) {
		count, err := c.Count(ctx, eventName(a.row), events.Features{events.KindIP: address(i)}, 24*time.Hour, time.Time{})
		return count.Count, err
	})
}
