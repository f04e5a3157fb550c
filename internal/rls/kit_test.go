package rls_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

// kit is a server with a clock and a store of its own.
type kit struct {
	*rls.Server
	t      *testing.T
	clock  *testkit.Clock
	store  *watched
	limits atomic.Pointer[rlsconfig.Config]
	log    testkit.Log
}

// watched is a store that counts writes, and may fail or hang.
type watched struct {
	store.Store
	writes atomic.Int64
	fails  error
	of     string // fails is of the counters alone that have this in their ID
	hangs  bool
}

func (w *watched) Do(ctx context.Context, ops ...*store.Op) {
	left := ops[:0:0]
	for _, op := range ops {
		w.writes.Add(int64(len(op.Writes)))
		if op.Err = w.fails; !strings.Contains(op.Counter, w.of) {
			op.Err, left = nil, append(left, op)
		}
	}
	if w.of != "" {
		w.Store.Do(ctx, left...)
		return
	}
	switch {
	case w.hangs:
		<-ctx.Done()
		for _, op := range ops {
			op.Err = ctx.Err()
		}
	case w.fails == nil:
		w.Store.Do(ctx, ops...)
	}
}

type setting struct {
	config  string // of envoyproxy/ratelimit
	rules   string
	gate    service.GateConfig
	timeout time.Duration
	store   store.Store // if nil, an embedded one
	onCall  func(domain, code string, took time.Duration)
	onFault func(domain, fault string)
}

func newKit(t *testing.T, s setting) *kit {
	t.Helper()
	k := &kit{t: t, clock: testkit.NewClock(time.Time{})}
	if s.store == nil {
		s.store = memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: k.clock.Now})
	}
	k.store = &watched{Store: s.store}
	if s.config != "" {
		k.reload(s.config)
	}
	if s.timeout == 0 {
		s.timeout = 20 * time.Second // the machine may be busy
	}
	k.Server = newServer(t, k.store, k.clock.Now, s, k.limits.Load, &k.log)
	return k
}

func (k *kit) reload(config string) {
	k.t.Helper()
	parsed, err := rlsconfig.Parse([]rlsconfig.File{{Name: "limits.yaml", Text: []byte(config)}})
	require.NoError(k.t, err)
	k.limits.Store(parsed)
}

func newServer(
	t testing.TB, st store.Store, clock func() time.Time, s setting, limits func() *rlsconfig.Config, log io.Writer,
) *rls.Server {
	t.Helper()
	if s.rules == "" {
		s.rules = "events: {unused: {}}"
	}
	rules, err := rulesfile.Parse([]byte(s.rules))
	require.NoError(t, err)
	buckets := hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: st, Clock: clock, Grace: 40 * time.Second})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(t, err)
	leases, err := eventlog.NewLeases(buckets.Base())
	require.NoError(t, err)
	decider, err := limiter.New(limiter.Config{Timeout: s.timeout}, buckets, logs, leases)
	require.NoError(t, err)
	counters := counting.New(counting.Config{}, buckets, logs, leases)
	decides, err := service.New(service.Config{Rules: func() *events.Rules { return rules }, Limiter: decider, Counters: counters})
	require.NoError(t, err)
	server, err := rls.New(rls.Config{
		Service: decides, Gate: service.NewGate(s.gate), Descriptors: limits, Log: slog.New(slog.NewTextHandler(log, nil)), OnCall: s.onCall, OnFault: s.onFault,
	})
	require.NoError(t, err)
	return server
}

type (
	request    = rlsv3.RateLimitRequest
	descriptor = corev3.RateLimitDescriptor
	response   = rlsv3.RateLimitResponse
)

// of returns a descriptor of keys and values.
func of(pairs ...string) *descriptor {
	d := &descriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &corev3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// costing returns the descriptor with a hits_addend of its own.
func costing(hits uint64, d *descriptor) *descriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func refunding(hits uint64, d *descriptor) *descriptor {
	d = costing(hits, d)
	d.IsNegativeHits = true
	return d
}

// ask returns the answer to a request in the domain.
func (k *kit) ask(domain string, descriptors ...*descriptor) *response {
	k.t.Helper()
	answer, err := k.ShouldRateLimit(k.t.Context(), &request{Domain: domain, Descriptors: descriptors})
	require.NoError(k.t, err)
	require.Len(k.t, answer.Statuses, len(descriptors))
	return answer
}

// says returns the overall code, and of each status its code and what remains.
func says(r *response) (said []any) {
	said = append(said, r.OverallCode)
	for _, s := range r.Statuses {
		said = append(said, s.Code, s.LimitRemaining)
	}
	return said
}

const (
	ok   = rlsv3.RateLimitResponse_OK
	over = rlsv3.RateLimitResponse_OVER_LIMIT
)

// refused requires the request to be refused with that code and reason.
func (k *kit) refused(code codes.Code, reason string, in *request) {
	k.t.Helper()
	_, err := k.ShouldRateLimit(k.t.Context(), in)
	require.Equal(k.t, code, status.Code(err), "%v", err)
	require.ErrorContains(k.t, err, reason)
}

func statusOf(err error) codes.Code { return status.Code(err) }
