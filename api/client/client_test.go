package client_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600+1800) // nothing depends on it
	goleak.VerifyTestMain(m)
}

// newHandler returns the real handler with the embedded store.
func newHandler(tb testing.TB) http.Handler {
	tb.Helper()
	rules, store := events.Example(), memcache.NewEmbedded(memcache.EmbeddedConfig{})
	// The machine that runs the tests may be busy: a wide grace keeps hits trusted.
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: 40 * time.Second})
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, buckets)
	require.NoError(tb, err)
	decides, err := service.New(service.Config{
		Rules: func() *events.Rules { return rules }, Counters: counting.New(counting.Config{}, buckets), Limiter: decider,
	})
	require.NoError(tb, err)
	return api.NewServerHandler(api.ServerConfig{Service: decides, Log: slog.New(slog.DiscardHandler)})
}

// realServer serves the real handler.
func realServer(tb testing.TB) *httptest.Server {
	leaktest.Check(tb)
	server := httptest.NewServer(newHandler(tb))
	tb.Cleanup(server.Close)
	return server
}

func open(tb testing.TB, config client.Config) *client.Client {
	tb.Helper()
	c, err := client.New(config)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

func TestAgainstTheRealServer(t *testing.T) {
	c := open(t, client.Config{URL: realServer(t).URL})
	odd := events.Features{"ip": "2001:db8::1", "user": "a b+c&d=e%\r\n✓/?#"}
	at := time.Now().Add(-time.Hour)

	done, err := c.Increment(t.Context(), "url_shorten", odd, 3, at)
	require.NoError(t, err)
	assert.Equal(t, at.Unix(), done.At.Unix())
	assert.Equal(t, []string{"ip:2001:db8::/64", "user:" + odd["user"]}, done.Counters)
	_, err = c.Increment(t.Context(), "url_shorten", odd, 4, time.Time{})
	require.NoError(t, err)

	user := events.Features{"user": odd["user"]}
	count, err := c.Count(t.Context(), "url_shorten", user, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, int64(7), count.Count)
	count, err = c.Count(t.Context(), "url_shorten", user, time.Minute, at)
	require.NoError(t, err)
	assert.Equal(t, int64(3), count.Count)
	assert.Equal(t, at.Unix(), count.To.Unix())

	history, err := c.History(t.Context(), "url_shorten", user, "hour", at, time.Time{}, "")
	require.NoError(t, err)
	assert.Equal(t, int64(3), history.Buckets[0].Count)

	history, err = c.History(t.Context(), "url_shorten", user, "hour", at, time.Time{}, "denied")
	require.NoError(t, err)
	assert.Equal(t, "denied", history.Outcome)
	assert.Zero(t, history.Buckets[0].Count)

	require.NoError(t, c.Reset(t.Context(), "url_shorten", user))
	count, err = c.Count(t.Context(), "url_shorten", user, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Zero(t, count.Count)

	all, err := c.Events(t.Context())
	require.NoError(t, err)
	one, err := c.Event(t.Context(), "url_shorten")
	require.NoError(t, err)
	assert.Equal(t, all.Events[0], one)
}

// A denial is a decision, not an error.
func TestHits(t *testing.T) {
	c := open(t, client.Config{URL: realServer(t).URL})
	who := events.Features{"ip": "203.0.113.9"}
	check, err := c.Check(t.Context(), "url_shorten", who, 2)
	require.NoError(t, err)
	assert.True(t, check.Allowed)
	assert.Zero(t, check.Limits[1].Count)

	d, err := c.Hit(t.Context(), "url_shorten", who, 2)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Equal(t, "url_shorten", d.Event)
	assert.WithinDuration(t, time.Now(), d.At.Time, 10*time.Second)
	assert.Equal(t, int64(2), d.Limits[1].Count)
	assert.Equal(t, "ip:203.0.113.9", d.Limits[1].Feature)
	assert.True(t, d.Limits[1].IsExact())

	d, err = c.Hit(t.Context(), "url_shorten", who, 6)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Nil(t, d.RetryAfter, "6 never fit 5 a minute")
	d, err = c.Hit(t.Context(), "url_shorten", who, 4)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	check, err = c.Check(t.Context(), "url_shorten", who, 4)
	require.NoError(t, err)
	assert.False(t, check.Allowed)
	assert.Nil(t, check.Limits[0].Reset, "nor 4 twice a second")
	require.NotNil(t, check.Limits[1].Reset)
	assert.InDelta(t, 59, *check.Limits[1].Reset, 11)

	for _, bad := range []struct {
		event    string
		features events.Features
		cost     int64
		want     error
	}{
		{"unknown", who, 1, client.ErrUnknown},
		{"url_shorten", who, -1, client.ErrInvalid},
		{"url_shorten", events.Features{"user": "42"}, 1, client.ErrInvalid},
	} {
		_, err = c.Hit(t.Context(), bad.event, bad.features, bad.cost)
		require.ErrorIs(t, err, bad.want)
		_, err = c.Check(t.Context(), bad.event, bad.features, bad.cost)
		require.ErrorIs(t, err, bad.want)
	}
}

func TestBatch(t *testing.T) {
	c := open(t, client.Config{URL: realServer(t).URL})
	who := wire.BatchHit{Event: "url_shorten", Features: events.Features{"ip": "203.0.113.9"}}
	dear := who
	dear.Cost = new(int64(7))
	results, err := c.Batch(t.Context(), []wire.BatchHit{who, dear, who, {Event: "unknown"}, {Event: "url_shorten"}, who})
	require.NoError(t, err)
	var statuses []int
	for _, result := range results {
		statuses = append(statuses, result.Status)
	}
	assert.Equal(t, []int{200, 429, 200, 404, 400, 429}, statuses)
	assert.Equal(t, int64(2), results[2].Limits[1].Count)
	assert.False(t, results[5].Allowed)
	assert.Equal(t, "/hits/4/features", results[4].Errors[0].Pointer)

	_, err = c.Batch(t.Context(), nil)
	require.ErrorIs(t, err, client.ErrInvalid)
	_, err = c.Batch(t.Context(), make([]wire.BatchHit, 1001))
	require.ErrorIs(t, err, client.ErrInvalid)
}

// other is a transport that is none of net/http's own.
type other struct{ http.RoundTripper }

// Programs replace net/http's default transport, by one that traces for example. The client has one of its own.
func TestAnotherDefaultTransport(t *testing.T) {
	was := http.DefaultTransport
	defer func() { http.DefaultTransport = was }()
	http.DefaultTransport = other{was}
	_, err := open(t, client.Config{URL: realServer(t).URL}).Events(t.Context())
	require.NoError(t, err)
}

func TestFaultyConfigs(t *testing.T) {
	const good = "http://127.0.0.1:8080"
	for _, bad := range []client.Config{
		{}, {URL: "127.0.0.1:8080"}, {URL: "ftp://127.0.0.1"}, {URL: "http://"}, {URL: "http://%zz"}, {URL: good, Timeout: -1}, {URL: good, Conns: -1},
	} {
		_, err := client.New(bad)
		assert.ErrorIs(t, err, client.ErrInvalid, bad)
	}
}

func TestAServerBehindAPath(t *testing.T) {
	leaktest.Check(t)
	under := httptest.NewServer(http.StripPrefix("/limits", realServer(t).Config.Handler))
	defer under.Close()
	c := open(t, client.Config{URL: under.URL + "/limits"})
	_, err := c.Events(t.Context())
	require.NoError(t, err)
}
