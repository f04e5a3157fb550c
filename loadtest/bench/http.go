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
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/fleet"
)

const (
	batchHits     = 100
	answerTimeout = 20 * time.Second // of an answer, beyond the length of a slice
	// Rates: far ones, which are those of the do-nothing server, and full ones after a hit.
	webRates     = "[1000000/s, 1000000/m, 1000000/h, 1000000/d]"
	webFullRates = "[1000000/s, 1000000/m, 1000000/h, 1/d]"
)

func httpRows() []row {
	rows := []row{
		{id: "B1", name: "do-nothing handler, 64 connections", callers: 64, prepare: prepareNothing},
		{id: "B2", name: "counterd, hit, 64 connections", callers: 64, prepare: prepareWebFar, against: []string{"B1"}},
		{id: "B3", name: "counterd, denied flood, 64 connections", callers: 64, prepare: prepareWebFlood, against: []string{"B1"}, rates: webFullRates},
		{id: "B4", name: "counterd, batches of 100 hits, 16 connections", callers: 16, prepare: prepareBatch, against: []string{"B2"}},
		{id: "B5", name: "counterd on the embedded store, hit, 64 connections", callers: 64, prepare: prepareWebEmbedded, against: []string{"B1"}},
		{id: "B6", name: "do-nothing handler, 1 connection", callers: 1, prepare: prepareNothing},
		{id: "B7", name: "counterd, hit, 1 connection", callers: 1, prepare: prepareWebFar, against: []string{"B6"}},
		{id: "B10", name: "do-nothing handler, 256 connections", callers: 256, prepare: prepareNothing},
		{id: "B11", name: "counterd, hit, 256 connections", callers: 256, prepare: prepareWebFar, against: []string{"B10"}},
		{id: "B12", name: "do-nothing handler, open model", callers: 64, prepare: prepareNothing, halfOf: "B2"},
		{id: "B13", name: "counterd, hit, open model", callers: 64, prepare: prepareWebFar, against: []string{"B12"}, halfOf: "B2"},
		{id: "B14", name: "counterd, batches of 100 hits on one counter, 16 connections", callers: 16, prepare: prepareBatchOfOne, against: []string{"B2"}},
	}
	for i := range rows {
		rows[i].stage = stageHTTP
	}
	return rows
}

// web is the servers of the rows over HTTP.
type web struct{ nothing, counterd, embedded *child.Child }

func (s *stage) startServers(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "counterd-bench-")
	if err != nil {
		return err
	}
	s.closing(func() error { return os.RemoveAll(dir) })
	rules := "events:\n"
	for _, r := range httpRows() {
		rules += rulesOf(r.eventName(), cmp.Or(r.rates, webRates), "24h")
	}
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return err
	}
	timeout := s.config.sizes.timeout
	counterd := func(more ...string) func(addr string) []string {
		return func(addr string) []string {
			return append([]string{"-listen", addr, "-rules", file, "-timeout", timeout.String(), "-grace", (2 * timeout).String()}, more...)
		}
	}
	nothing := s.config.DoNothing
	for _, server := range []struct {
		to      **child.Child
		program string
		args    func(addr string) []string
	}{
		{&s.web.counterd, s.config.Counterd, counterd("-memcached", s.shared.Addr)},
		{&s.web.embedded, s.config.Counterd, counterd()},
		{&s.web.nothing, nothing[0], func(addr string) []string { return append(slices.Clone(nothing[1:]), addr) }},
	} {
		*server.to, err = child.Start(ctx, child.Program{Path: server.program, Args: server.args, Ready: func(addr string) error {
			_, err := fleet.Ask(addr, "/readyz")
			return err
		}})
		if err != nil {
			return err
		}
		s.closing((*server.to).Stop)
	}
	return nil
}

// webHits is hits over HTTP.
type webHits struct {
	row      row
	slice    time.Duration
	server   *child.Child
	conns    []*conn
	requests []webRequest
	admitted []atomic.Int64 // by address, of all slices
	status   int            // of every answer
	contains []byte         // in every answer, once for each of its hits
}

// webRequest is a request, and the addresses of its hits.
type webRequest struct {
	bytes     []byte
	addresses []int
}

// newWebHits prepares hits on a server, one of each address in turn.
func newWebHits(s *stage, r row, server *child.Child) (*webHits, *subject) {
	h := &webHits{
		row: r, slice: s.config.Duration, server: server, admitted: make([]atomic.Int64, s.config.sizes.addresses),
		status: http.StatusOK, contains: []byte(`{"allowed":true,"event":`),
	}
	for i := range s.config.sizes.addresses {
		body := `{"features":{"ip":"` + address(i) + `"},"cost":1}`
		h.requests = append(h.requests, webRequest{request("/v1/events/"+r.eventName()+"/hit", body), []int{i}})
	}
	return h, &subject{server: server, before: h.connect, after: h.hangUp, steps: h.steps}
}

// newWeb prepares hits on counterd with Memcached.
func newWeb(s *stage, r row) (*webHits, *subject) {
	h, subject := newWebHits(s, r, s.web.counterd)
	subject.memcached, subject.verify = s.shared, h.verify
	return h, subject
}

