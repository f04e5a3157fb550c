package main

import (
	"bytes"
	"context"
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

func TestRunUsage(t *testing.T) {
	for flag, args := range map[string][]string{
		"-rate excludes -profile":                          {"-rate", "1", "-profile", "2"},
		"-url excludes -embedded":                          {"-embedded", "memory", "-url", "http://localhost"},
		"-token-file excludes -embedded":                   {"-embedded", "memory", "-token-file", "x"},
		"-profile excludes -find-max":                      {"-find-max", "-p99", "1s", "-profile", "2"},
		"-duration excludes -find-max":                     {"-find-max", "-p99", "1s", "-duration", "2s"},
		"-max-failures excludes -find-max":                 {"-find-max", "-p99", "1s", "-max-failures", "1%"},
		"-max-p99 excludes -find-max":                      {"-find-max", "-p99", "1s", "-max-p99", "1s"},
		"-max-failures: it is":                             {"-max-failures", "100%"},
		"-max-p99 is above":                                {"-max-p99", "-1s"},
		"-p99 is above 0":                                  {"-find-max"},
		"-p99 goes with -find-max":                         {"-p99", "1s"},
		"-trial goes with":                                 {"-trial", "1s"},
		"-trial is at least":                               {"-find-max", "-p99", "1s", "-trial", "1ms"},
		"-rate is 1 to":                                    {"-find-max", "-p99", "1s", "-rate", "0.5"},
		"-rules goes with -embedded":                       {"-rules", "x"},
		"\"No\" cannot be an event":                        {"-event", "No"},
		"-kind: ":                                          {"-kind", "No"},
		"-kind has one twice":                              {"-kind", "ip,ip"},
		"-population is":                                   {"-population", "0"},
		"-zipf is above 1, not 0.5":                        {"-zipf", "0.5"},
		"-mix: ":                                           {"-mix", "hits=1"},
		"-costs: ":                                         {"-costs", "0"},
		"-batch is 1 to 1000 hits":                         {"-batch", "1001"},
		"-window is 1s to":                                 {"-window", "1ms"},
		"-rate: no profile":                                {"-rate", "0"},
		"-profile: no profile":                             {"-profile", "ramp:1"},
		"-duration is at least":                            {"-duration", "1ms"},
		"-duration is over before":                         {"-profile", "burst:0+1/1h", "-duration", "1s"},
		"-warm-up is":                                      {"-warm-up", "-1s"},
		"-timeout is":                                      {"-timeout", "0s"},
		"-max-in-flight is 1 to":                           {"-max-in-flight", "-1"},
		"-url or -admin: ":                                 {"-url", "localhost:8080"},
		"no argument is taken":                             {"more"},
		"flag provided but not defined: -":                 {"-nope"},
		"not defined: -profil; did you mean \"-profile\"?": {"-profil", "3"},
	} {
		t.Run(flag, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"run"}, args...)...)
			assert.Equal(t, exitUsage, got.status)
			assert.Empty(t, got.out)
			assert.Contains(t, got.err, flag)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		})
	}
	got := runWith(t, nil, "run", "-h")
	assert.Equal(t, exitOK, got.status)
	for _, text := range []string{"open model", "-find-max", "to within 5%.", "burst:100+2000/10s", "Examples:"} {
		assert.Contains(t, got.out, text)
	}
}

// hits is a server that admits all, and counts.
type hits struct {
	atomic.Int64
	do func(n int64)
}

func (h *hits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/hit"):
		n := h.Add(1)
		if h.do != nil {
			h.do(n)
		}
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

// An interrupted run reports its measurements so far.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	target := &hits{do: func(n int64) {
		if n == 20 {
			cancel()
		}
	}}
	server := httptest.NewServer(target)
	defer server.Close()
	var out, err bytes.Buffer
	status := run(ctx, []string{"run", "-url", server.URL, "-rate", "100", "-duration", "1h"}, streams{nil, &out, &err})
	assert.Equal(t, exitInterrupted, status, err.String())
	assert.Contains(t, err.String(), "loadtest: interrupted\n")
	assert.Contains(t, out.String(), "; interrupted\n")
	assert.Regexp(t, `requests +\d+ came due, \d+ answered`, out.String())
}
