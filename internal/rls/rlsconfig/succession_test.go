package rlsconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A limit whose counters were not kept before says since when they are, until its window has passed.
func TestSucceed(t *testing.T) {
	t.Parallel()
	parsed := func(descriptors string) *Config {
		c, err := Parse([]File{{"d.yaml", []byte("domain: d\ndescriptors:\n" + descriptors)}})
		require.NoError(t, err)
		return c
	}
	since := func(c *Config) (all []int64) {
		for _, limit := range c.limits {
			if limit.Unlimited {
				all = append(all, -1)
			} else {
				all = append(all, limit.Rule.Limits[0].Since)
			}
		}
		return all
	}
	const (
		a      = "- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
		more   = "- {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n"
		minute = "- {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
		bob    = "- {key: a, value: bob, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
		b      = "- {key: b, rate_limit: {unlimited: true}}\n"
	)
	now := time.Unix(100_000, 0)
	at := now.Unix()
	first := parsed(a)
	assert.Equal(t, []int64{0}, since(first))
	for next, want := range map[string][]int64{more: {0}, minute: {at}, a + bob: {0, at}, a + b: {0, -1}, b: {-1}} {
		c := parsed(next)
		c.Succeed(first, now)
		assert.Equal(t, want, since(c), next)
	}
	both := parsed(a + bob)
	alone := parsed(a)
	alone.Succeed(both, now)
	assert.Equal(t, []int64{at}, since(alone), "it applies to bob now")
	for after, want := range map[time.Duration]int64{time.Hour - time.Second: at, time.Hour: 0} {
		later := parsed(more)
		later.Succeed(alone, now.Add(after))
		assert.Equal(t, []int64{want}, since(later), "%s", after)
	}
}
