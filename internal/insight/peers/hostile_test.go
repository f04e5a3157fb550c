package peers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// ownList returns the list of a process that has denied one hit of bob.
func ownList() top.List {
	all := top.New(top.Config{})
	counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", "bob"})
	all.Add(top.Denied, top.Key{Event: "login", Feature: counter.Feature}, "minute")
	return all.List(query)
}

var query = top.Query{Outcome: top.Denied, N: 20, Window: time.Hour}

// A peer that sends far more than the contract has stays unanswered, and takes a bounded memory.
func TestEndlessAnswersOfPeers(t *testing.T) {
	feature := []byte(`{"event":"login","feature":"user:eve","features":{"user":"eve"},"count":1,"error":0},`)
	many := bytes.Repeat(feature, 1<<20/len(feature))
	for name, test := range map[string]struct {
		send func(net.Conn)
		most uint64 // bytes
	}{
		"64 MiB of features": {func(conn net.Conn) {
			_, err := conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"features\":["))
			for i := 0; i < 64 && err == nil; i++ {
				_, err = conn.Write(many)
			}
		}, 48 << 20}, // with what grows meanwhile
		"many header lines": {func(conn net.Conn) {
			_, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n"))
			for err == nil {
				_, err = conn.Write([]byte("X-More: more of the header\r\n"))
			}
		}, 2 << 20},
		"a header line without an end": {func(conn net.Conn) {
			_, err := conn.Write([]byte("HTTP/1.1 200 OK\r\nX-More: "))
			for err == nil {
				_, err = conn.Write(bytes.TrimSpace(feature))
			}
		}, 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if assert.NoError(t, err) {
					defer conn.Close()
					test.send(conn)
				}
			}))
			defer peer.Close()
			f := New(Config{URLs: []string{peer.URL}})
			defer f.Close()
			own := ownList()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := f.Top(t.Context(), "", own, query)
			runtime.ReadMemStats(&after)
			assert.Equal(t, []string{peer.URL}, got.Unanswered)
			assert.Equal(t, 1, got.Processes)
			require.Len(t, got.Features, 1)
			assert.Equal(t, "user:bob", got.Features[0].Feature)
			t.Logf("%d KiB", (after.TotalAlloc-before.TotalAlloc)>>10)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, test.most)
		})
	}
}

// Two calls ask the peers at a time, and the others have their turn after them.
func TestAsksTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := New(Config{URLs: []string{"http://counterd.test"}})
		var dials atomic.Int64
		refuse := make(chan struct{})
		f.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			<-refuse
			return nil, errors.New("refused")
		}
		own := ownList()
		var calls sync.WaitGroup
		for range 6 {
			calls.Go(func() { assert.Len(t, f.Top(context.Background(), "", own, query).Unanswered, 1) })
		}
		for _, want := range []int64{2, 4, 6} {
			synctest.Wait()
			assert.Equal(t, want, dials.Load())
			refuse <- struct{}{}
			refuse <- struct{}{}
		}
		calls.Wait()
	})
}

// A call that has no turn in its time has the hits of its own process, and names all peers.
func TestAsksWithoutATurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		urls := []string{"http://a.test", "http://b.test"}
		f := New(Config{URLs: urls})
		for range maxAsks {
			f.asks <- struct{}{} // of calls that do not end
		}
		f.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			t.Error("it has no turn")
			return nil, errors.New("refused")
		}
		got := f.Top(context.Background(), "", ownList(), query)
		assert.Equal(t, urls, got.Unanswered)
		assert.Equal(t, 1, got.Processes)
		assert.Len(t, got.Features, 1)
		assert.Len(t, f.asks, maxAsks, "it gives no turn back that it has not had")
	})
}

