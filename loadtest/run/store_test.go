package run_test

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/traffic"
)

const rules = `
events:
  e:
    retention: 24h
    limits:
      - {per: ip, rate: [7/d, 1000/h]}
`

// embedded is a limiter by those rules in this process; "": rules.
func embedded(t *testing.T, text string, options ...counterd.Option) *run.Embedded {
	t.Helper()
	parsed, err := counterd.ParseRules([]byte(cmp.Or(text, rules)))
	require.NoError(t, err)
	// A busy machine is no failure of the store.
	limiter, err := counterd.New(parsed, append(options, counterd.WithTimeout(30*time.Second), counterd.WithGrace(time.Minute), counterd.WithLog(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	target, err := run.NewEmbedded(limiter, "here", time.Minute, 10_000)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	return target
}

// stores are the options of both stores.
func stores(server *memcachedtest.Server) map[string][]counterd.Option {
	return map[string][]counterd.Option{"memory": nil, "servers": {counterd.WithMemcached(server.Addr)}}
}

// of returns calls of so many addresses.
func of(t *testing.T, n int, mix traffic.Mix, batch int) *traffic.Source {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	s, err := traffic.New(traffic.Config{Event: "e", Population: traffic.NewUniform("ip", n, rng), Mix: mix, BatchSize: batch, Rand: rng})
	require.NoError(t, err)
	return s
}

// gets returns how many keys Memcached was asked for.
func gets(t *testing.T, server *memcachedtest.Server) (sum int64) {
	t.Helper()
	stats := server.Stats("")
	for _, name := range []string{"get_hits", "get_misses"} {
		n, err := strconv.ParseInt(stats[name], 10, 64)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// markers are reads of what is no bucket: how a server is, on each connection and now and
// then.
const markers = 20

// Each address is admitted seven times a day: the admitted calls of the report are what the
// limits allow. And its reads are the ones that Memcached has seen.
func TestAdmittedAndDeniedAreWhatTheLimitsSay(t *testing.T) {
	server := memcachedtest.Start(t)
	for name, options := range stores(server) {
		t.Run(name, func(t *testing.T) {
			const addresses, calls = 5, 400
			target := embedded(t, "", options...)
			before := gets(t, server)
			report, err := run.Run(t.Context(), run.Config{
				Target: target, Source: of(t, addresses, nil, 1), Profile: arrival.Constant(calls), Duration: time.Second,
			})
			require.NoError(t, err)
			assert.Equal(t, run.Hits{Admitted: 7 * addresses, Denied: calls - 7*addresses}, report.Hits)
			assert.ElementsMatch(t, []run.Status{{Name: "200", Requests: 7 * addresses}, {Name: "429", Requests: calls - 7*addresses}}, report.Statuses)
			require.Len(t, report.Limits, 2)
			assert.Equal(t, "ip-1000-per-1h", report.Limits[0].Name)
			assert.Zero(t, report.Limits[0].Denied)
			assert.Equal(t, run.Limit{Name: "ip-7-per-24h", Admitted: 7 * addresses, Denied: calls - 7*addresses}, report.Limits[1])
			if name == "memory" {
				assert.Contains(t, report.StoreNote, "its store has no servers")
				return
			}
			require.NotNil(t, report.Store, report.StoreNote)
			assert.EqualValues(t, calls, report.Store.Calls)
			assert.GreaterOrEqual(t, report.Store.Trips, int64(addresses), "hits on one counter that come together share one, on a busy machine all")
			read := gets(t, server) - before
			assert.InDelta(t, read, report.Store.Reads, markers+2*150, "but for the look ahead of the run, at most a cover of each limit")
			assert.Positive(t, report.Store.Reads)
		})
	}
}
