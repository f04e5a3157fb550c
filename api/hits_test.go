package api_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/memcache"
)

// limits is an api handler on rules of its own, whose clock a test moves and whose
// store it breaks.
type limits struct {
	http.Handler
	log    bytes.Buffer
	rules  atomic.Pointer[events.Rules]
	loads  atomic.Int64 // how often the rules in force were asked for
	late   time.Duration
	store  *memcache.Embedded
	broken atomic.Bool
	adds   atomic.Int64 // trips to the store that added
}

// newLimits returns a handler on those rules, in YAML.
func newLimits(t *testing.T, rules string) *limits {
	t.Helper()
	l := &limits{}
	clock := func() time.Time { return now.Add(l.late) }
	l.reload(t, rules)
	l.store = memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	decider, err := limiter.New(limiter.Config{
		Local: []limiter.Engine{hierarchy.NewCounters(hierarchy.Config{CacheBytes: -1, Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Clock: clock})}}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: breakable{l.store, &l.broken, &l.adds}, Clock: clock}))
	require.NoError(t, err)
	l.Handler = newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules: func() *events.Rules {
				l.loads.Add(1)
				return l.rules.Load()
			},
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: l.store, Clock: clock})),
			Limiter:  decider,
		}),
		Log: slog.New(slog.NewTextHandler(&l.log, nil)),
	})
	return l
}

func (l *limits) reload(t *testing.T, rules string) {
	t.Helper()
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(t, err)
	l.rules.Store(parsed)
}

// breakable is a store that a test breaks.
type breakable struct {
	store.Store
	broken *atomic.Bool
	adds   *atomic.Int64
}

func (b breakable) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) {
			if b.broken.Load() {
				op.Err = context.DeadlineExceeded
				return
			}
			if len(op.Writes) > 0 {
				b.adds.Add(1)
			}
		}
		b.Store.Do(ctx, op)
	})
}

const who = `{"features": {"ip": "203.0.113.9"}}`

// hit makes a hit of e, by the features of one address.
func (l *limits) hit(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	return request(t, l, "POST", "/v1/events/e/hit", who)
}

// denied returns the problem document of a denial.
func denied(t *testing.T, w *httptest.ResponseRecorder) (d wire.Denial) {
	t.Helper()
	require.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
	require.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d, json.RejectUnknownMembers(true)))
	require.Equal(t, http.StatusTooManyRequests, d.Status)
	require.Equal(t, wire.TypeQuotaExceeded, d.Type)
	require.Equal(t, "Request cannot be satisfied as assigned quota has been exceeded", d.Title)
	require.NotEmpty(t, d.ViolatedPolicies)
	require.False(t, d.Allowed)
	return d
}