// A peer whose list is invalid stays unanswered, and adds nothing.
func TestInvalidListsOfPeers(t *testing.T) {
	leaktest.Check(t)
	const valid = `{"event":"login","feature":"user:bob","features":{"user":"bob"},"count":7,"error":2,"limits":[{"name":"minute","count":3}]}`
	listOf := func(features string) string { return `{"features":[` + features + `],"rest":1}` }
	with := func(old, mine string) string {
		require.Contains(t, valid, old)
		return listOf(strings.Replace(valid, old, mine, 1))
	}
	var body string
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = io.WriteString(w, body)
	}))
	defer peer.Close()
	f := New(Config{URLs: []string{peer.URL}})
	defer f.Close()
	own := ownList()
	for name, hostile := range map[string]string{
		"a negative count":            with(`"count":7`, `"count":-7`),
		"a negative error":            with(`"error":2`, `"error":-2`),
		"an error above its count":    with(`"error":2`, `"error":8`),
		"a huge count":                with(`"count":7`, `"count":9007199254740993`),
		"a negative rest":             `{"features":[` + valid + `],"rest":-1}`,
		"a huge rest":                 `{"features":[` + valid + `],"rest":9223372036854775807}`,
		"a negative count of a limit": with(`"count":3`, `"count":-3`),
		"a huge count of a limit":     with(`"count":3`, `"count":9007199254740993`),
		"a feature twice":             listOf(valid + "," + valid),
		"an invalid kind":             listOf(strings.ReplaceAll(valid, "user", "User")),
		"an empty value":              listOf(strings.ReplaceAll(valid, "bob", "")),
		"a long value":                listOf(strings.ReplaceAll(valid, "bob", strings.Repeat("b", events.MaxValue+1))),
		"no address":                  listOf(strings.ReplaceAll(valid, "user", "ip")),
		"no feature":                  with(`{"user":"bob"}`, `{}`),
		"the text of another feature": with(`{"user":"bob"}`, `{"user":"eve"}`),
		"an invalid event":            with(`"login"`, `"Log in"`),
		"a domain without a feature":  listOf(`{"event":"rls/shop","feature":"","features":{},"count":1,"error":0}`),
		"a long feature of a domain":  listOf(`{"event":"rls/shop","feature":"` + strings.Repeat("b", maxDomainFeature+1) + `","features":{"a":"b"},"count":1,"error":0}`),
	} {
		body = hostile
		got := f.Top(t.Context(), "", own, query)
		assert.Equal(t, []string{peer.URL}, got.Unanswered, name)
		assert.Equal(t, wireOf(own).Features, got.Features, name)
		assert.Zero(t, got.Rest, name)
	}
	body = listOf(valid)
	got := f.Top(t.Context(), "", own, query)
	assert.Empty(t, got.Unanswered)
	assert.Equal(t, int64(1+7), got.Features[0].Count)
	assert.Equal(t, []wire.TopLimit{{Name: "minute", Count: 1 + 3}}, got.Features[0].Limits)
}

// What processes count is valid, also by the entries of domains.
func TestFeaturesOfProcessesAreValid(t *testing.T) {
	long := strings.Repeat("v", events.MaxValue)
	all := top.New(top.Config{})
	for event, features := range map[string][][][2]string{
		"login": {
			{{"ip", "192.0.2.1"}}, {{"ip", "2001:db8::/64"}}, {{"ip", "2001:db8::1"}}, {{"user", long}},
			{{"ip", "192.0.2.1"}, {"user", "a b+c:d\x00✓"}},
		},
		"rls/Any domain": {
			{{"Key", ""}}, {{"key", "a"}, {"key", "b"}}, {{"ip", "nowhere"}}, {{"remote address", long[:1000]}},
			slices.Repeat([][2]string{{"k", ""}}, 1024),
		},
	} {
		for _, pairs := range features {
			counter, _ := events.CounterOf(nil, 0, pairs...)
			all.Add(top.Denied, top.Key{Event: event, Feature: counter.Feature}, "minute")
		}
	}
	list := wireOf(all.List(query))
	require.Len(t, list.Features, 10)
	for _, one := range list.Features {
		assert.NoError(t, check(wire.Top{Features: []wire.TopFeature{one}}), one.Feature)
	}
}

// Sums of the highest counts of the most peers saturate, and neither overflow nor become negative.
func TestSumsSaturate(t *testing.T) {
	one := wire.Top{Rest: maxCount, Features: []wire.TopFeature{{
		Event: "login", Feature: "user:bob", Features: map[string]string{"user": "bob"}, Count: maxCount, Error: maxCount,
		Limits: []wire.TopLimit{{Name: "minute", Count: maxCount}},
	}}}
	none := wire.Top{Rest: maxCount}
	require.NoError(t, check(one))
	for _, lists := range [][]wire.Top{slices.Repeat([]wire.Top{one}, 1+Max), append(slices.Repeat([]wire.Top{none}, Max), one)} {
		for _, n := range []int{0, 1} {
			got := merge(lists, n)
			assert.Equal(t, int64(maxCount), got.Rest)
			assert.Equal(t, one.Features[:n], got.Features)
		}
	}
}
