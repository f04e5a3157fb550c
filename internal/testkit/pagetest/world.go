// Package pagetest makes pages to be shown: those of a server in all that they can show, and reports.
package pagetest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// Now is the time of every test here: 22 seconds into a minute.
var Now = time.Date(2026, 3, 14, 12, 30, 22, 0, time.UTC)

func Clock() time.Time { return Now }

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

// Hostile are values that would break out of a page that is not careful.
var Hostile = []string{
	`<script>alert(1)</script>`, `"><img src=https://evil.example/x onerror=alert(1)>`, `' onmouseover='alert(1)`, "\u202egnp.exe", `</title><h1>x`,
	"שלום", `javascript:alert(1)`, strings.Repeat("w", 1000), "two words\nand a line", `&lt;b&gt;{{.}}`,
}

// World is what a page shows: counters in memory, the hits of a day, and what failed.
type World struct {
	*service.Service
	InForce  atomic.Pointer[events.Rules]
	Counters *counting.Counters
	Hot      *top.Top
	Down     error // what each call of the store gets
	DeniedIn func(minute time.Time) int64
	Config   page.ServerConfig
}

// NewWorld returns a world in which nothing was hit.
func NewWorld(tb testing.TB) *World {
	tb.Helper()
	return NewWorldOf(tb, rules, Clock)
}

// NewWorldOf returns a world with those rules in force, and that Clock.
func NewWorldOf(tb testing.TB, rules string, Clock func() time.Time) *World {
	tb.Helper()
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(tb, err)
	w := &World{Hot: top.New(top.Config{Clock: Clock})}
	w.InForce.Store(parsed)
	var on store.Store = memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: Clock})
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: on, Clock: Clock, Grace: 40 * time.Second}) // the machine may be busy
	logs, err := eventlog.New(buckets.Base())
	require.NoError(tb, err)
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second, OnDecision: w.Hot.OnDecision}, buckets, logs)
	require.NoError(tb, err)
	set := overrides.Start(tb.Context(), overrides.Config{Store: on, Alone: true, Clock: Clock, Rules: w.InForce.Load})
	tb.Cleanup(set.Close)
	w.Counters = counting.New(counting.Config{}, buckets, logs)
	w.Service, err = service.New(service.Config{Rules: set.Rules, Limiter: decider, Counters: w.Counters, Overrides: set})
	require.NoError(tb, err)
	w.DeniedIn = func(minute time.Time) int64 { return max(0, int64(minute.Minute()*minute.Hour()%23)-14) }
	w.Config = page.ServerConfig{
		Host:    "web-1",
		Service: w, Clock: Clock,
		Top: func(r *http.Request, q top.Query) wire.Top {
			return (*peers.Fleet)(nil).Top(r.Context(), "", w.Hot.List(q), q)
		},
		Denials: w.Hot.Denials,
		Source:  func() (string, int64) { return "/etc/counterd/rules.yaml", 3 },
		Health: service.Health{Servers: func() []service.ServerState {
			return []service.ServerState{{Name: "10.0.0.1:11211", Reachable: true}, {Name: "10.0.0.2:11211", Reachable: true, EmptyFrom: Now.Add(-time.Hour), Repairing: true, Repaired: 42}, {Name: "10.0.0.3:11211"}}
		}},
	}
	return w
}

func (w *World) Handler() http.Handler { return page.NewHandler(w.Config) }

func (w *World) Explain(ctx context.Context, event service.Event, features events.Features, cost int64) (events.Decision, []limiter.Explained, error) {
	if w.Down != nil {
		return events.Decision{}, nil, w.Down
	}
	return w.Service.Explain(ctx, event, features, cost)
}

func (w *World) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	if w.Down != nil {
		return engine.History{}, w.Down
	}
	return w.Service.History(ctx, counter, level, from, to)
}

// DeniedHistory has the denials of the world in each minute.
func (w *World) DeniedHistory(_ context.Context, _ events.Counter, level engine.Level, from, to time.Time) (h engine.History, err error) {
	step := level.Seconds()
	for first := level.Of(from.Unix()) * step; first <= to.Unix(); first += step {
		one := engine.Interval{First: first, Last: first + step - 1}
		for minute := first; minute < first+step && minute <= Now.Unix(); minute += 60 {
			one.Count += w.DeniedIn(time.Unix(minute, 0).UTC())
		}
		h.Intervals = append(h.Intervals, one)
	}
	return h, nil
}

