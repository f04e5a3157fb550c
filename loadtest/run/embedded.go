package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/loadtest/traffic"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/service"
	"github.com/counterd/counterd/store"
)

// EmbeddedConfig says how counterd's handler runs in this process. Only Rules are needed.
type EmbeddedConfig struct {
	Rules   *events.Rules
	Servers []string      // of Memcached; none: the embedded store
	Timeout time.Duration // the longest wait for the store in one decision; 0: limiter.DefaultTimeout
	Pending int           // the most that waits for the store; 0: the engine's default
}

// Embedded is counterd's handler in this process, without a network in front of it.
type Embedded struct {
	*HTTP
	config EmbeddedConfig
	fleet  *memcache.Fleet // nil: the embedded store
	counts *counted.Counts
}

// handlerTransport calls a handler.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, received := httptest.NewRecorder(), *r
	if received.Body == nil { // as a server's request never is
		received.Body = http.NoBody
	}
	h.ServeHTTP(answer, &received)
	return answer.Result(), nil
}

// NewEmbedded returns it. Close frees what it holds.
func NewEmbedded(ctx context.Context, config EmbeddedConfig) (*Embedded, error) {
	if config.Rules == nil {
		return nil, errors.New("run: rules are needed")
	}
	e := &Embedded{config: config, counts: &counted.Counts{}}
	store, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: max(hierarchy.DefaultGrace, 2*config.Timeout), MaxPending: config.Pending})
	decider, err := limiter.New(limiter.Config{Engine: counters, Local: memcache.NewEmbedded(memcache.EmbeddedConfig{}), Timeout: config.Timeout, MaxPending: config.Pending})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	decides, err := service.New(service.Config{
		Rules: func() *events.Rules { return config.Rules }, Limiter: decider, Counters: counters,
	})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	handler := api.NewHandler(api.Config{Service: decides})
	e.HTTP, err = newHTTP(HTTPConfig{URLs: []string{"http://counterd.invalid"}, Timeout: max(time.Minute, 2*config.Timeout)}, handlerTransport{handler})
	return e, err
}

func (e *Embedded) open(ctx context.Context) (store.Store, error) {
	if len(e.config.Servers) == 0 {
		store := &counted.Store{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
		e.counts = &store.Counts
		return store, nil
	}
	var err error
	e.fleet, err = memcache.NewFleet(ctx, memcache.Config{Servers: e.config.Servers, Timeout: e.config.Timeout, OnRoundTrip: e.count})
	return e.fleet, err
}

// count counts a round trip, unless the server is known to be down and was not asked.
func (e *Embedded) count(_ context.Context, trip memcache.RoundTrip) {
	if memcache.OutcomeOf(trip.Err) != memcache.OutcomeDown {
		e.counts.Trips.Add(1)
		e.counts.Reads.Add(int64(trip.Reads))
	}
}

// Names returns the store.
func (e *Embedded) Names() []string {
	if e.fleet == nil {
		return []string{"the memory of this process"}
	}
	return []string{"memcached " + strings.Join(e.config.Servers, ",") + " from this process"}
}

// Close closes the connections to the servers.
func (e *Embedded) Close() error {
	if e.fleet == nil {
		return nil
	}
	return e.fleet.Close()
}

// Probe asks all servers, and makes a check or a count instead of the call.
func (e *Embedded) Probe(ctx context.Context, call traffic.Call) error {
	if e.fleet != nil {
		var faults []error
		for server, err := range e.fleet.Ping(ctx) {
			if err != nil {
				faults = append(faults, fmt.Errorf("memcached %s: %w", server, err))
			}
		}
		if err := errors.Join(faults...); err != nil {
			return err
		}
	}
	return e.HTTP.Probe(ctx, call)
}

// Read returns the store's round trips and reads, and the usage of this process, the load
// generator included.
func (e *Embedded) Read(context.Context) Reading {
	r := Reading{Trips: e.counts.Trips.Load(), Reads: e.counts.Reads.Load()}
	r.Processes, r.ProcessesNote = usageOfAll([]int{os.Getpid()}, "")
	return r
}
