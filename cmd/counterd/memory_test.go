package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// heap returns the bytes that are in use.
func heap() int64 {
	for range 3 { // what is pooled goes with the second
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// floodedBytes bounds the embedded store under a flood: less than all the features of the
// flood take.
const floodedBytes = 64 << 20

// flooded is what a process consists of, without its connections.
type flooded struct {
	handler http.Handler
	limiter *limiter.Limiter
}

func newFlooded(t *testing.T, rules string, servers ...string) flooded {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(t, err)
	s := settings.Default()
	s.Log, s.Memcached = log, servers
	s.Timeout, s.Grace = 10*time.Second, 20*time.Second // the machine may be busy
	var store store.Store = memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: floodedBytes})
	if len(servers) > 0 {
		opened, err := backend.Open(t.Context(), s, backend.Config{Retention: func() time.Duration { return time.Hour }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, opened.Close()) })
		store = opened.Store
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: s.Grace})
	decider, err := limiter.New(limiter.Config{Local: backend.NewEmbedded(log), Timeout: s.Timeout}, counters)
	require.NoError(t, err)
	counting, err := service.New(service.Config{
		Rules:    func() *events.Rules { return parsed },
		Counters: counting.New(counting.Config{}, counters),
		Limiter:  decider,
	})
	require.NoError(t, err)
	return flooded{handler: api.NewServerHandler(api.ServerConfig{Service: counting, Log: log}), limiter: decider}
}

// batch hits with each of the addresses, and returns the answer.
func (f flooded) batch(t *testing.T, addresses []string) string {
	var hits strings.Builder
	for i, address := range addresses {
		if i > 0 {
			hits.WriteByte(',')
		}
		fmt.Fprintf(&hits, `{"event":"e","features":{"ip":%q}}`, address)
	}
	r := httptest.NewRequest("POST", "/v1/batch", strings.NewReader(`{"hits":[`+hits.String()+`]}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// Whatever the number of features, a process takes bounded memory: a flood of addresses,
// each of which is admitted once, and half of them denied then.
func TestAFloodOfFeaturesTakesBoundedMemory(t *testing.T) {
	const most = 1000
	features := testkit.Fifth(300_000)
	for _, test := range []struct {
		name  string
		bound int64 // of what the heap grows by
		s     func(t *testing.T) []string
	}{
		{"embedded", floodedBytes + 48<<20, func(*testing.T) []string { return nil }},
		{"memcached", 48 << 20, func(t *testing.T) []string {
			return []string{memcachedtest.Start(t, "-m", "256").Addr}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.s(t)
			before := heap()
			f := newFlooded(t, "events: {e: {limits: [{per: ip, rate: 1/d}]}}", s...)
			for _, form := range []func(int) string{
				func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) },
				func(i int) string { return fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff) },
			} {
				addresses := make([]string, most)
				for from := 0; from < features/2; from += most {
					for i := range addresses {
						addresses[i] = form(from + i)
					}
					require.Equal(t, most, strings.Count(f.batch(t, addresses), `"status":200`))
					if from/most%2 == 0 {
						require.Equal(t, most, strings.Count(f.batch(t, addresses), `"status":429`))
					}
				}
			}
			grown := heap() - before
			t.Logf("%d features: the heap has grown by %d MiB", features, grown>>20)
			assert.Less(t, grown, test.bound)
			runtime.KeepAlive(f)
		})
	}
}

// Addresses of one network are one counter: the owner of a /64, or of the prefix of the rule, has
// no more than the owner of one address, and a flood from a /48 is at most 65,536 counters.
func TestAFloodFromOneNetwork(t *testing.T) {
	addresses := testkit.Fifth(1_000_000)
	for _, test := range []struct {
		rule     string
		format   string // of an address, by a number of 20 bits
		counters int
	}{
		{"{per: ip, rate: 5/d}", "2001:db8:0:1::%x", 1},
		{"{per: ip, rate: 5/d}", "2001:db8:0:%x::1", 1 << 16},
		{"{per: ip, rate: 5/d, ipv6_prefix: 48}", "2001:db8:0:%x::1", 1},
		{"{per: ip, rate: 5/d, ipv6_prefix: 56}", "2001:db8:0:%x::1", 1 << 8},
	} {
		rules, err := rulesfile.Parse([]byte("events: {e: {limits: [" + test.rule + "]}}"))
		require.NoError(t, err)
		counters := map[string]struct{}{}
		var applied []events.Applied
		for i := range addresses {
			applied, err = rules.Events["e"].Apply(applied[:0], events.Features{"ip": fmt.Sprintf(test.format, i&0xffff)})
			require.NoError(t, err)
			counters[applied[0].ID] = struct{}{}
		}
		assert.Len(t, counters, test.counters, test)
	}

	// And the limit is that of the network.
	f := newFlooded(t, "events: {e: {limits: [{per: ip, rate: 5/d}]}}")
	admitted := 0
	for batch := range 20 {
		list := make([]string, 1000)
		for i := range list {
			list[i] = fmt.Sprintf("2001:db8:0:1:%x::%x", batch, i)
		}
		admitted += strings.Count(f.batch(t, list), `"status":200`)
	}
	assert.Equal(t, 5, admitted)
}