func TestAHit(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: [2/m, 100/d]}]}}")
	w := l.hit(t)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, wire.TypeJSON, w.Header().Get("Content-Type"))
	assert.Equal(t, `{"allowed":true,"event":"e","at":"2026-03-14T23:30:33Z","retry_after":0,"limits":[`+
		`{"name":"ip-2-per-1m","feature":"ip:203.0.113.9","limit":2,"window":"1m","count":1,"remaining":1,"reset":0,"allowed":true},`+
		`{"name":"ip-100-per-24h","feature":"ip:203.0.113.9","limit":100,"window":"24h","count":1,"remaining":99,"reset":0,"allowed":true}]}`+"\n",
		w.Body.String())

	l.late = 13 * time.Second
	require.Equal(t, http.StatusOK, l.hit(t).Code)
	l.late = 20 * time.Second
	w = l.hit(t)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
	assert.Equal(t, "40", w.Header().Get("Retry-After"))
	assert.Equal(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,`+
		`"detail":"Denied by ip-2-per-1m: it fits in 40 seconds, if nothing else comes.","violated-policies":["ip-2-per-1m"],`+
		`"allowed":false,"event":"e","at":"2026-03-14T23:30:53Z","retry_after":40,"limits":[`+
		`{"name":"ip-2-per-1m","feature":"ip:203.0.113.9","limit":2,"window":"1m","count":2,"remaining":0,"reset":40,"allowed":false},`+
		`{"name":"ip-100-per-24h","feature":"ip:203.0.113.9","limit":100,"window":"24h","count":2,"remaining":98,"reset":0,"allowed":true}]}`+"\n",
		w.Body.String())

	l.late = 59 * time.Second
	assert.Equal(t, "1", l.hit(t).Header().Get("Retry-After"))
	l.late = 60 * time.Second
	assert.Equal(t, http.StatusOK, l.hit(t).Code, "at the second that was promised")
	assert.Empty(t, l.log.String())
}

func TestACheckIsTheDecisionOfAHit(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: [2/m, 10/d]}]}}")
	const target = "/v1/events/e/check?feature=ip:203.0.113.9"
	for i := range 4 {
		check := answer[wire.Decision](t, request(t, l, "GET", target, ""))
		again := answer[wire.Decision](t, request(t, l, "GET", target+"&cost=1", ""))
		assert.Equal(t, check, again, "it adds nothing")
		w := l.hit(t)
		assert.Equal(t, check.Allowed, w.Code == http.StatusOK, i)
		if i < 2 {
			assert.Equal(t, int64(i), check.Limits[0].Count, "without the cost")
			assert.Equal(t, int64(i+1), answer[wire.Decision](t, w).Limits[0].Count, "with it")
		} else {
			assert.Equal(t, check, denied(t, w).Decision)
		}
	}
	w := request(t, l, "GET", target, "")
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
		assert.Empty(t, w.Header().Get(name), "a check is no denial")
	}
	check := answer[wire.Decision](t, request(t, l, "GET", target+"&cost=9", ""))
	assert.Nil(t, check.RetryAfter)
	assert.Nil(t, check.Limits[0].Reset)
	assert.Equal(t, int64(60), *check.Limits[1].Reset-24*3600+60, "nine of ten fit once the two of now have left the day")
	assert.Equal(t, http.StatusOK, request(t, l, "HEAD", target, "").Code)
}

// What can never fit says so, and names no time.
func TestWhatNeverFits(t *testing.T) {
	for name, rules := range map[string]string{
		"cost":  "[{per: ip, rate: 10/d}]",
		"zero":  "[{per: ip, rate: 0/d}]",
		"deny":  "[{per: ip, rate: 100/d, deny: [203.0.113.0/24]}]",
		"other": "[{per: [], rate: 20/d}, {per: ip, rate: 100/d, deny: [203.0.113.0/24]}]",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t, "headers: [ratelimit, x-ratelimit]\nevents: {e: {limits: "+rules+"}}")
			w := request(t, l, "POST", "/v1/events/e/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 11}`)
			d := denied(t, w)
			assert.Nil(t, d.RetryAfter)
			assert.Contains(t, w.Body.String(), `"retry_after":null`)
			assert.Contains(t, w.Body.String(), `"reset":null`)
			assert.Empty(t, w.Header().Values("Retry-After"))
			assert.Empty(t, w.Header().Values("X-RateLimit-Reset"))
			assert.NotContains(t, w.Header().Get("RateLimit"), ";t=")
			assert.Contains(t, w.Header().Get("RateLimit-Policy"), d.ViolatedPolicies[0])
			if name == "deny" {
				assert.Equal(t, `"ip-100-per-24h";r=0`, w.Header().Get("RateLimit"), "its counter was not asked")
			}
			assert.True(t, strings.HasSuffix(d.Detail, "it will never fit."), d.Detail)
			assert.Zero(t, l.store.Bytes(), "nothing is counted")
		})
	}
}

