package page_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api/page"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600+1800) // nothing depends on it
	goleak.VerifyTestMain(m)
}

// now is the time of every test here: 22 seconds into a minute.
var now = time.Date(2026, 3, 14, 12, 30, 22, 0, time.UTC)

func clock() time.Time { return now }

const rules = `
events:
  url_shorten:
    limits:
      - per: ip
        rate: [10/m, 5000/d]
      - per: user
        rate: 100/h
        throttle: soft 10%
      - per: [ip, user]
        rate: 3/m
        shadow: true
      - per: key
        rate: 5/s
        burst: 20
  login:
    limits:
      - per: user
        rate: 5/15m
        overrides: {alice: 50/15m}
        deny: [mallory]
        on_error: deny
  export:
    limits:
      - per: []
        rate: 100/d
        calendar: Europe/Berlin
  hourly:
    retention: 7d
    limits:
      - per: ip
        rate: 1000/d
        precision: hour
  plain: {}
`

// hostile are values that would break out of a page that is not careful.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=https://evil.example/x onerror=alert(1)>`, `' onmouseover='alert(1)`, "\u202egnp.exe", `</title><h1>x`,
	"שלום", `javascript:alert(1)`, strings.Repeat("w", 1000), "two words\nand a line", `&lt;b&gt;{{.}}`,
}

// world is what a page shows: counters in memory, the hits of a day, and what failed.
type world struct {
	*service.Service
	inForce  atomic.Pointer[events.Rules]
	counters *counting.Counters
	top      *top.Top
	down     error // what each call of the store gets
	denials  func(minute time.Time) int64
	config   page.ServerConfig
}

// newWorld returns a world in which nothing was hit.
func newWorld(tb testing.TB) *world {
	tb.Helper()
	return newWorldOf(tb, rules, clock)
}

// newWorldOf returns a world with those rules in force, and that clock.
func newWorldOf(tb testing.TB, rules string, clock func() time.Time) *world {
	tb.Helper()
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(tb, err)
	w := &world{top: top.New(top.Config{Clock: clock})}
	w.inForce.Store(parsed)
	var on store.Store = memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: on, Clock: clock, Grace: 40 * time.Second}) // the machine may be busy
	logs, err := eventlog.New(buckets.Base())
	require.NoError(tb, err)
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second, OnDecision: w.top.OnDecision}, buckets, logs)
	require.NoError(tb, err)
	set := overrides.Start(tb.Context(), overrides.Config{Store: on, Alone: true, Clock: clock, Rules: w.inForce.Load})
	tb.Cleanup(set.Close)
	w.counters = counting.New(counting.Config{}, buckets, logs)
	w.Service, err = service.New(service.Config{Rules: set.Rules, Limiter: decider, Counters: w.counters, Overrides: set})
	require.NoError(tb, err)
	w.denials = func(minute time.Time) int64 { return max(0, int64(minute.Minute()*minute.Hour()%23)-14) }
	w.config = page.ServerConfig{
		Service: w, Clock: clock,
		Top: func(r *http.Request, q top.Query) wire.Top {
			return (*peers.Fleet)(nil).Top(r.Context(), "", w.top.List(q), q)
		},
		Denials: w.top.Denials,
		Source:  func() (string, int64) { return "/etc/counterd/rules.yaml", 3 },
		Health: service.Health{Servers: func() []service.ServerState {
			return []service.ServerState{{Name: "10.0.0.1:11211", Reachable: true}, {Name: "10.0.0.2:11211", Reachable: true, EmptyFrom: now.Add(-time.Hour), Repairing: true, Repaired: 42}, {Name: "10.0.0.3:11211"}}
		}},
	}
	return w
}

func (w *world) handler() http.Handler { return page.NewHandler(w.config) }

func (w *world) Explain(ctx context.Context, event service.Event, features events.Features, cost int64) (limiter.Decision, []limiter.Explained, error) {
	if w.down != nil {
		return limiter.Decision{}, nil, w.down
	}
	return w.Service.Explain(ctx, event, features, cost)
}

func (w *world) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	if w.down != nil {
		return engine.History{}, w.down
	}
	return w.Service.History(ctx, counter, level, from, to)
}

// DeniedHistory has the denials of the world in each minute.
func (w *world) DeniedHistory(_ context.Context, _ events.Counter, level engine.Level, from, to time.Time) (h engine.History, err error) {
	step := level.Seconds()
	for first := level.Of(from.Unix()) * step; first <= to.Unix(); first += step {
		one := engine.Interval{First: first, Last: first + step - 1}
		for minute := first; minute < first+step && minute <= now.Unix(); minute += 60 {
			one.Count += w.denials(time.Unix(minute, 0).UTC())
		}
		h.Intervals = append(h.Intervals, one)
	}
	return h, nil
}

// hit has hits decided, and counted.
func (w *world) hit(tb testing.TB, event string, n int, features events.Features) {
	tb.Helper()
	of, err := w.Event(event)
	require.NoError(tb, err)
	for range n {
		_, err := w.Hit(tb.Context(), of, features, 1)
		require.NoError(tb, err)
	}
}

// day has what ordinary traffic leaves.
func (w *world) day(tb testing.TB) {
	tb.Helper()
	of, err := w.Event("url_shorten")
	require.NoError(tb, err)
	for minutes := 3; minutes < 24*60; minutes++ {
		at := now.Add(-time.Duration(minutes) * time.Minute)
		if n := int64((at.Hour()*7+at.Minute()*at.Minute())%11) - 5; n > 0 {
			_, err := w.Increment(tb.Context(), of, events.Features{"ip": "192.0.2.1"}, n, at)
			require.NoError(tb, err)
		}
	}
	for seconds := range int64(9) {
		_, err := w.Increment(tb.Context(), of, events.Features{"ip": "192.0.2.1"}, 1, now.Add(-time.Duration(seconds*6)*time.Second))
		require.NoError(tb, err)
	}
	w.hit(tb, "url_shorten", 57, events.Features{"ip": "192.0.2.1"})
	w.hit(tb, "url_shorten", 23, events.Features{"key": "k-1"})
	w.hit(tb, "url_shorten", 14, events.Features{"ip": "2001:db8::7", "user": "bob"})
	for i := range 12 {
		w.hit(tb, "url_shorten", 11-i/2, events.Features{"ip": fmt.Sprintf("198.51.100.%d", i)})
		w.hit(tb, "login", 9-i/2, events.Features{"user": fmt.Sprintf("user-%d", i)})
	}
	w.hit(tb, "export", 120, events.Features{})
}

// reads is the service of a world, with how many intervals were read.
type reads struct {
	*world
	intervals int
}

func (r *reads) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	h, err := r.world.History(ctx, counter, level, from, to)
	r.intervals += len(h.Intervals)
	return h, err
}

// featureOf returns a feature of any texts.
func featureOf(pairs ...[2]string) events.Feature {
	counter, _ := events.CounterOf([]byte("e"), 0, pairs...)
	return counter.Feature
}
