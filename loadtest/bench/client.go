package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
)

// clientRows are hits by the Go client. The rows with one caller show what it takes to coalesce none.
func clientRows() []row {
	coalesced, single := called{}, called{single: true}
	return []row{
		{id: "B15", name: "Go client, hit, a request each, 64 callers", callers: 64, prepare: single.prepare, against: []string{"B2"}},
		{id: "B16", name: "Go client, hit, coalesced, 64 callers", callers: 64, prepare: coalesced.prepare, against: []string{"B15", "B2"}},
		{id: "B17", name: "Go client, hit, a request each, 1 caller", callers: 1, prepare: single.prepare},
		{id: "B18", name: "Go client, hit, coalesced, 1 caller", callers: 1, prepare: coalesced.prepare, against: []string{"B17"}},
		{id: "B19", name: "Go client, hit by one limit, a request each, 64 callers", callers: 64, prepare: single.prepare, rates: webOneRate},
		{id: "B20", name: "Go client, hit by one limit, coalesced, 64 callers", callers: 64, prepare: coalesced.prepare, rates: webOneRate, against: []string{"B19"}},
	}
}

// called is hits by the Go client, of random addresses.
type called struct {
	single bool // each is a request
	limits int  // that decide each

	web    // the row, its server, and what it admits
	client *client.Client
}

func (h called) prepare(_ context.Context, s *stage, r row) (_ *subject, err error) {
	h.row, h.server = r, s.fleet.Processes[0].Child
	h.limits = strings.Count(cmp.Or(r.rates, webRates), "/")
	h.admitted = make([]atomic.Int64, s.config.sizes.addresses)
	h.client, err = client.New(client.Config{URL: "http://" + h.server.Addr, NoCoalescing: h.single})
	if err != nil {
		return nil, err
	}
	s.closing(func() error {
		h.client.Close()
		return nil
	})
	return &subject{server: h.server, memcached: s.memcached(), begin: r.each(h.caller), verify: h.verify}, nil
}

// caller returns hits of random addresses.
func (h *called) caller() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		i := random.IntN(len(h.admitted))
		d, err := h.client.Hit(context.Background(), h.row.eventName(), events.Features{events.KindIP: address(i)}, 1)
		switch {
		case err != nil:
			return 0, errors.Join(err, h.server.Alive())
		case !d.Allowed || len(d.Limits) != h.limits || d.Limits[0].OnError != "":
			return 0, fmt.Errorf("a hit was not admitted by %d limits: %+v", h.limits, d)
		}
		h.admitted[i].Add(1)
		return 1, nil
	}
}
