package run_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/traffic"
)

const (
	admitted = `{"allowed":true,"event":"e","at":"2026-03-14T12:30:33Z","retry_after":0,"limits":[` +
		`{"name":"a","feature":"ip:10.0.0.1","limit":5,"window":"1m","count":1,"remaining":4,"reset":0,"allowed":true}]}`
	denied = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"t","status":429,` +
		`"allowed":false,"event":"e","at":"2026-03-14T12:30:33Z","retry_after":1,"limits":[` +
		`{"name":"a","feature":"ip:10.0.0.1","limit":5,"window":"1m","count":5,"remaining":0,"reset":1,"allowed":false},` +
		`{"name":"b","feature":"ip:10.0.0.1","limit":5,"window":"1m","count":5,"remaining":0,"reset":1,"allowed":false,"shadow":true},` +
		`{"name":"c","feature":"ip:10.0.0.1","limit":5,"window":"1m","count":0,"remaining":0,"reset":1,"allowed":true,"on_error":"allow"}]}`
	problem = `{"type":"about:blank","title":"t","status":503}`
)

// canned answers hits by their number, and keeps count.
type canned struct {
	hits, others atomic.Int64
	hit          func(w http.ResponseWriter, n int64)
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/hit") {
		c.others.Add(1)
		fmt.Fprint(w, admitted)
		return
	}
	c.hit(w, c.hits.Add(1)-1)
}

func say(w http.ResponseWriter, status int, body string) {
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func overHTTP(t *testing.T, config run.HTTPConfig) *run.HTTP {
	t.Helper()
	config.Timeout = cmp.Or(config.Timeout, time.Minute) // a busy machine is no timeout of the target
	target, err := run.NewHTTP(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	return target
}

// Each server gets its part, and what is counted is what they gave.
func TestHTTP(t *testing.T) {
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { say(w, 200, admitted) },
		func(w http.ResponseWriter) { say(w, 200, admitted) },
		func(w http.ResponseWriter) { say(w, 429, denied) },
		func(w http.ResponseWriter) { say(w, 503, problem) },
		func(w http.ResponseWriter) { say(w, 429, "a proxy's own") },
		func(w http.ResponseWriter) { say(w, 200, "no JSON") },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) { say(w, 500, "") },
	}
	var servers [3]canned
	var urls []string
	for i := range servers {
		servers[i].hit = func(w http.ResponseWriter, n int64) { answers[n%int64(len(answers))](w) }
		urls = append(urls, serve(t, &servers[i]))
	}
	target := overHTTP(t, run.HTTPConfig{URLs: urls})
	report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, nil), Profile: arrival.Constant(480), Duration: time.Second})
	require.NoError(t, err)
	for i := range servers {
		assert.EqualValues(t, 160, servers[i].hits.Load())
		assert.EqualValues(t, 3, servers[i].others.Load(), "one check ahead, which adds nothing, and /metrics, which it does not have, before and after")
	}
	assert.ElementsMatch(t, []run.Status{
		{Name: "200", Requests: 120}, {Name: "429", Requests: 120}, {Name: "503", Requests: 60}, {Name: "unexpected answer", Requests: 60},
		{Name: "connection lost", Requests: 60}, {Name: "500", Requests: 60},
	}, report.Statuses)
	assert.EqualValues(t, 300, report.Failed)
	assert.Equal(t, run.Hits{Admitted: 120, Denied: 60, Unavailable: 60, OnError: 60}, report.Hits)
	assert.Equal(t, []run.Limit{{Name: "a", Admitted: 120, Denied: 60}, {Name: "b", ShadowDenied: 60}}, report.Limits)
}

func TestEveryKindOverHTTP(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int64{}
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Method+" "+r.URL.Path]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/increment"):
			fmt.Fprint(w, `{"event":"e","at":"2026-03-14T12:30:33Z","by":1,"counters":[]}`)
		case strings.HasSuffix(r.URL.Path, "/count"):
			assert.Equal(t, "1m", r.URL.Query().Get("window"))
			fmt.Fprint(w, `{"event":"e","feature":"f","window":"1m","from":1,"to":2,"count":3,"buckets":{"second":1,"minute":0,"hour":0,"total":1}}`)
		case strings.HasSuffix(r.URL.Path, "/batch"):
			one := `{"status":200,` + admitted[1:]
			fault := `{"status":404,"type":"about:blank","title":"t"}`
			unavailable := `{"status":503,` + strings.Replace(admitted[1:], "true", "false", 1)
			fmt.Fprintf(w, `{"results":[%s]}`, strings.Join([]string{one, one, one, one, one, one, one, one, fault, unavailable}, ","))
		default:
			fmt.Fprint(w, admitted)
		}
	})
	target := overHTTP(t, run.HTTPConfig{URLs: []string{serve(t, server)}})
	mix := traffic.Mix{traffic.Hit: 1, traffic.Check: 1, traffic.Increment: 1, traffic.Count: 1, traffic.Batch: 1}
	report, err := run.Run(t.Context(), run.Config{Target: target, Source: source(t, mix), Profile: arrival.Constant(500), Duration: time.Second})
	require.NoError(t, err)
	require.Len(t, report.Kinds, 5)
	assert.Zero(t, report.Failed, report.Statuses)
	batches := report.Kinds["batch"].Requests
	for name, path := range map[string]string{
		"hit": "POST /v1/events/e/hit", "increment": "POST /v1/events/e/increment", "batch": "POST /v1/batch",
	} {
		assert.Equal(t, seen[path], report.Kinds[traffic.Kind(name)].Requests, name)
	}
	// One of the two was made ahead.
	assert.Equal(t, seen["GET /v1/events/e/check"]+seen["GET /v1/events/e/count"], 1+report.Kinds["check"].Requests+report.Kinds["count"].Requests)
	assert.Equal(t, run.Hits{Admitted: report.Kinds["hit"].Requests + 8*batches, Faults: batches, Unavailable: batches}, report.Hits)
}

// What the target tells of its stores is summed up over servers and series, where it is
// told, and the token goes there, too.
func TestTripsOfTheTarget(t *testing.T) {
	const all = `# TYPE counterd_store_round_trips_total counter
counterd_store_round_trips_total{kind="exchange",outcome="ok",server="a"} %[1]d
counterd_store_round_trips_total{kind="roll_back",outcome="ok",server="a"} %[2]d
counterd_store_round_trips_total{kind="exchange",outcome="timeout",server="b"} 3
counterd_store_round_trips_total{kind="exchange",outcome="down",server="b"} %[1]d
# TYPE counterd_store_reads_total counter
counterd_store_reads_total{server="a"} %[3]d
counterd_store_reads_total{server="b"} 5
# TYPE process_start_time_seconds gauge
process_start_time_seconds %[4]g
`
	began := 1.7e9
	var token atomic.Value
	metrics := func(server *canned) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				server.ServeHTTP(w, r)
				return
			}
			token.Store(r.Header.Get("Authorization"))
			n := server.hits.Load()
			fmt.Fprintf(w, all, 10+2*n, 7+n, 1000+4*n, began)
		})
	}
	good := &canned{hit: func(w http.ResponseWriter, _ int64) { say(w, 200, admitted) }}
	other := &canned{hit: good.hit}
	urls := []string{serve(t, metrics(good)), serve(t, metrics(other))}
	measure := func(config run.HTTPConfig) *run.Report {
		report, err := run.Run(t.Context(), run.Config{Target: overHTTP(t, config), Source: source(t, nil), Profile: arrival.Constant(200), Duration: 100 * ms})
		require.NoError(t, err)
		return report
	}
	want := &run.Store{Trips: 60, Reads: 80, Calls: 20, Per: "hit", Trip: 3, Read: 4}
	token.Store("")
	report := measure(run.HTTPConfig{URLs: urls, Token: func() (string, error) { return "sesame", nil }})
	assert.Equal(t, want, report.Store)
	assert.Equal(t, "Bearer sesame", token.Load())
	// One server that is named twice is asked once.
	report = measure(run.HTTPConfig{URLs: []string{urls[0], urls[0]}})
	assert.Equal(t, want, report.Store)
	assert.Contains(t, text(t, report), "store      3.00 trips and 4.00 reads a hit (60 and 80 in all)\n")

	// A server that began anew behind its fifth hit, whatever it has counted since.
	begun := began
	restarting := &canned{}
	restarting.hit = func(w http.ResponseWriter, n int64) {
		if n == 5 {
			began += 60
		}
		good.hit(w, n)
	}
	report = measure(run.HTTPConfig{URLs: []string{urls[1], serve(t, metrics(restarting))}})
	assert.Nil(t, report.Store)
	assert.Contains(t, report.StoreNote, "restarted")
	began = begun

	plain := &canned{hit: good.hit}
	report = measure(run.HTTPConfig{URLs: []string{serve(t, plain)}, Admin: urls[:1]})
	assert.Equal(t, &run.Store{Calls: 20, Per: "hit"}, report.Store, "nothing was done by that one")

	hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.NotFound(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
	report = measure(run.HTTPConfig{URLs: []string{serve(t, hidden)}})
	assert.Contains(t, report.StoreNote, "404 Not Found; -admin names its address")
	for want, server := range map[string]http.HandlerFunc{
		"answered with 404":           http.NotFound,
		"Forbidden; it needs a token": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"it is no text that Prom":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no trips: its store has no ": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "counterd_build_info 1") },
	} {
		report = measure(run.HTTPConfig{URLs: urls[:1], Admin: []string{serve(t, server)}})
		assert.Nil(t, report.Store)
		assert.Contains(t, report.StoreNote, want)
	}
}

// The usage of the target's processes is what /metrics says, between the beginning and the end.
func TestTheTargetsProcess(t *testing.T) {
	server := &canned{hit: func(w http.ResponseWriter, _ int64) { say(w, 200, admitted) }}
	with := func(cpu string) string {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				server.ServeHTTP(w, r)
				return
			}
			fmt.Fprintf(w, "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "+cpu+"\n", 100+float64(server.hits.Load())/100)
			fmt.Fprint(w, "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 1.048576e+07\n"+
				"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e9\n")
		}))
	}
	measure := func(urls ...string) *run.Report {
		report, err := run.Run(t.Context(), run.Config{
			Target: overHTTP(t, run.HTTPConfig{URLs: urls}), Source: source(t, nil), Profile: arrival.Constant(50), Duration: time.Second,
		})
		require.NoError(t, err)
		return report
	}
	report := measure(with("%g"))
	p := report.Process
	require.NotNil(t, p)
	assert.Equal(t, run.Usage{Processes: 1, CPUSeconds: p.CPUSeconds, Cores: p.Cores, Microseconds: p.Microseconds, Memory: 10 << 20}, *p)
	assert.InDelta(t, 0.5, p.CPUSeconds, 1e-6)
	assert.InDelta(t, 1e4, p.Microseconds, 1e-3)
	assert.LessOrEqual(t, p.Cores, 0.52)
	assert.Positive(t, p.Cores)
	assert.Regexp(t, `\nprocess    0.50 s of CPU time, \d+% of a core, 10,000 µs a call; 10.0 MiB of memory\n`, text(t, report))
	assert.Contains(t, text(t, measure(with("%g"), with("%g"))), "\nprocess    2 together: 1.00 s of CPU time")
	assert.Nil(t, measure(with("none")).Process)
}

// unprobed is a target whose timeout is too short to ask ahead on a busy machine.
type unprobed struct{ run.Target }

func (unprobed) Probe(context.Context, traffic.Call) error { return nil }

func TestTimeouts(t *testing.T) {
	over := make(chan struct{})
	server := &canned{hit: func(http.ResponseWriter, int64) { <-over }}
	url := serve(t, server)
	defer close(over)
	report, err := run.Run(t.Context(), run.Config{
		Target: unprobed{overHTTP(t, run.HTTPConfig{URLs: []string{url}, Timeout: 50 * ms})}, Source: source(t, nil), Profile: arrival.Constant(100), Duration: 100 * ms,
	})
	require.NoError(t, err)
	assert.Equal(t, []run.Status{{Name: "timeout", Requests: 10}}, report.Statuses)
	assert.EqualValues(t, 10, report.Failed)
	assert.GreaterOrEqual(t, report.Latency.P50, 50.)
}
