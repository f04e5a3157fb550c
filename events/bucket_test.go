package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

func TestTokenBucketsOfRules(t *testing.T) {
	rules, err := rulesfile.Parse([]byte(`events: {e: {limits: [
		{per: user, rate: 10/s, burst: 20, throttle: soft 50%}, {per: key, rate: 5/s, queue: 10}, {per: tenant, rate: 3/m, algorithm: gcra, burst: 1},
		{per: [user, key], rate: 1/s, burst: 1}, {per: [user, key], rate: 100/h, algorithm: sliding-log}]}}`))
	require.NoError(t, err)
	event := rules.Events["e"]
	want := []struct {
		algorithm string
		burst     int64
		span      time.Duration
	}{{events.TokenBucket, 20, 3 * time.Second}, {events.LeakyBucket, 11, 3 * time.Second}, {events.TokenBucket, 1, 20 * time.Second}, {events.TokenBucket, 1, time.Second}}
	for i, w := range want {
		rule := event.Rules[i]
		limit := rule.Limits[0]
		assert.Equal(t, w.algorithm, limit.Algorithm)
		assert.Equal(t, w.burst, limit.Most())
		assert.Equal(t, w.span, limit.Span(rule.Throttle.Ceiling(limit.Most())))
		assert.True(t, rule.InLog())
	}
	// A counter of token buckets alone is remembered while they count what they admitted.
	for kind, remembered := range map[string]time.Duration{"user": 3 * time.Second, "tenant": 20 * time.Second} {
		counter, err := event.Counter(events.Features{kind: "x"})
		require.NoError(t, err)
		assert.Equal(t, remembered, counter.Remembered())
	}
	counter, err := event.Counter(events.Features{"user": "x", "key": "y"})
	require.NoError(t, err)
	assert.Equal(t, time.Hour, counter.Remembered())
}

// A bucket that a reload adds is incomplete until it would have been full.
func TestANewTokenBucketIsIncompleteUntilItIsFull(t *testing.T) {
	parse := func(text string) *events.Rules {
		rules, err := rulesfile.Parse([]byte(text))
		require.NoError(t, err)
		return rules
	}
	old := parse(`events: {e: {limits: [{per: ip, rate: 5/s}]}}`)
	next := events.Succeed(old, parse(`events: {e: {limits: [{per: ip, rate: 5/s}, {per: ip, rate: 1/s, burst: 30}]}}`), 1000)
	assert.Zero(t, next.Events["e"].Rules[0].Limits[0].Since)
	assert.EqualValues(t, 1000, next.Events["e"].Rules[1].Limits[0].Since)
	for now, since := range map[int64]int64{1029: 1000, 1030: 0} {
		again := events.Succeed(next, parse(`events: {e: {limits: [{per: ip, rate: 6/s}, {per: ip, rate: 1/s, burst: 30}]}}`), now)
		assert.Equal(t, since, again.Events["e"].Rules[1].Limits[0].Since, now)
	}
}
