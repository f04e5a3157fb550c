package counterd_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// An override holds for hits of all processes, of buckets and of logs, until it is removed.
func TestOverrides(t *testing.T) {
	for name, test := range map[string]struct {
		algorithm string
		replicas  int
	}{
		"buckets": {"sliding-window", 1}, "a log": {"sliding-log", 1}, "buckets, replicas": {"sliding-window", 2}, "a log, replicas": {"sliding-log", 2},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			servers := memcachedtest.StartMany(t, 2)
			rules := parse(t, "events: {login: {limits: [{per: ip, rate: 3/d, algorithm: "+test.algorithm+"}]}}")
			open := func() *counterd.Limiter {
				return start(t, rules, append(onBusyMachine, counterd.WithMemcached(servers...), counterd.WithReplicas(test.replicas))...)
			}
			one, other := open(), open()
			hit := func(l *counterd.Limiter) counterd.Decision {
				d, err := l.Hit(ctx, "login", visitor)
				require.NoError(t, err)
				return d
			}
			follows := func(of int) {
				t.Helper()
				require.Eventually(t, func() bool { return len(other.Overrides()) == of }, time.Minute, 10*time.Millisecond)
			}
			for range 3 {
				require.True(t, hit(one).Allowed)
			}
			assert.False(t, hit(other).Allowed)

			raised := counterd.Override{Event: "login", Kind: "ip", Value: visitor["ip"], Rates: []string{"5/d"}, Until: time.Now().Add(time.Hour)}
			require.NoError(t, one.SetOverride(ctx, raised))
			raised.Until = raised.Until.UTC().Truncate(time.Second)
			assert.Equal(t, []counterd.Override{raised}, one.Overrides())
			follows(1)
			assert.Equal(t, []counterd.Override{raised}, other.Overrides())
			d := hit(other)
			assert.True(t, d.Allowed)
			assert.EqualValues(t, 5, d.Limits[0].Limit)
			assert.Equal(t, "ip-3-per-24h", d.Limits[0].Name)
			assert.True(t, hit(one).Allowed)
			assert.False(t, hit(one).Allowed)
			assert.False(t, hit(other).Allowed)

			removed, err := one.RemoveOverride(ctx, "login", "ip", visitor["ip"])
			require.NoError(t, err)
			assert.True(t, removed)
			follows(0)
			for _, l := range []*counterd.Limiter{one, other} {
				d := hit(l)
				assert.False(t, d.Allowed)
				assert.EqualValues(t, 3, d.Limits[0].Limit)
			}

			require.NoError(t, other.SetOverride(ctx, counterd.Override{Event: "login", Kind: "ip", Value: visitor["ip"], Allow: true, Until: time.Now().Add(time.Hour)}))
			for range 5 {
				assert.True(t, hit(other).Allowed)
			}
			late := open()
			assert.True(t, hit(late).Allowed, "a process that starts knows it at once")
			count, err := late.Count(ctx, "login", visitor, 24*time.Hour)
			require.NoError(t, err)
			assert.EqualValues(t, 11, count, "what is allowed is counted")

			require.NoError(t, one.SetOverride(ctx, counterd.Override{Event: "login", Kind: "ip", Value: visitor["ip"], Deny: true, Until: time.Now().Add(time.Hour)}))
			d = hit(one)
			assert.False(t, d.Allowed)
		})
	}
}

// A change is logged, with the feature and the name of the token, and what goes wrong is an error.
func TestChangesOfOverrides(t *testing.T) {
	var log bytes.Buffer
	l := start(t, parse(t, someRules), append(onBusyMachine, counterd.WithLog(slog.New(slog.NewTextHandler(&log, nil))))...)
	c := serveAll(t, l)
	set, err := c.SetOverride(ctx, "login", wire.SetOverride{Features: visitor, Verdict: "deny", For: "1h"})
	require.NoError(t, err)
	assert.Equal(t, "ip:192.0.2.1", set.Feature)
	assert.WithinDuration(t, time.Now().Add(time.Hour), set.Until.Time, time.Minute)
	assert.Regexp(t, `msg="override set" request_id=\w+ client="" event=login feature=ip:192.0.2.1 override=deny until=`, log.String())
	all, err := c.Overrides(ctx)
	require.NoError(t, err)
	assert.Equal(t, []wire.Override{set}, all)
	d, err := l.Hit(ctx, "login", visitor)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	removed, err := c.RemoveOverride(ctx, "login", "ip", "192.0.2.1")
	require.NoError(t, err)
	assert.True(t, removed)
	assert.Regexp(t, `msg="override removed" request_id=\w+ client="" event=login feature=ip:192.0.2.1 override=deny until=`, log.String())

	until := time.Now().Add(time.Hour)
	for name, o := range map[string]counterd.Override{
		"an unknown event": {Event: "nothing", Kind: "ip", Value: "192.0.2.1", Deny: true, Until: until},
		"both":             {Event: "login", Kind: "ip", Value: "192.0.2.1", Deny: true, Allow: true, Until: until},
		"no rate":          {Event: "login", Kind: "ip", Value: "192.0.2.1", Rates: []string{"often"}, Until: until},
		"nothing":          {Event: "login", Kind: "ip", Value: "192.0.2.1", Until: until},
		"no time":          {Event: "login", Kind: "ip", Value: "192.0.2.1", Deny: true},
	} {
		assert.Error(t, l.SetOverride(ctx, o), name)
	}
	assert.Empty(t, l.Overrides())
	var none context.Context
	require.ErrorIs(t, l.SetOverride(none, counterd.Override{Event: "login"}), counterd.ErrInvalid)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.SetOverride(ctx, counterd.Override{Event: "login", Kind: "ip", Value: "192.0.2.1", Deny: true, Until: until}), counterd.ErrClosed)
	_, err = l.RemoveOverride(ctx, "login", "ip", "192.0.2.1")
	require.ErrorIs(t, err, counterd.ErrClosed)
}
