package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/eventlog/footprint"
)

func parsedLimits(t *testing.T, limits string) *events.Rules {
	t.Helper()
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: " + limits + "}}"))
	require.NoError(t, err)
	return rules
}

// A log is beside buckets of the same kinds, and has no part in their precision.
func TestALogBesideBuckets(t *testing.T) {
	for _, limits := range []string{
		"[{per: ip, rate: 5/m, algorithm: sliding-log}, {per: ip, rate: 9/h, precision: minute}]",
		"[{per: ip, rate: 9/h, precision: minute}, {per: ip, rate: [2/s, 5/m], algorithm: sliding-log, throttle: soft 5%, overrides: {192.0.2.1: 6/m}}]",
	} {
		counter, err := parsedLimits(t, limits).Events["e"].Counter(events.Features{"ip": "192.0.2.1"})
		require.NoError(t, err)
		assert.Equal(t, events.Minute, counter.Precision)
	}
	_, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/m, algorithm: sliding-log}, {per: ip, rate: 9/h, precision: minute}, {per: ip, rate: 8/h}]}}"))
	require.ErrorContains(t, err, "limits[2].precision: it differs from the limit in line 1")
}

// Limits that share a log bound it together; those in shadow do not.
func TestLogsThatMayBeTooLarge(t *testing.T) {
	for limits, grace := range map[string]time.Duration{
		"[{per: ip, rate: 1000/d, algorithm: sliding-log}]":                                                                        30 * time.Second,
		"[{per: ip, rate: 1000/d, algorithm: sliding-log, shadow: true}]":                                                          30 * time.Second,
		"[{per: ip, rate: 100/s, algorithm: sliding-log}]":                                                                         events.DefaultGrace,
		"[{per: ip, rate: 3000/d, algorithm: sliding-log}, {per: ip, rate: 60/m, algorithm: sliding-log}]":                         5 * time.Second,
		"[{per: ip, rate: 900/d, algorithm: sliding-log}, {per: ip, rate: 9000/d, name: x, algorithm: sliding-log, shadow: true}]": 30 * time.Second,
	} {
		assert.NoError(t, footprint.CheckRules(parsedLimits(t, limits), grace), limits)
	}
	err := footprint.CheckRules(parsedLimits(t, "[{per: [ip, user], rate: 100/s, algorithm: sliding-log}]"), 2*events.DefaultGrace)
	require.ErrorIs(t, err, events.ErrInvalid)
	require.ErrorContains(t, err, "e, per ip+user: a log of the 100 hits in 1s, the retention, takes up to ")
	for _, limits := range []string{
		"[{per: ip, rate: 9000/d, algorithm: sliding-log}, {per: ip, rate: 9/d, algorithm: sliding-log, shadow: true}]",
		"[{per: ip, rate: 9000/d, algorithm: sliding-log}, {per: ip, rate: 9/d}]",
		"[{per: ip, rate: 9000/d, algorithm: sliding-log, shadow: true}]",
	} {
		_, err := rulesfile.Parse([]byte("events: {e: {limits: " + limits + "}}"))
		require.ErrorContains(t, err, "sliding-window", limits)
	}
}

func TestALogIsAnotherCounterThanBuckets(t *testing.T) {
	const now = 1_000_000
	buckets := parsedLimits(t, "[{per: ip, rate: [2/s, 5/h]}]")
	both := parsedLimits(t, "[{per: ip, rate: [2/s, 5/h]}, {per: ip, rate: [2/s, 5/h], name: log, algorithm: sliding-log, shadow: true}]")
	log := parsedLimits(t, "[{per: ip, rate: [2/s, 5/h], algorithm: sliding-log}]")
	since := func(rules *events.Rules, rule int) (list []int64) {
		for _, limit := range rules.Events["e"].Rules[rule].Limits {
			list = append(list, limit.Since)
		}
		return list
	}
	assert.Equal(t, []int64{now, now}, since(events.Succeed(buckets, log, now), 0))
	assert.Equal(t, []int64{now, now}, since(events.Succeed(log, buckets, now), 0))
	shadowed := events.Succeed(buckets, both, now)
	assert.Equal(t, []int64{0, 0}, since(shadowed, 0))
	assert.Equal(t, []int64{now, now}, since(shadowed, 1))
	assert.Equal(t, []int64{0, now}, since(events.Succeed(shadowed, log, now+1800), 0), "of the second's window nothing is missing by now")
	assert.Equal(t, []int64{0, 0}, since(events.Succeed(shadowed, log, now+3600), 0))
}

// A log knows the hits that wait for their turns in any leaky bucket of the event that is enforced.
func TestALogOfHitsThatWait(t *testing.T) {
	const window = "{per: user, rate: 20/m, algorithm: sliding-log}"
	bytes := func(limits string, kinds ...string) int {
		return footprint.OfCounter(parsedLimits(t, limits).Events["e"], kinds, events.DefaultGrace).Bytes
	}
	for limits, want := range map[string]time.Duration{
		"[" + window + "]":                                                       0,
		"[{per: ip, rate: 6/m, burst: 31}]":                                      0,
		"[{per: ip, rate: 6/m, queue: 30}]":                                      5 * time.Minute,
		"[{per: ip, rate: 6/m, queue: 30, shadow: true}]":                        0,
		"[{per: ip, rate: 6/m, queue: 30, throttle: soft 100%}]":                 610 * time.Second,
		"[{per: ip, rate: 6/m, queue: 30, overrides: {192.0.2.1: 3/m}}]":         10 * time.Minute,
		"[{per: ip, rate: 6/m, queue: 30}, {per: [], concurrent: 3, lease: 1h}]": 5 * time.Minute,
	} {
		assert.Equal(t, want, parsedLimits(t, limits).Events["e"].LongestWait(), limits)
	}
	assert.Greater(t, bytes("[{per: ip, rate: 6/m, queue: 30}]", "ip"), bytes("[{per: ip, rate: 6/m, burst: 31}]", "ip")+100)
	assert.Greater(t, bytes("["+window+", {per: ip, rate: 1/m, queue: 600}]", "user"), bytes("["+window+"]", "user"))
}
