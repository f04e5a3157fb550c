package counterd_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// An override holds for hits, of buckets and of logs, until it is removed or ends.
func TestOverrides(t *testing.T) {
	for _, algorithm := range []string{"sliding-window", "sliding-log"} {
		bubble.Test(t, func(t *testing.T) {
			l := start(t, parse(t, "events: {login: {limits: [{per: ip, rate: 3/d, algorithm: "+algorithm+"}]}}"))
			set := func(o counterd.Override) {
				o.Event, o.Kind, o.Value, o.Until = "login", "ip", visitor["ip"], time.Now().UTC().Truncate(time.Second).Add(time.Hour)
				require.NoError(t, l.SetOverride(ctx, o))
				all := l.Overrides()
				require.Len(t, all, 1)
				assert.WithinDuration(t, time.Now(), all[0].Set, time.Second)
				o.Set = all[0].Set
				assert.Equal(t, o, all[0])
			}
			hits := func(limit int64, admitted ...bool) {
				t.Helper()
				for _, want := range admitted {
					d, err := l.Hit(ctx, "login", visitor)
					require.NoError(t, err)
					assert.Equal(t, want, d.Allowed)
					if limit > 0 {
						assert.Equal(t, limit, d.Limits[0].Limit)
						assert.Equal(t, "ip-3-per-24h", d.Limits[0].Name)
					}
				}
			}
			hits(3, true, true, true, false)
			set(counterd.Override{Rates: []events.Limit{{N: 5, Window: 24 * time.Hour}}})
			hits(5, true, true, false)
			removed, err := l.RemoveOverride(ctx, "login", "ip", visitor["ip"])
			require.NoError(t, err)
			assert.True(t, removed)
			assert.Empty(t, l.Overrides())
			hits(3, false)
			set(counterd.Override{Listing: events.Allowed})
			hits(0, true, true)
			count, err := l.Count(ctx, "login", visitor, 24*time.Hour)
			require.NoError(t, err)
			assert.EqualValues(t, 7, count, "what is allowed is counted")
			set(counterd.Override{Listing: events.Denied})
			hits(0, false)
			time.Sleep(time.Hour + time.Second)
			assert.Empty(t, l.Overrides())
			hits(3, false)
		})
	}
}

// A change over HTTP is logged, with the feature, and what goes wrong is an error.
func TestChangesOfOverrides(t *testing.T) {
	var log testkit.Log
	l := start(t, parse(t, someRules), counterd.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	c := serveAll(t, l)
	set, err := c.SetOverride(ctx, "login", wire.SetOverride{Features: visitor, Verdict: "deny", For: "1h"})
	require.NoError(t, err)
	all, err := c.Overrides(ctx)
	require.NoError(t, err)
	assert.Equal(t, []wire.Override{set}, all)
	removed, err := c.RemoveOverride(ctx, "login", "ip", "192.0.2.1")
	require.NoError(t, err)
	assert.True(t, removed)
	for _, change := range []string{"set", "removed"} {
		assert.Regexp(t, `msg="override `+change+`" request_id=\w+ client="" event=login feature=ip:192.0.2.1 override=deny until=`, log.String())
	}

	until := time.Now().Add(time.Hour)
	for name, o := range map[string]counterd.Override{
		"an unknown event": {Event: "nothing", Kind: "ip", Value: "192.0.2.1", Listing: events.Denied, Until: until},
		"both":             {Event: "login", Kind: "ip", Value: "192.0.2.1", Listing: events.Denied, Rates: []events.Limit{{N: 5, Window: time.Minute}}, Until: until},
		"no window":        {Event: "login", Kind: "ip", Value: "192.0.2.1", Rates: []events.Limit{{N: 5}}, Until: until},
		"nothing":          {Event: "login", Kind: "ip", Value: "192.0.2.1", Until: until},
		"no time":          {Event: "login", Kind: "ip", Value: "192.0.2.1", Listing: events.Denied},
	} {
		assert.Error(t, l.SetOverride(ctx, o), name)
	}
	assert.Empty(t, l.Overrides())
	var none context.Context
	require.ErrorIs(t, l.SetOverride(none, counterd.Override{Event: "login"}), counterd.ErrInvalid)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.SetOverride(ctx, counterd.Override{Event: "login", Kind: "ip", Value: "192.0.2.1", Listing: events.Denied, Until: until}), counterd.ErrClosed)
	_, err = l.RemoveOverride(ctx, "login", "ip", "192.0.2.1")
	require.ErrorIs(t, err, counterd.ErrClosed)
}
