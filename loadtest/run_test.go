package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	load "github.com/counterd/counterd/loadtest/run"
)

// hits is a server that admits all, and counts.
type hits struct{ atomic.Int64 }

func (h *hits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/hit"):
		h.Add(1)
	case r.URL.Path == "/v1/events/url_shorten":
		_, _ = w.Write([]byte(`{"name":"url_shorten","retention":"24h","rules":[]}`))
		return
	case r.URL.Path == "/metrics":
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(`{"allowed":true,"event":"url_shorten","at":"2026-03-14T12:30:33Z","retry_after":0,"limits":[]}`))
}

func TestRun(t *testing.T) {
	var target hits
	server := httptest.NewServer(&target)
	defer server.Close()
	got := runWith(t, nil, "run", "-url", server.URL, "-rate", "200", "-duration", "500ms", "-seed", "7")
	require.Equal(t, exitOK, got.status, got.err)
	assert.EqualValues(t, 100, target.Load())
	assert.Equal(t, "loadtest: this takes 500ms; -seed 7\n", got.err)
	for _, text := range []string{
		"target     " + server.URL + "\n", "traffic    url_shorten: hit; 10000 ip; seed 7\n", "200/s asked for 0.5s", "100 came due, 100 answered\n",
		"answers    100 × 200\n", "hits       100 admitted, 0 denied\n", "none waited for one of 10,000 places", "latency, ms", "not known: /metrics of",
	} {
		assert.Contains(t, got.out, text)
	}

	got = runWith(t, nil, "run", "-url", server.URL, "-profile", "step:100x100ms,0x100ms,300x100ms", "-mix", "hit=1,batch=0", "-warm-up", "50ms", "-json")
	require.Equal(t, exitOK, got.status, got.err)
	var report load.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report, json.RejectUnknownMembers(true)))
	assert.EqualValues(t, 40, report.Arrived, "as long as the steps are")
	assert.EqualValues(t, 100+5+40, target.Load())
}

func TestRunFindMax(t *testing.T) {
	got := runWith(t, nil, "run", "-embedded", "memory", "-find-max", "-p99", "1ns", "-trial", "10ms", "-rate", "1")
	assert.Equal(t, exitFailed, got.status, "no rate is borne")
	assert.Contains(t, got.out, "Not even 1/s are borne.")
}

func TestRunEmbedded(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {e: {limits: [{per: [ip, user], rate: 2/h}]}}"), 0o600))
	got := runWith(t, nil, "run", "-embedded", "memory", "-rules", rules, "-event", "e", "-kind", "ip,user", "-population", "1",
		"-rate", "200", "-duration", "500ms", "-mix", "batch,count", "-batch", "3", "-costs", "1", "-zipf", "1.5")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, "ip+user-2-per-1h")
	assert.Contains(t, got.out, "\nhits       2 admitted, ")

	for want, args := range map[string][]string{
		"-rules: ":         {"-rules", filepath.Join(t.TempDir(), "none")},
		"-event names one": {"-event", "other"},
		"cannot be loaded": {"-kind", "user"},
	} {
		got := runWith(t, nil, append([]string{"run", "-embedded", "memory", "-duration", "50ms"}, args...)...)
		assert.Equal(t, exitFailed, got.status)
		assert.Contains(t, got.err, want)
		assert.Empty(t, got.out)
	}
}

// A target that cannot be reached is said in one line, before any load.
func TestRunCannotReach(t *testing.T) {
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"type":"about:blank"}`))
	}))
	got := runWith(t, nil, "run", "-url", gone.URL)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-event names one that the server has\n")
	gone.Close()
	got = runWith(t, nil, "run", "-url", gone.URL)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-url says where the server is\n")
	assert.Equal(t, 1, strings.Count(got.err, "\n"))
	assert.Empty(t, got.out)

	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hit") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		new(hits).ServeHTTP(w, r)
	}))
	defer failing.Close()
	got = runWith(t, nil, "run", "-url", failing.URL, "-duration", "50ms")
	assert.Equal(t, exitFailed, got.status, "nothing was answered well")
	assert.Contains(t, got.out, "× 500")
	assert.Contains(t, got.err, "loadtest: no request succeeded\n")
}

// A pipeline says what has to be kept.
func TestRunBounds(t *testing.T) {
	sometimes := httptest.NewServer(failingNow(new(hits), 10))
	defer sometimes.Close()
	with := func(flags ...string) outcome {
		return runWith(t, nil, append([]string{"run", "-url", sometimes.URL, "-rate", "1000", "-duration", "100ms"}, flags...)...)
	}
	got := with()
	assert.Equal(t, exitOK, got.status, "it measures, and does not judge: %s", got.err)
	assert.Contains(t, got.out, "10 × 500")
	assert.Equal(t, exitOK, with("-max-failures", "10%").status)
	got = with("-max-failures", "9.9", "-max-p99", "1ns")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "loadtest: 10 of 100 requests failed, 10%, and 9.9% may\n")
	assert.Regexp(t, `loadtest: the p99 is [\d.,]+ ms, and may be 0.00 ms\n`, got.err)
	got = with("-max-failures", "0")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "and 0% may\n")
}

// failingNow answers each so many-th hit with a 500.
func failingNow(h http.Handler, each int64) http.Handler {
	var seen atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hit") && seen.Add(1)%each == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}
