package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/child"
)

const (
	batchHits     = 100
	answerTimeout = 20 * time.Second // of an answer, beyond the length of a slice
	// Rates: far ones, which are those of the do-nothing server, and full ones after a hit.
	webRates     = "[1000000/s, 1000000/m, 1000000/h, 1000000/d]"
	webFullRates = "[1000000/s, 1000000/m, 1000000/h, 1/d]"
	webOneRate   = "[1000000/h]" // a far one alone
)

func httpRows() []row {
	nothing, far, flood, batch, batchOfOne := web{nothing: true}, web{}, web{flood: true}, web{batch: true}, web{batch: true, one: true}
	return append([]row{
		{id: "B1", name: "do-nothing handler, 64 connections", callers: 64, prepare: nothing.prepare},
		{id: "B2", name: "counterd, hit, 64 connections", callers: 64, prepare: far.prepare, against: []string{"B1"}},
		{id: "B3", name: "counterd, denied flood, 64 connections", callers: 64, prepare: flood.prepare, against: []string{"B1"}, rates: webFullRates},
		{id: "B4", name: "counterd, batches of 100 hits, 16 connections", callers: 16, prepare: batch.prepare, against: []string{"B2"}},
		{id: "B6", name: "do-nothing handler, 1 connection", callers: 1, prepare: nothing.prepare},
		{id: "B7", name: "counterd, hit, 1 connection", callers: 1, prepare: far.prepare, against: []string{"B6"}},
		{id: "B10", name: "do-nothing handler, 256 connections", callers: 256, prepare: nothing.prepare},
		{id: "B11", name: "counterd, hit, 256 connections", callers: 256, prepare: far.prepare, against: []string{"B10"}},
		{id: "B14", name: "counterd, batches of 100 hits on one counter, 16 connections", callers: 16, prepare: batchOfOne.prepare, against: []string{"B2"}},
	}, clientRows()...)
}

// webRules are the rules of all rows.
func webRules() string { return "events:\n" + webEvents() }

// rpcRules are those beside a configuration: no headers, as envoyproxy/ratelimit sends none by default.
func rpcRules() string { return "headers: none\nevents:\n" + webEvents() }

// webEvents are the events of rows over HTTP.
func webEvents() (rules string) {
	for _, r := range httpRows() {
		rules += rulesOf(r.eventName(), cmp.Or(r.rates, webRates))
	}
	return rules
}

// web is hits over HTTP, of random addresses. Sixteen connections with batches keep the server
// busy; those of 64 would wait for one another until they time out.
type web struct {
	nothing bool // by the do-nothing server
	flood   bool // all on one counter, which is full
	batch   bool // of as many addresses as hits
	one     bool // address only, of a batch

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

func (h web) prepare(_ context.Context, s *stage, r row) (*subject, error) {
	h.row, h.slice, h.server = r, s.config.Duration, s.nothing
	h.admitted = make([]atomic.Int64, s.config.sizes.addresses)
	h.status, h.contains = http.StatusOK, []byte(`{"allowed":true,"event":`)
	if h.batch {
		h.contains = []byte(`"status":200`)
	}
	h.requests = h.requestsOf(len(h.admitted))
	measured := &subject{server: s.nothing, begin: h.begin, end: h.hangUp}
	if h.nothing {
		return measured, nil
	}
	h.server = s.fleet.Processes[0].Child
	measured.server, measured.memcached, measured.verify = h.server, s.memcached(), h.verify
	if h.flood {
		return measured, h.fill()
	}
	return measured, nil
}

// requestsOf returns hits of n addresses.
func (h *web) requestsOf(n int) (list []webRequest) {
	if !h.batch {
		for i := range n {
			body := `{"features":{"ip":"` + address(i) + `"},"cost":1}`
			list = append(list, webRequest{request("/v1/events/"+h.row.eventName()+"/hit", body), []int{i}})
		}
		return list
	}
	for from := 0; from < n; from += batchHits {
		var hits []string
		var addresses []int
		for i := range batchHits {
			if h.one {
				i = 0
			}
			hits = append(hits, fmt.Sprintf(`{"event":"%s","features":{"ip":"%s"},"cost":1}`, h.row.eventName(), address(from+i)))
			addresses = append(addresses, from+i)
		}
		list = append(list, webRequest{request("/v1/batch", `{"hits":[`+strings.Join(hits, ",")+`]}`), addresses})
	}
	return list
}

// fill fills the counter of the first address, which all hits are then on.
func (h *web) fill() error {
	h.requests = h.requests[:1]
	steps, err := h.begin()
	if err == nil {
		_, err = steps[0]()
	}
	h.status, h.contains = http.StatusTooManyRequests, []byte(`"allowed":false,"event":`)
	return errors.Join(err, h.hangUp())
}

// begin opens the connections of a slice. Between slices the server would close idle ones.
func (h *web) begin() (steps []step, err error) {
	if err := h.server.Alive(); err != nil {
		return nil, err
	}
	for range h.row.callers {
		c, err := dial(h.server.Addr, time.Now().Add(h.slice+answerTimeout))
		if err != nil {
			return nil, h.server.Because(err)
		}
		h.conns = append(h.conns, c)
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		steps = append(steps, func() (int, error) {
			request := h.requests[random.IntN(len(h.requests))]
			return len(request.addresses), h.exchange(c, request)
		})
	}
	return steps, nil
}

func (h *web) hangUp() (err error) {
	for _, c := range h.conns {
		err = errors.Join(err, c.Close())
	}
	h.conns = nil
	return err
}

var onError = []byte(`"on_error":`)

// exchange makes the hits of a request.
func (h *web) exchange(c *conn, request webRequest) error {
	status, body, err := c.exchange(request.bytes)
	if err != nil {
		return h.server.Because(err)
	}
	if status != h.status || bytes.Count(body, h.contains) != len(request.addresses) || bytes.Contains(body, onError) {
		return fmt.Errorf("an answer of status %d was not expected: %.500s", status, body)
	}
	if status != http.StatusTooManyRequests {
		for _, i := range request.addresses {
			h.admitted[i].Add(1)
		}
	}
	return nil
}

// verify compares the admitted hits with the counted ones.
func (h *web) verify(ctx context.Context) error {
	c, err := client.New(client.Config{URL: "http://" + h.server.Addr})
	if err != nil {
		return err
	}
	defer c.Close()
	return verifySome(h.admitted, func(i int) (int64, error) {
		d, err := c.Check(ctx, h.row.eventName(), events.Features{events.KindIP: address(i)}, 1)
		if err != nil {
			return 0, err
		}
		return d.Limits[len(d.Limits)-1].Count, nil // of the longest window
	})
}
