package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/loadtest/bench"
)

// The programs: counterd is built once, and the test binary is loadtest where asLoadtest is set.
var builtCounterd, builtLoadtest string

// asLoadtest makes the test binary be loadtest.
const asLoadtest = "COUNTERD_TEST_AS_LOADTEST"

func TestMain(m *testing.M) {
	if os.Getenv(asLoadtest) != "" {
		main()
	}
	builttest.Main(m, func(path string) {
		builtCounterd, builtLoadtest = path, filepath.Join(filepath.Dir(path), "loadtest")
		if err := copySelf(builtLoadtest); err != nil {
			panic(err)
		}
	})
}

// copySelf copies the test binary.
func copySelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(path, program, 0o700)
}

const log = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
www.example.com - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
192.0.2.2 - - [17/May/2015:11:05:03 +0200] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [15/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [17/May/2015:10:05:33 +0000] "GET / HTTP/1.1" 200 1
`

type outcome struct {
	status   int
	out, err string
}

func runWith(t *testing.T, in io.Reader, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	status := run(t.Context(), args, streams{in, &out, &err})
	return outcome{status, out.String(), err.String()}
}

// serve returns the URL of a server that has the event url_shorten.
func serve(t *testing.T, fake *fakeserver.Server) string {
	t.Helper()
	fake.Event.Name = "url_shorten"
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return server.URL
}

// A server that wants a token gets it with each request.
func TestReplayWithAToken(t *testing.T) {
	t.Parallel()
	fake := &fakeserver.Server{}
	fake.Event.Name = "url_shorten"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame-sesame-sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("sesame-sesame-sesame\n"), 0o600))
	got := runWith(t, strings.NewReader(log), "replay", "-increment", "-url", server.URL, "-windows", "90s,3h", "-token-file", token, "-")
	assert.Equal(t, exitOK, got.status, got.err)
	got = runWith(t, strings.NewReader(log), "replay", "-increment", "-url", server.URL, "-windows", "90s,3h", "-")
	assert.Equal(t, exitFailed, got.status, got.err)
	assert.Contains(t, got.err, "401 Unauthorized; -token-file holds a token that the target knows\n")
}

// Without a flag that says so, nothing is written into a server: a log is analyzed.
func TestReplayWritesNothingByDefault(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	for _, args := range []string{"-url " + server.URL, "-url " + server.URL + " -reset", "-url " + server.URL + " -c 1"} {
		got := runWith(t, strings.NewReader(log), append([]string{"replay"}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, got.status, got.err)
		assert.Contains(t, got.err, "-url is for -increment", args)
		assert.Zero(t, requests.Load(), args)
	}
	got := runWith(t, strings.NewReader(log), "replay")
	assert.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, runWith(t, strings.NewReader(log), "replay", "-suggest").out, got.out)
	assert.Contains(t, got.out, "\nevents:\n  url_shorten:\n", "limits are suggested")
}

func TestReplay(t *testing.T) {
	t.Parallel()
	got := runWith(t, strings.NewReader(log), "replay", "-increment", "-url", serve(t, &fakeserver.Server{}), "-windows", "90s,3h", "-")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, "loadtest: 1 malformed lines: 2; 1: feature of kind \"ip\": the value is not an IP address\n", got.err)
	assert.Equal(t, `lines        5
malformed    1
skipped      1  older than the 24h that the server remembers, or about to be
events       3
counters     2
windows      90s 3h
comparisons  16
differences  0
`, got.out)
}

func TestReplayDifferences(t *testing.T) {
	t.Parallel()
	lost := &fakeserver.Server{Times: func(n int) int { return min(1, n-1) }}
	got := runWith(t, strings.NewReader(log), "replay", "-increment", "-url", serve(t, lost), "-c", "1")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "ip:192.0.2.2  window 24h as of ")
	assert.Contains(t, got.out, "expected 1, got 0: the count is wrong\n")
}

func TestReplayFailures(t *testing.T) {
	t.Parallel()
	failing := &fakeserver.Server{Status: func(n int) int { return http.StatusServiceUnavailable * (1 - min(1, n-1)) }}
	got := runWith(t, strings.NewReader(log), "replay", "-increment", "-url", serve(t, failing))
	assert.Equal(t, exitFailed, got.status)
	assert.Empty(t, got.out)
	assert.Contains(t, got.err, "may have been; use -reset the next time")
	assert.Contains(t, got.err, "incrementing: counterd: 503 Service Unavailable")

	dirty := serve(t, &fakeserver.Server{})
	require.Equal(t, exitOK, runWith(t, strings.NewReader(log), "replay", "-increment", "-url", dirty).status)
	got = runWith(t, strings.NewReader(log), "replay", "-increment", "-url", dirty)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-reset")
	assert.Equal(t, exitOK, runWith(t, strings.NewReader(log), "replay", "-increment", "-reset", "-url", dirty).status)

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	got = runWith(t, strings.NewReader(log), "replay", "-increment", "-url", gone.URL)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-url says where the server is\n")

	got = runWith(t, strings.NewReader(log), "replay", "-increment", "-event", "other", "-url", dirty)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-event names one that the server has\n")

	got = runWith(t, nil, "replay", filepath.Join(t.TempDir(), "nothing.log"))
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing.log")

	got = runWith(t, iotest.ErrReader(errors.New("broken")), "replay", "-increment", "-url", dirty)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "broken")

	got = runWith(t, strings.NewReader(strings.Repeat("foo\n", 12)), "replay", "-increment", "-url", dirty)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "12 malformed lines: 1 2 3 4 5 6 7 8 9 10 and 2 more\n")
	assert.Contains(t, got.err, "no line is in the format: wanted is the common or combined log format, or JSON lines")
}

func TestBenchUsage(t *testing.T) {
	lonelyBase := filepath.Join(t.TempDir(), "loadtest") // without a counterd beside it
	require.NoError(t, os.WriteFile(lonelyBase, nil, 0o700))
	for name, args := range map[string][]string{
		"no rounds":    {"bench", "-rounds", "0"},
		"an argument":  {"bench", "A3"},
		"no row":       {"bench", "-rows", "^nothing like it"},
		"no regexp":    {"bench", "-rows", "("},
		"no memcached": {"bench", "-rows", "^A3 "},
		"no counterd":  {"bench", "-rows", "^B2 ", "-counterd", "no-such-program"},
		"no base":      {"bench", "-rows", "^A3 ", "-base", "no-such-program"},
		"base alone":   {"bench", "-rows", "^B2 ", "-counterd", builtCounterd, "-base", lonelyBase},
		"one round":    {"bench", "-rows", "^A3 ", "-base", lonelyBase, "-rounds", "1"},
		"no address":   {doNothing},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no memcached" {
				t.Setenv("PATH", t.TempDir())
			}
			got := runWith(t, nil, args...)
			assert.Equal(t, exitUsage, got.status)
			assert.Empty(t, got.out)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		})
	}
	got := runWith(t, nil, "bench", "-h")
	assert.Equal(t, exitOK, got.status)
	for _, text := range []string{"in about ", "-rounds", "-counterd", "A3 ", "C1 "} {
		assert.Contains(t, got.out, text)
	}
}

func TestBench(t *testing.T) {
	got := runWith(t, nil, "bench", "-rounds", "1", "-duration", "5ms", "-rows", "^A1 ")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, "| A1  | gomemcache: 3 increments")

	got = runWith(t, nil, "bench", "-rounds", "1", "-duration", "5ms", "-rows", "^A1 ", "-json")
	require.Equal(t, exitOK, got.status, got.err)
	var report bench.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report, json.RejectUnknownMembers(true)))
	assert.Equal(t, "A1", report.Rows[0].ID)
}

// A build that is slower than its base fails. The base is a program that reports a rate that no build reaches.
func TestBenchWithABase(t *testing.T) {
	base := filepath.Join(t.TempDir(), "loadtest")
	script := "#!/bin/sh\n[ $2 = -h ] && exec " + builtLoadtest + " bench -h\n" + `echo '{"rows": [{"id": "A1", "per_second": {"median": 1e99}}]}'`
	require.NoError(t, os.WriteFile(base, []byte(script), 0o700))
	p := startProgram(t, "bench", "-base", base, "-rounds", "2", "-duration", "5ms", "-rows", "^A1 ")
	assert.Equal(t, exitFailed, p.status(t))
	assert.Contains(t, p.rest(), "this takes about ")
	assert.Regexp(t, `\| A1 .*slower`, p.out.String())
}

// What needs counterd beside this program says how to get there, as after go run.
func TestNoCounterdBesideThisProgram(t *testing.T) {
	for _, command := range []string{"verify", "bench"} {
		got := runWith(t, nil, command)
		assert.Equal(t, exitUsage, got.status, command)
		assert.Contains(t, got.err, "make build", command)
		assert.Contains(t, got.err, "-counterd", command)
		assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
	}
}
