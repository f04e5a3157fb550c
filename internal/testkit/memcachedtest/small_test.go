package memcachedtest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func TestASmallServerEvicts(t *testing.T) {
	s := memcachedtest.StartSmall(t)
	s.Flood("before", 10)
	assert.Equal(t, "0", s.Stats("")["evictions"])
	s.Flood("more", 50_000)
	assert.NotEqual(t, "0", s.Stats("")["evictions"])
	assert.Empty(t, s.Ask("get before0000000000000000000003"))
}
