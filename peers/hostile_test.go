package peers

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/top"
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
		}, 24 << 20},
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
			f := New([]string{peer.URL})
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
		f := New([]string{"http://counterd.test"})
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
		f := New(urls)
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
