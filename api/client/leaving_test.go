package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// What a hit gets whose caller has left, a lease or a turn, is given back if the answer tells of it.
func TestWhatACallerThatLeftGetsIsGivenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		decision := func(reservation string) string {
			return `{"status":200,"allowed":true,"event":"of ` + reservation + `","at":"2026-03-14T23:30:33Z","retry_after":0,` +
				`"reservation":"` + reservation + `","limits":[]}`
		}
		s := &script{fault: func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/v1/batch":
				return reply(r, 200, "application/json", `{"results":[`+decision("b")+","+decision("c")+`]}`), nil
			case "/v1/settle":
				return reply(r, 200, "application/json", `{}`), nil
			}
			return nil, nil
		}}
		c := newCaller(t, s)
		c.hit(t.Context(), "a")
		ctx, leave := context.WithCancelCause(t.Context())
		c.hit(ctx, "b")
		c.hit(t.Context(), "c")
		s.end(0)
		c.admitted("a")
		why := errors.New("why")
		leave(why)
		err, done := c.ended("b")
		require.True(t, done)
		for _, want := range []error{client.ErrUnavailable, context.Canceled, why} {
			require.ErrorIs(t, err, want)
		}
		s.end(1)
		c.admitted("c")
		require.Len(t, s.exchanges(), 3)
		assert.Equal(t, "/v1/settle", s.asked[2].path)
		assert.JSONEq(t, `{"reservation":"b","cost":0}`, s.asked[2].body)
		s.end(2)
	})
}

// A hit alone ends for the same reasons as one that goes with others.
func TestTheEndOfAContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{}
		c := newCaller(t, s)
		why := errors.New("why")
		ctx, leave := context.WithCancelCause(t.Context())
		c.hit(ctx, "a")
		leave(why)
		err, done := c.ended("a")
		require.True(t, done)
		for _, want := range []error{client.ErrUnavailable, context.Canceled, why} {
			require.ErrorIs(t, err, want)
		}
	})
}

// A transport that panics does so for its callers, who can recover, and not for the whole program.
func TestATransportThatPanics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &script{fault: func(*http.Request) (*http.Response, error) { panic("of the transport") }}
		c := newCaller(t, s)
		recovered := make(chan any, 3)
		hit := func(user string) {
			go func() {
				defer func() { recovered <- recover() }()
				_, _ = c.client.Hit(t.Context(), "login", events.Features{"user": user}, 1)
			}()
			synctest.Wait()
		}
		for _, user := range []string{"a", "b", "c"} {
			hit(user)
		}
		s.end(0)
		synctest.Wait()
		s.end(1)
		for range 3 {
			assert.Equal(t, "of the transport", <-recovered)
		}
		s.fault = nil
		c.hit(t.Context(), "d")
		s.end(2)
		c.admitted("d")
		time.Sleep(client.DefaultTimeout) // net/http waits for the ends of those that panicked
	})
}
