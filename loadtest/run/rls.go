package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/rlsclient"
	"github.com/counterd/counterd/loadtest/traffic"
)

// RLS are servers of Envoy's RateLimitService, counterd's or others.
type RLS struct {
	addrs   []string
	clients []*rlsclient.Client
	kinds   []string
	metrics *HTTP // nil: their work and usage are unknown
}

// NewRLS returns servers at those addresses, which are called in turn. The event of a call is the domain, and its
// features are the entries of one descriptor, in the order of the kinds. The config's address is not used. Work
// and usage are those of the metrics; nil: unknown. It does not call them.
func NewRLS(addrs, kinds []string, config rlsclient.Config, metrics *HTTP) (*RLS, error) {
	r := &RLS{addrs: addrs, kinds: kinds, metrics: metrics}
	for _, addr := range addrs {
		config.Addr = addr
		c, err := rlsclient.New(config)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.clients = append(r.clients, c)
	}
	return r, nil
}

// Names returns the addresses.
func (r *RLS) Names() []string { return r.addrs }

// Close closes the connections.
func (r *RLS) Close() (err error) {
	for _, c := range r.clients {
		err = errors.Join(err, c.Close())
	}
	if r.metrics != nil {
		err = errors.Join(err, r.metrics.Close())
	}
	return err
}

// Probe checks instead of the call.
func (r *RLS) Probe(ctx context.Context, call traffic.Call) error {
	for i, c := range r.clients {
		if _, err := c.Ask(ctx, rlsclient.NewRequest(call.Event, r.kinds, call.Features, 0)); err != nil {
			return fmt.Errorf("%s: %w", r.addrs[i], err)
		}
	}
	return nil
}

// Do asks one server after the other: for a hit with its cost, for a check with none.
func (r *RLS) Do(ctx context.Context, n int64, call traffic.Call) Answer {
	cost := call.Cost
	if call.Kind == traffic.Check {
		cost = 0
	}
	said, err := r.clients[n%int64(len(r.clients))].Ask(ctx, rlsclient.NewRequest(call.Event, r.kinds, call.Features, cost))
	if err != nil {
		answer := Answer{Status: status.Code(err).String(), Failed: true}
		if call.Kind == traffic.Hit && status.Code(err) == codes.Unavailable {
			answer.Results = []wire.Result{{Status: http.StatusServiceUnavailable}}
		}
		return answer
	}
	answer := Answer{Status: said.OverallCode.String()}
	if call.Kind == traffic.Hit {
		answer.Results = []wire.Result{{Decision: decisionOf(said)}}
	}
	return answer
}

// decisionOf returns what is counted of an answer: the verdict, and that of the limit which each status names. One
// that names none was decided without the store.
func decisionOf(said *rlsclient.Response) *wire.Decision {
	d := &wire.Decision{Allowed: said.OverallCode == rlsclient.OK}
	for _, s := range said.Statuses {
		state := wire.LimitState{Name: rlsclient.NameOf(s.CurrentLimit), Allowed: s.Code == rlsclient.OK}
		if s.CurrentLimit == nil {
			state.OnError = "unknown"
		}
		d.Limits = append(d.Limits, state)
	}
	return d
}

// Read reads the metrics, if they are known.
func (r *RLS) Read(ctx context.Context) Reading {
	if r.metrics == nil {
		return Reading{StoreNote: "the rate limit service has no figures, -admin names /metrics of counterd"}
	}
	return r.metrics.Read(ctx)
}