// Far from its limit a hit is decided on bounds, and says so; a check is exact.
func TestACountThatIsABoundSaysSo(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: 100/m}]}}")
	assert.NotContains(t, l.hit(t).Body.String(), "exact", "nothing else is there yet")
	l.late = 80 * time.Second // 53 seconds into the next minute: the first hit has left the window, its minute has not
	w := l.hit(t)
	assert.Contains(t, w.Body.String(), `"count":2,"remaining":98,"reset":0,"allowed":true,"exact":false}`)
	check := request(t, l, "GET", "/v1/events/e/check?feature=ip:203.0.113.9", "")
	assert.Contains(t, check.Body.String(), `"count":1,"remaining":99,"reset":0,"allowed":true}`)
}

func TestAStoreThatFailsIsAnswered(t *testing.T) {
	for onError, status := range map[string]int{"allow": 200, "deny": 503, "local": 200} {
		t.Run(onError, func(t *testing.T) {
			l := newLimits(t, "headers: [ratelimit, x-ratelimit]\nevents: {e: {limits: [{per: ip, rate: 2/d, on_error: "+onError+"}]}}")
			l.hit(t)
			l.broken.Store(true)
			w := l.hit(t)
			require.Equal(t, status, w.Code, w.Body)
			check := request(t, l, "GET", "/v1/events/e/check?feature=ip:203.0.113.9", "")
			require.Equal(t, status, check.Code)
			results := answer[wire.Results](t, request(t, l, "POST", "/v1/batch", `{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}}]}`)).Results
			require.Equal(t, status, results[0].Status)
			require.Equal(t, status == 200, results[0].Allowed)
			require.Equal(t, onError, results[0].Limits[0].OnError)
			if status == 503 {
				var p wire.Denial
				require.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p, json.RejectUnknownMembers(true)))
				assert.Equal(t, wire.Problem{Type: "about:blank", Title: "Service Unavailable", Status: 503, Detail: "The store did not answer, or not in time."}, p.Problem)
				assert.False(t, p.Allowed)
				assert.Empty(t, p.ViolatedPolicies)
				assert.Equal(t, "deny", p.Limits[0].OnError)
				assert.Empty(t, w.Header().Values("Retry-After"), "nobody knows when the store is back")
				assert.Equal(t, wire.TypeProblem, check.Header().Get("Content-Type"))
				assert.Equal(t, 1, strings.Count(l.log.String(), "msg="), "one line a second: %s", &l.log)
				return
			}
			d := answer[wire.Decision](t, w)
			assert.Equal(t, onError, d.Limits[0].OnError)
			if onError == "allow" {
				assert.Equal(t, `"ip-2-per-24h";q=2;w=86400`, w.Header().Get("RateLimit-Policy"))
				assert.Empty(t, w.Header().Values("RateLimit"), "nobody knows how the limit stands")
				assert.Empty(t, w.Header().Values("X-RateLimit-Remaining"))
				assert.False(t, *d.Limits[0].Exact)
			} else {
				assert.Equal(t, int64(1), d.Limits[0].Count, "its own counters start empty")
				assert.Equal(t, `"ip-2-per-24h";r=1`, w.Header().Get("RateLimit"))
				assert.Equal(t, "local", denied(t, l.hit(t)).Limits[0].OnError, "the batch's hit was the second")
			}
			assert.Empty(t, l.log.String())
		})
	}
}

// batchOf returns the results of a batch of those hits.
func batchOf(t *testing.T, h http.Handler, hits ...wire.BatchHit) []wire.Result {
	t.Helper()
	body, err := json.Marshal(wire.Batch{Hits: hits})
	require.NoError(t, err)
	results := answer[wire.Results](t, request(t, h, "POST", "/v1/batch", string(body))).Results
	require.Len(t, results, len(hits))
	return results
}

func hitsOf(n int, hit wire.BatchHit) []wire.BatchHit {
	hits := make([]wire.BatchHit, n)
	for i := range hits {
		hits[i] = hit
	}
	return hits
}