// Hits has hits decided, and counted.
func (w *World) Hits(tb testing.TB, event string, n int, features events.Features) {
	tb.Helper()
	of, err := w.Event(event)
	require.NoError(tb, err)
	for range n {
		_, err := w.Hit(tb.Context(), of, features, 1)
		require.NoError(tb, err)
	}
}

// day has what ordinary traffic leaves.
func (w *World) day(tb testing.TB) {
	tb.Helper()
	of, err := w.Event("url_shorten")
	require.NoError(tb, err)
	for minutes := 3; minutes < 24*60; minutes++ {
		at := Now.Add(-time.Duration(minutes) * time.Minute)
		if n := int64((at.Hour()*7+at.Minute()*at.Minute())%11) - 5; n > 0 {
			_, err := w.Increment(tb.Context(), of, events.Features{"ip": "192.0.2.1"}, n, at)
			require.NoError(tb, err)
		}
	}
	for seconds := range int64(9) {
		_, err := w.Increment(tb.Context(), of, events.Features{"ip": "192.0.2.1"}, 1, Now.Add(-time.Duration(seconds*6)*time.Second))
		require.NoError(tb, err)
	}
	w.Hits(tb, "url_shorten", 57, events.Features{"ip": "192.0.2.1"})
	w.Hits(tb, "url_shorten", 23, events.Features{"key": "k-1"})
	w.Hits(tb, "url_shorten", 14, events.Features{"ip": "2001:db8::7", "user": "bob"})
	for i := range 12 {
		w.Hits(tb, "url_shorten", 11-i/2, events.Features{"ip": fmt.Sprintf("198.51.100.%d", i)})
		w.Hits(tb, "login", 9-i/2, events.Features{"user": fmt.Sprintf("user-%d", i)})
	}
	w.Hits(tb, "export", 120, events.Features{})
}

// FeatureOf returns a feature of any texts.
func FeatureOf(pairs ...[2]string) events.Feature {
	counter, _ := events.CounterOf([]byte("e"), 0, pairs...)
	return counter.Feature
}

const (
	OfIP  = "/ui/feature?event=url_shorten&feature=ip%3A192.0.2.1"
	OfBob = "/ui/feature?event=url_shorten&feature=user%3Abob&feature=ip%3A2001%3Adb8%3A%3A7"
)

func FeaturePage(event string, features ...string) string {
	return "/ui/feature?" + url.Values{"event": {event}, "feature": features}.Encode()
}

func WhatIf(event, rule string) string {
	return "/ui/whatif?" + url.Values{"event": {event}, "text": {rule}}.Encode()
}

// ShownPages are pages in all that they can show, but for errors: a browser says the status of those.
func ShownPages() map[string]string {
	return map[string]string{
		"overview": "/ui/", "live": "/ui/?live=on", "limits": "/ui/limits", "limits-of-event": "/ui/limits?event=login", "rules": "/ui/rules",
		"whatif": "/ui/whatif?event=url_shorten&rule=0", "tried": WhatIf("url_shorten", "{per: ip, rate: 3/m}"),
		"denied": OfIP, "several": OfBob + "&cost=3", "bucket": FeaturePage("url_shorten", "key:k-1"), "calendar": FeaturePage("export"),
		"day": OfIP + "&level=day", "hour": OfIP + "&level=hour", "second": OfIP + "&level=second",
		"Hostile": FeaturePage("url_shorten", "user:"+Hostile[7]), "script": FeaturePage("url_shorten", "user:"+Hostile[0]),
	}
}

func NewDay(t testing.TB) *World {
	t.Helper()
	w := NewWorld(t)
	w.day(t)
	return w
}

// Admits reports whether a hit is admitted.
func (w *World) Admits(t *testing.T, event string, features events.Features) bool {
	t.Helper()
	of, err := w.Event(event)
	require.NoError(t, err)
	d, err := w.Hit(t.Context(), of, features, 1)
	require.NoError(t, err)
	return d.Allowed
}
