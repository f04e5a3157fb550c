package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realServer serves the real handler with the embedded store.
func realServer(tb testing.TB) *httptest.Server {
	rules := events.Example()
	server := httptest.NewServer(api.NewHandler(api.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}),
	}))
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

	history, err := c.History(t.Context(), "url_shorten", user, "hour", at, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, int64(3), history.Buckets[0].Count)

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

func TestErrorsAreTyped(t *testing.T) {
	c := open(t, client.Config{URL: realServer(t).URL})
	_, err := c.Event(t.Context(), "unknown")
	require.ErrorIs(t, err, client.ErrUnknown)
	_, err = c.Event(t.Context(), "../url_shorten")
	require.ErrorIs(t, err, client.ErrUnknown, "an event's name is one part of the path")

	_, err = c.Increment(t.Context(), "url_shorten", events.Features{"ip": "nowhere"}, 0, time.Time{})
	require.ErrorIs(t, err, client.ErrInvalid)
	fault, ok := errors.AsType[*client.Error](err)
	require.True(t, ok)
	assert.Equal(t, http.StatusBadRequest, fault.Status)
	assert.Len(t, fault.Errors, 2)

	_, err = c.Increment(t.Context(), "url_shorten", events.Features{"user": "\xff"}, 1, time.Time{})
	require.ErrorIs(t, err, client.ErrInvalid, "what is no UTF-8 is not sent")
}

func TestAServerThatIsNotThere(t *testing.T) {
	c := open(t, client.Config{URL: "http://127.0.0.1:1"})
	_, err := c.Count(t.Context(), "url_shorten", events.Features{"user": "secret"}, time.Minute, time.Time{})
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.NotContains(t, err.Error(), "secret")
}

func TestTimeouts(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)

	c := open(t, client.Config{URL: server.URL, Timeout: 20 * time.Millisecond})
	_, err := c.Events(t.Context())
	require.ErrorIs(t, err, client.ErrUnavailable)

	c = open(t, client.Config{URL: server.URL})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = c.Events(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnswersOfOthers(t *testing.T) {
	for _, test := range []struct {
		status    int
		mediaType string
		body      string
		want      error
	}{
		{502, "text/html", "<html>bad gateway</html>", client.ErrUnexpected},
		{503, "application/problem+json", "{broken", client.ErrUnavailable},
		{503, "application/problem+json", `{"title": "t", "detail": "d", "more": 1}`, client.ErrUnavailable},
		{200, "application/json", "<html>", client.ErrUnexpected},
		{200, "application/json", `{"events": [{"name": "new", "added": {"later": true}}]}`, nil},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.mediaType)
			w.WriteHeader(test.status)
			fmt.Fprint(w, test.body)
		}))
		c := open(t, client.Config{URL: server.URL + "/"})
		_, err := c.Events(t.Context())
		if test.want == nil {
			assert.NoError(t, err, "fields of a later version are no fault")
		} else {
			assert.ErrorIs(t, err, test.want, test.body)
		}
		server.Close()
	}
}

func TestURLs(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://%zz"} {
		_, err := client.New(client.Config{URL: bad})
		assert.ErrorIs(t, err, client.ErrInvalid, bad)
	}
	// A server behind a path.
	under := httptest.NewServer(http.StripPrefix("/limits", realServer(t).Config.Handler))
	defer under.Close()
	c := open(t, client.Config{URL: under.URL + "/limits"})
	_, err := c.Events(t.Context())
	require.NoError(t, err)
}

func ExampleClient() {
	rules := events.Example()
	server := httptest.NewServer(api.NewHandler(api.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}),
	}))
	defer server.Close()

	c, err := client.New(client.Config{URL: server.URL}) // such as http://127.0.0.1:8080
	if err != nil {
		panic(err)
	}
	defer c.Close()
	who := events.Features{"ip": "192.168.0.1"}
	if _, err := c.Increment(context.Background(), "url_shorten", who, 1, time.Time{}); err != nil {
		panic(err)
	}
	count, err := c.Count(context.Background(), "url_shorten", who, 24*time.Hour, time.Time{})
	if err != nil {
		panic(err)
	}
	fmt.Println(count.Feature, count.Count, strings.TrimSuffix(count.Window, "h"), "hours")
	// Output: ip:192.168.0.1 1 24 hours
}