func statuses(results []wire.Result) []int {
	var all []int
	for _, result := range results {
		all = append(all, result.Status)
	}
	return all
}

func TestABatchIsDecidedInOrder(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: 10/d}]}}")
	results := batchOf(t, l, hitsOf(15, wire.BatchHit{Event: "e", Features: map[string]string{"ip": "203.0.113.9"}})...)
	for i, result := range results {
		require.Nil(t, result.Problem)
		assert.Equal(t, i < 10, result.Allowed, i)
		assert.Equal(t, int64(min(i+1, 10)), result.Limits[0].Count, i)
		if i < 10 {
			assert.Equal(t, http.StatusOK, result.Status)
		} else {
			assert.Equal(t, http.StatusTooManyRequests, result.Status)
			assert.Equal(t, int64(86400), *result.RetryAfter)
		}
	}
	assert.Equal(t, int64(1), l.adds.Load(), "in one trip")
	count := answer[wire.Count](t, request(t, l, "GET", "/v1/events/e/count?window=24h&feature=ip:203.0.113.9", ""))
	assert.Equal(t, int64(10), count.Count)
}

// A hit that is at fault has a result of its own; the others are decided.
func TestFaultyHitsInABatch(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: 10/d}]}, plain: {}}")
	w := request(t, l, "POST", "/v1/batch", `{"hits": [
		{"event": "unknown", "features": {"ip": "203.0.113.9"}, "cost": -1},
		{"event": "e", "features": {"ip": "203.0.113"}},
		{"event": "e", "features": {"ip": "203.0.113.9"}},
		{"event": "e", "features": {"ip": "x", "user": ""}, "cost": -1},
		{"event": "e", "features": {"user": "42"}},
		{"event": "plain", "features": {"user": "42"}},
		{}, {}
	]}`)
	results := answer[wire.Results](t, w).Results
	require.Equal(t, []int{404, 400, 200, 400, 400, 400, 400, 400}, statuses(results))
	for i, result := range results {
		assert.Equal(t, result.Status == 200, result.Problem == nil, i)
		assert.Equal(t, result.Status == 200, result.Decision != nil, i)
	}
	assert.Equal(t, "/hits/1/features/ip", results[1].Errors[0].Pointer)
	var places []string
	for _, fault := range results[3].Errors {
		places = append(places, fault.Pointer)
	}
	assert.ElementsMatch(t, []string{"/hits/3/features/ip", "/hits/3/cost"}, places)
	assert.Equal(t, "/hits/4/features", results[4].Errors[0].Pointer)
	for i := range 2 {
		fault := wire.Fault{Pointer: fmt.Sprintf("/hits/%d/event", 6+i), Detail: "the event is missing"}
		assert.Equal(t, []wire.Fault{fault}, results[6+i].Errors)
	}
	again := answer[wire.Results](t, request(t, l, "POST", "/v1/batch", `{"hits": [{}]}`)).Results
	assert.Equal(t, []wire.Fault{{Pointer: "/hits/0/event", Detail: "the event is missing"}}, again[0].Errors)
	assert.Equal(t, int64(1), results[2].Limits[0].Count)
	assert.Contains(t, w.Body.String(), `{"status":404,"type":"about:blank","title":"Not Found","detail":"No event of this name is known; GET /v1/events lists those that are."}`)

	// Each alone is answered with that status.
	assert.Equal(t, 404, request(t, l, "POST", "/v1/events/unknown/hit", who).Code)
	assert.Equal(t, 400, request(t, l, "POST", "/v1/events/e/hit", `{"features": {"user": "42"}}`).Code)
	assert.Equal(t, 400, request(t, l, "POST", "/v1/events/plain/hit", `{"features": {"user": "42"}}`).Code)
}

