// Package play runs the examples: it starts what an example needs on free loopback ports, sends
// requests, prints what happens, and stops all of it in the end. None of it is for use elsewhere.
package play

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/counterd/counterd"
)

// Stage is the run of one example.
type Stage struct {
	ctx    context.Context // ends with the run, or by a signal
	stops  []func()
	folder string // for files of the run; empty: there is none yet
}

// Main runs an example and exits: with status 1 if a Check failed or a signal came.
func Main(run func(*Stage)) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	signal.Ignore(syscall.SIGPIPE) // of a pager that ends first: what was started still has to stop
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s, status, ended := &Stage{ctx: ctx}, 1, make(chan struct{})
	go func() {
		defer close(ended) // also if Check ends the goroutine
		run(s)
		status = 0
	}()
	<-ended
	cancel()
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	os.Exit(status)
}

// Context ends with the run.
func (s *Stage) Context() context.Context { return s.ctx }

// Stop has stop called in the end, before what was started earlier stops.
func (s *Stage) Stop(stop func()) { s.stops = append(s.stops, stop) }

// Check ends the run if there is an error.
func (s *Stage) Check(err error) {
	if err == nil {
		return
	}
	if s.ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
	}
	runtime.Goexit()
}

// How long a decision waits for the store: far longer than by default, so that a busy machine prints what the pages
// show.
const (
	timeout = 20 * time.Second
	grace   = 40 * time.Second
)

// Limiter returns a limiter by the text of a rules file, which counts in this process.
func (s *Stage) Limiter(text string, options ...counterd.Option) *counterd.Limiter {
	rules, err := counterd.ParseRules([]byte(text))
	s.Check(err)
	limiter, err := counterd.New(rules, append(options, counterd.WithTimeout(timeout), counterd.WithGrace(grace))...)
	s.Check(err)
	s.Stop(func() { limiter.Close() })
	return limiter
}

// Serve serves on a free loopback port and returns the URL.
func (s *Stage) Serve(handler http.Handler) string {
	server := httptest.NewServer(handler)
	s.Stop(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// Get requests a page with a bearer token, prints the answer, and returns it. Its body, if denied, is one document: no
// handler has served the request, too.
func (s *Stage) Get(url, token string, header ...string) *http.Response {
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, nil)
	s.Check(err)
	request.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	s.Check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.Check(err)
	if response.StatusCode == http.StatusTooManyRequests && !json.Valid(body) {
		s.Check(fmt.Errorf("the answer to a denied request is no problem document: %s", body))
	}
	fmt.Printf("%s GET %s: %s\n", token, request.URL.Path, Answer(response))
	return response
}

// Answer returns the status of a response, and the headers that say how its limits are used.
func Answer(response *http.Response) string {
	text := response.Status
	for _, name := range []string{"RateLimit", "Retry-After"} {
		if value := response.Header.Get(name); value != "" {
			text += ", " + name + ": " + strings.ReplaceAll(value, `"`, "")
		}
	}
	return text
}
