package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSoakUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"too short":    {"soak", "-duration", "1s", "-counterd", "true"},
		"for no time":  {"soak", "-duration", "0", "-counterd", "true"},
		"no callers":   {"soak", "-callers", "0", "-counterd", "true"},
		"no duration":  {"soak", "-duration", "long"},
		"an argument":  {"soak", "more"},
		"no memcached": {"soak", "-counterd", "true", "-memcached-binary", "no-such-program"},
		"no counterd":  {"soak", "-counterd", "no-such-program"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, args...)
			assert.Equal(t, exitUsage, got.status)
			assert.Empty(t, got.out)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		})
	}
	got := runWith(t, nil, "soak", "-h")
	assert.Equal(t, exitOK, got.status)
	for _, text := range []string{"killed", "-duration", "-memcached-binary", "-seed", "10m"} {
		assert.Contains(t, got.out, text)
	}
}

// What cannot be started is said, and is no success.
func TestASoakThatCannotBe(t *testing.T) {
	got := runWith(t, nil, "soak", "-counterd", "true", "-memcached-binary", "true")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "has ended")
	assert.Empty(t, got.out)
}