func TestTheLargestBatch(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: user, rate: 10/d}, {per: [], rate: 600/h}]}}")
	var hits []wire.BatchHit
	for i := range limiter.MaxHits {
		hits = append(hits, wire.BatchHit{Event: "e", Features: map[string]string{"user": fmt.Sprint(i / 20)}})
	}
	results := batchOf(t, l, hits...)
	for i, result := range results {
		assert.Equal(t, i%20 < 10, result.Allowed, i)
		assert.Equal(t, fmt.Sprintf("user:%d", i/20), result.Limits[0].Feature)
	}
	body, err := json.Marshal(wire.Batch{Hits: append(hits, hits[0])})
	require.NoError(t, err)
	p := problem(t, request(t, l, "POST", "/v1/batch", string(body)), http.StatusBadRequest)
	assert.Equal(t, "/hits: a batch is of 1 to 1000 hits, not of more", p.Detail)
}

// Answers that are put together at the same time, where others were before, are each
// of their own hit.
func TestAnswersAreNotMixedUp(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: user, rate: 20/d}, {per: [user, zone], rate: 100/h}]}}")
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			user := strings.Repeat(string(rune('a'+i)), 1+9*i)
			hit := wire.BatchHit{Event: "e", Features: map[string]string{"user": user, "zone": "z"}}
			is := func(d *wire.Decision) {
				assert.Equal(t, []string{"user:" + user, "user:" + user + "+zone:z"}, []string{d.Limits[0].Feature, d.Limits[1].Feature})
				assert.Equal(t, d.Allowed, *d.RetryAfter == 0)
			}
			body := fmt.Sprintf(`{"features": {"user": "%s", "zone": "z"}}`, user)
			for range 15 {
				w := request(t, l, "POST", "/v1/events/e/hit", body)
				if w.Code == http.StatusOK {
					is(new(answer[wire.Decision](t, w)))
				} else {
					is(&new(denied(t, w)).Decision)
				}
				for _, result := range batchOf(t, l, hit, hit) {
					is(result.Decision)
				}
			}
		})
	}
	all.Wait()
}

// A request takes the rules in force once: what comes in between is of the next.
func TestARequestTakesTheRulesOnce(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: 10/d}]}}")
	for target, body := range map[string]string{
		"/v1/events/e/hit":       who,
		"/v1/events/e/increment": who,
		"/v1/batch":              `{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}}, {"event": "e", "features": {"ip": "203.0.113.9"}}]}`,
		"/v1/events/e/check?feature=ip:203.0.113.9": "",
		"/v1/events": "",
	} {
		l.loads.Store(0)
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		require.Equal(t, http.StatusOK, request(t, l, method, target, body).Code, target)
		assert.Equal(t, int64(1), l.loads.Load(), target)
	}
}

// A caller that has left is not counted, nor is it an error of the server's.
func TestACallerThatHasLeft(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: ip, rate: 10/d}]}}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for target, body := range map[string]string{"/v1/events/e/hit": who, "/v1/batch": `{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}}]}`} {
		r := httptest.NewRequestWithContext(ctx, "POST", target, strings.NewReader(body))
		r.Header.Set("Content-Type", wire.TypeJSON)
		w := httptest.NewRecorder()
		l.ServeHTTP(w, r)
		problem(t, w, http.StatusServiceUnavailable)
	}
	assert.Zero(t, l.store.Bytes())
	assert.Empty(t, l.log.String())
}

// Nothing that is logged holds a feature's value.
func TestTheLogHoldsNoFeatures(t *testing.T) {
	l := newLimits(t, "events: {e: {limits: [{per: user, rate: 1/d, on_error: deny}]}}")
	const secret = "alice@example.org"
	everything := func() {
		request(t, l, "POST", "/v1/events/e/hit", `{"features": {"user": "`+secret+`"}}`)
		request(t, l, "POST", "/v1/events/e/hit", `{"features": {"ip": "`+secret+`"}}`)
		request(t, l, "POST", "/v1/events/e/hit", `{"`+secret+`": {}}`)
		request(t, l, "POST", "/v1/events/"+secret+"/hit", `{"features": {"user": "1"}}`)
		request(t, l, "GET", "/v1/events/e/check?feature=user:"+secret, "")
		request(t, l, "POST", "/v1/batch", `{"hits": [{"event": "e", "features": {"user": "`+secret+`"}}, {"event": "`+secret+`"}]}`)
	}
	everything()
	l.broken.Store(true)
	everything()
	assert.NotEmpty(t, l.log.String())
	assert.NotContains(t, l.log.String(), "alice")
}

