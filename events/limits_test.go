package events_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// A counter of an event knows its limits: overrides, too.
func TestLimitsOfACounter(t *testing.T) {
	rules, err := rulesfile.Parse([]byte(`events: {e: {limits: [
		{per: ip, rate: [1/s, 2/m]}, {per: user, rate: 3/m, overrides: {root: 4/m}}, {per: ip, rate: 5/h, shadow: true}, {per: [user, ip], rate: 6/m}]}}`))
	require.NoError(t, err)
	event := rules.Events["e"]
	limitsOf := func(c events.Counter) (list []int64) {
		for rule, limit := range c.Limits() {
			require.Equal(t, c.Feature.Kinds(), rule.Per)
			list = append(list, limit.N)
		}
		return list
	}
	counters, err := event.Counters(events.Features{"ip": "192.0.2.1", "user": "root", "other": "x"})
	require.NoError(t, err)
	for _, c := range counters {
		require.Equal(t, map[string][]int64{
			"ip:192.0.2.1": {1, 2, 5}, "user:root": {4}, "ip:192.0.2.1+user:root": {6}, "other:x": nil,
		}[c.Feature.String()], limitsOf(c), c.Feature)
	}
	ada, err := event.Counter(events.Features{"user": "ada"})
	require.NoError(t, err)
	require.Equal(t, []int64{3}, limitsOf(ada))
	require.Empty(t, limitsOf(events.Counter{Event: "e"}))
	for range ada.Limits() {
		break
	}
}

func TestDenyIsAnExceptionWithinAllow(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 5/m, allow: [10.0.0.0/8, '2001:db8::1'], deny: [10.1.0.0/16, 10.0.0.7]}]}}"))
	require.NoError(t, err)
	rule := &rules.Events["e"].Rules[0]
	for addr, want := range map[string]events.Listing{
		"10.0.0.1": events.Allowed, "10.0.0.7": events.Denied, "10.1.2.3": events.Denied, "11.0.0.1": events.Unlisted, "2001:db8::1": events.Allowed, "2001:db8::2": events.Unlisted,
	} {
		assert.Equal(t, want, rule.Listed(events.Features{"ip": addr}), addr)
	}
	assert.Equal(t, []string{"10.0.0.0/8", "2001:db8::1"}, rule.Allow.Strings())
	assert.Equal(t, []string{"10.0.0.7", "10.1.0.0/16"}, rule.Deny.Strings())
	assert.Equal(t, []string{"a", "b"}, events.List{Values: map[string]bool{"b": true, "a": true}}.Strings())
}