// connect opens the connections of a slice. Between slices the server would close idle ones.
func (h *webHits) connect() error {
	if err := h.server.Alive(); err != nil {
		return err
	}
	for range h.row.callers {
		c, err := dial(h.server.Addr)
		if err != nil {
			return h.server.Because(err)
		}
		h.conns = append(h.conns, c)
		if err := c.SetDeadline(time.Now().Add(h.slice + answerTimeout)); err != nil {
			return err
		}
	}
	return nil
}

func (h *webHits) hangUp() error {
	var faults []error
	for _, c := range h.conns {
		faults = append(faults, c.Close())
	}
	h.conns = nil
	return errors.Join(faults...)
}

func (h *webHits) steps() []step {
	steps := make([]step, len(h.conns))
	for i, c := range h.conns {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		first := true
		steps[i] = func() (int, error) {
			request := h.requests[random.IntN(len(h.requests))]
			err := h.exchange(c, request, first)
			first = false
			return len(request.addresses), err
		}
	}
	return steps
}

var onError = []byte(`"on_error":`)

// exchange makes the hits of a request. It reads the first answer of each connection and
// slice in full, and searches the others.
func (h *webHits) exchange(c *conn, request webRequest, first bool) error {
	status, body, err := c.exchange(request.bytes)
	if err != nil {
		return h.server.Because(err)
	}
	if status != h.status || bytes.Count(body, h.contains) != len(request.addresses) || bytes.Contains(body, onError) {
		return fmt.Errorf("an answer of status %d was not expected: %.500s", status, body)
	}
	for _, i := range request.addresses {
		h.admitted[i].Add(1)
	}
	if !first {
		return nil
	}
	var answer struct {
		nothingDecision
		Results []nothingDecision `json:"results"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("an answer is not JSON: %w", err)
	}
	if len(answer.Results) == 0 {
		answer.Results = []nothingDecision{answer.nothingDecision}
	}
	for _, d := range answer.Results {
		if d.Event != h.row.eventName() || len(d.Limits) != len(nothingLimits) || d.At.IsZero() {
			return fmt.Errorf("an answer is not a decision on four limits: %.500s", body)
		}
	}
	return nil
}

// verify compares the admitted hits with the counted ones.
func (h *webHits) verify(ctx context.Context) error {
	c, err := client.New(client.Config{URL: "http://" + h.server.Addr})
	if err != nil {
		return err
	}
	defer c.Close()
	return verifySome(h.admitted, func(i int) (int64, error) {
		count, err := c.Count(ctx, h.row.eventName(), events.Features{events.KindIP: address(i)}, 24*time.Hour, time.Time{})
		return count.Count, err
	})
}

func prepareNothing(_ context.Context, s *stage, r row) (*subject, error) {
	_, subject := newWebHits(s, r, s.web.nothing)
	return subject, nil
}

func prepareWebFar(_ context.Context, s *stage, r row) (*subject, error) {
	_, subject := newWeb(s, r)
	return subject, nil
}

func prepareWebEmbedded(_ context.Context, s *stage, r row) (*subject, error) {
	h, subject := newWebHits(s, r, s.web.embedded)
	subject.verify = h.verify
	return subject, nil
}

// prepareBatch sends a hundred hits at once, of a hundred addresses. Sixteen connections keep
// the server busy; those of 64 would wait for one another until they time out.
func prepareBatch(_ context.Context, s *stage, r row) (*subject, error) {
	return prepareBatches(s, r, func(from, i int) int { return from + i })
}

// prepareBatchOfOne sends a hundred hits at once, of one address.
func prepareBatchOfOne(_ context.Context, s *stage, r row) (*subject, error) {
	return prepareBatches(s, r, func(from, _ int) int { return from })
}

func prepareBatches(s *stage, r row, addressOf func(from, i int) int) (*subject, error) {
	h, subject := newWeb(s, r)
	h.requests, h.contains = nil, []byte(`"status":200`)
	for from := 0; from < s.config.sizes.addresses; from += batchHits {
		var hits []string
		var addresses []int
		for i := range batchHits {
			n := addressOf(from, i)
			hits = append(hits, fmt.Sprintf(`{"event":"%s","features":{"ip":"%s"},"cost":1}`, r.eventName(), address(n)))
			addresses = append(addresses, n)
		}
		h.requests = append(h.requests, webRequest{request("/v1/batch", `{"hits":[`+strings.Join(hits, ",")+`]}`), addresses})
	}
	return subject, nil
}

// prepareWebFlood fills one counter, which every hit is then on.
func prepareWebFlood(_ context.Context, s *stage, r row) (*subject, error) {
	h, subject := newWeb(s, r)
	if err := h.connect(); err != nil {
		return nil, err
	}
	if err := errors.Join(h.exchange(h.conns[0], h.requests[0], true), h.hangUp()); err != nil {
		return nil, err
	}
	h.requests, h.status, h.contains = h.requests[:1], http.StatusTooManyRequests, []byte(`"allowed":false,"event":`)
	subject.verify = func(ctx context.Context) error {
		h.admitted[0].Store(1) // the denied ones are not counted
		return h.verify(ctx)
	}
	return subject, nil
}
