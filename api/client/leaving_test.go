package client_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// What a hit gets whose caller has left, a lease or a turn, is given back if the answer tells of it.
func TestWhatACallerThatLeftGetsIsGivenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		leased := func(user string) jsontext.Value {
			return jsontext.Value(`{"status":200,"allowed":true,"event":"` + user + `","at":"2026-11-21T04:52:30Z","retry_after":0,"reservation":"of ` + user + `","limits":[]}`)
		}
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		ctx, leave := context.WithCancel(t.Context())
		c.hit(ctx, "b")
		c.hit(t.Context(), "c")
		s.end(0, ending{})
		c.admitted("a")
		leave()
		assert.Contains(t, s.logged(), "b is unavailable")
		s.end(1, ending{Results: map[string]jsontext.Value{"b": leased("b"), "c": leased("c")}})
		c.admitted("c")
		require.Len(t, s.exchanges(), 3)
		assert.Equal(t, "/v1/settle", s.asked[2].path)
		assert.JSONEq(t, `{"reservation":"of b","cost":0}`, s.asked[2].body)
		s.end(2, ending{})
	})
}

// A caller that has left may change its features: the hit that goes alone has what was called.
func TestFeaturesAreTheCallersAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		features := client.Features{"user": "b"}
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = c.client.Hit(ctx, "login", features, 1) }()
		synctest.Wait()
		features["user"] = "c" // as if it had left, which the race detector sees
		s.end(0, ending{})
		assert.Equal(t, [][]string{{"a"}, {"b"}}, s.exchanges())
		assert.JSONEq(t, `{"features":{"user":"b"},"cost":1}`, s.asked[1].body)
		leave()
	})
}

// A call ends alike alone, while it waits, and when it has gone with others.
func TestTheEndOfAContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		why := errors.New("why")
		ended := make(chan error, 3)
		ctx, leave := context.WithCancelCause(t.Context())
		call := func(user string) {
			go func() {
				_, err := c.client.Hit(ctx, "login", events.Features{"user": user}, 1)
				ended <- err
			}()
			synctest.Wait()
		}
		c.hit(t.Context(), "first")
		call("b")
		call("c")
		s.end(0, ending{})
		call("waits")
		leave(why)
		for range 3 {
			err := <-ended
			for _, want := range []error{client.ErrUnavailable, context.Canceled, why} {
				require.ErrorIs(t, err, want)
			}
		}
		call("alone")
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// A transport that panics does so for its callers, which can recover: the program goes on.
func TestATransportThatPanics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		recovered := make(chan any, 3)
		for _, user := range []string{"a", "b", "c"} {
			go func() {
				defer func() { recovered <- recover() }()
				_, _ = c.client.Hit(t.Context(), "login", events.Features{"user": user}, 1)
			}()
			synctest.Wait()
		}
		s.end(0, ending{Panic: "of the transport"})
		synctest.Wait()
		s.end(1, ending{Panic: "of the transport"})
		for range 3 {
			assert.Equal(t, "of the transport", <-recovered)
		}
		c.hit(t.Context(), "d")
		ctx, leave := context.WithCancel(t.Context())
		c.hit(ctx, "e")
		c.hit(t.Context(), "f")
		s.end(2, ending{})
		c.admitted("d")
		leave()
		leased := `{"status":200,"allowed":true,"event":"e","at":"2026-11-21T04:52:30Z","retry_after":0,"reservation":"r","limits":[]}`
		s.end(3, ending{Results: map[string]jsontext.Value{"e": jsontext.Value(leased)}})
		c.admitted("f")
		s.end(4, ending{Panic: "as the lease is given back"})
		time.Sleep(client.DefaultTimeout) // net/http waits for the timeouts of exchanges that panicked
	})
}

// A client at rest keeps nothing of its callers, also of callers that left while their hits were under way.
func TestNothingIsKeptOfCallers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		ctx, leave := context.WithCancel(t.Context())
		var kept []weak.Pointer[http.Request]
		c.hit(t.Context(), "a")
		for i := range 20 {
			request := new(http.Request)
			kept = append(kept, weak.Make(request))
			c.hit(context.WithValue(ctx, key{}, request), strings.Repeat("b", 200*i))
		}
		s.end(0, ending{})
		c.admitted("a")
		leave()
		time.Sleep(client.DefaultTimeout) // of timers that were stopped
		s.asked = nil
		runtime.GC()
		for i, request := range kept {
			assert.Nil(t, request.Value(), i)
		}
	})
}