const fuzzRules = `events:
  e: {limits: [{per: ip, rate: [2/s, 5/m], allow: [10.0.0.0/8], deny: [203.0.113.7]}, {per: [ip, user], rate: 3/d, shadow: true}]}
  plain: {}
`

func FuzzHit(f *testing.F) {
	for _, test := range bad {
		if strings.HasSuffix(test.target, "/hit") && len(test.body) < 1<<10 {
			f.Add(test.body)
		}
	}
	f.Add(who)
	f.Add(`{"features": {"ip": "203.0.113.7", "user": "42"}, "cost": 3}`)
	f.Add(`{"features": {"ip": "2001:db8::1", "user": "42"}, "cost": 1000000}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, event := range []string{"e", "plain"} {
			l := newLimits(t, fuzzRules)
			w := request(t, l, "POST", "/v1/events/"+event+"/hit", body)
			switch w.Code {
			case http.StatusOK:
				require.True(t, answer[wire.Decision](t, w).Allowed)
				require.NotZero(t, l.store.Bytes())
			case http.StatusTooManyRequests:
				denied(t, w)
			default:
				problem(t, w, w.Code)
				require.Contains(t, []int{400, 413, 415}, w.Code)
			}
			if w.Code != http.StatusOK {
				require.Zero(t, l.store.Bytes(), "counted")
			}
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, test := range bad {
		if test.target == "/v1/batch" && len(test.body) < 1<<10 {
			f.Add(test.body)
		}
	}
	f.Add(`{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}}, {"event": "e", "features": {"ip": "203.0.113.9", "user": "1"}, "cost": 2}, {}, null]}`)
	f.Fuzz(func(t *testing.T, body string) {
		l := newLimits(t, fuzzRules)
		w := request(t, l, "POST", "/v1/batch", body)
		if w.Code != http.StatusOK {
			problem(t, w, w.Code)
			require.Contains(t, []int{400, 413, 415}, w.Code)
			require.Zero(t, l.store.Bytes(), "counted")
			return
		}
		admitted := false
		for _, result := range answer[wire.Results](t, w).Results {
			require.Contains(t, []int{200, 400, 404, 429}, result.Status)
			decided := result.Status == 200 || result.Status == 429
			require.Equal(t, decided, result.Decision != nil)
			require.Equal(t, decided, result.Problem == nil)
			if decided {
				require.Equal(t, result.Status == 200, result.Allowed)
				admitted = admitted || result.Allowed
			}
		}
		require.Equal(t, admitted, l.store.Bytes() > 0)
	})
}

func FuzzCheckQuery(f *testing.F) {
	for _, test := range bad {
		if _, query, found := strings.Cut(test.target, "?"); found && test.method == "GET" {
			f.Add(query)
		}
	}
	f.Add("feature=ip:2001:db8::1&feature=user:4%0d%0a2&cost=1000000")
	f.Add("feature=ip:203.0.113.7")
	f.Fuzz(func(t *testing.T, query string) {
		l := newLimits(t, fuzzRules)
		for _, event := range []string{"e", "plain"} {
			r := httptest.NewRequest("GET", "/v1/events/"+event+"/check", nil)
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			l.ServeHTTP(w, r)
			if w.Code == http.StatusOK {
				answer[wire.Decision](t, w)
			} else {
				problem(t, w, http.StatusBadRequest)
			}
			require.Zero(t, l.store.Bytes(), "counted")
		}
	})
}
