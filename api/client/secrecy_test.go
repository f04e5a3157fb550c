package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/markedtest"
)

// Services log errors: no error holds the features of the hit, whatever the server answers.
func TestErrorsNameNobody(t *testing.T) {
	var marks markedtest.Marks
	address, word, email := marks.Address(), marks.Word(), marks.Email()
	said := func(w http.ResponseWriter, r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		return r.URL.String() + string(body)
	}
	faults := 0
	for name, answer := range map[string]http.HandlerFunc{
		"says it all": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.TypeJSON)
			io.WriteString(w, said(w, r))
		},
		"in a string": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.TypeJSON)
			fmt.Fprintf(w, `{"count": %[1]q, "by": %[1]q, "allowed": %[1]q}`, word)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/"+word, http.StatusFound) },
		"an error":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, said(w, r), http.StatusBadGateway) },
		"a denial": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.TypeProblem)
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, said(w, r))
		},
		"no HTTP": func(w http.ResponseWriter, r *http.Request) {
			text := "HTTP/1.1 " + said(w, r) + "\r\n\r\n"
			if conn, _, err := http.NewResponseController(w).Hijack(); assert.NoError(t, err) {
				_, _ = io.WriteString(conn, text)
				conn.Close()
			}
		},
		"a place that is none": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://login.test:x"+r.URL.String())
			w.WriteHeader(http.StatusFound)
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := httptest.NewServer(answer)
		c, err := client.New(client.Config{URL: server.URL})
		require.NoError(t, err)
		features := events.Features{"ip": address, "user": email}
		of := map[string]func() error{
			"hit":       func() error { _, err := c.Hit(t.Context(), "e", features, 1); return err },
			"check":     func() error { _, err := c.Check(t.Context(), "e", features, 1); return err },
			"increment": func() error { _, err := c.Increment(t.Context(), "e", features, 1, time.Time{}); return err },
			"count":     func() error { _, err := c.Count(t.Context(), "e", features, time.Hour, time.Time{}); return err },
			"reset":     func() error { return c.Reset(t.Context(), "e", features) },
			"event":     func() error { return c.Reset(t.Context(), word, events.Features{email: address}) },
		}
		for call, do := range of {
			if err := do(); err != nil {
				faults++
				marks.Absent(t, name+" to "+call, fmt.Sprintf("%v %+v", err, err))
			}
		}
		c.Close()
		server.Close()
	}
	assert.Greater(t, faults, 20)
}
