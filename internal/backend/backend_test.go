package backend

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// An embedded store that evicts counters because memory is full logs so, and how many.
func TestEvictionsAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := settings.Default()
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	backend, err := Open(t.Context(), s, Config{})
	require.NoError(t, err)
	fill := func(n int) {
		log := make([]byte, 1<<20) // few of these take much memory
		for i := range n {
			op := store.Op{Counter: fmt.Sprint(i), Data: true, Writes: []store.Write{{Kind: store.Create, Item: store.Item(store.OtherLevels, 3), Data: log, Expires: time.Now().Unix() + 3600}}}
			backend.Do(t.Context(), &op)
			require.NoError(t, op.Err)
		}
	}
	fill(100)
	assert.NotContains(t, log.String(), "full")
	health := service.Health{Servers: backend.States()}
	states, err := health.Ready()
	require.NoError(t, err)
	assert.Empty(t, states)
	fill(400)
	states, err = health.Ready()
	require.NoError(t, err)
	require.Len(t, states, 1)
	assert.Regexp(t, `^reachable, full, incomplete before \d{4}-`, states[0].String())
	assert.Contains(t, log.String(), "level=WARN")
	assert.Regexp(t, `evicted=[1-9]`, log.String())
	assert.LessOrEqual(t, strings.Count(log.String(), "full"), 10, "once a second")
}

// A server whose name has no address yet keeps no process from starting: readyz names it.
func TestANameWithoutAnAddress(t *testing.T) {
	const name = "counterd-test.invalid:11211"
	for _, replicas := range []int{1, 2} {
		s := settings.Default()
		s.Log = slog.New(slog.DiscardHandler)
		s.Memcached, s.Replicas, s.Timeout = []string{memcachedtest.Start(t).Addr, name}, replicas, 20*time.Second
		backend, err := Open(t.Context(), s, Config{Retention: func() time.Duration { return time.Hour }})
		require.NoError(t, err)
		states, err := service.Health{Servers: backend.States()}.Ready()
		require.NoError(t, err)
		require.Len(t, states, 2)
		require.True(t, states[0].Reachable)
		require.Equal(t, name, states[1].Name)
		require.Equal(t, "unreachable", states[1].String()[:len("unreachable")])
		require.NoError(t, backend.Close())
	}
}

// Both names of one server are logged.
func TestTwoNamesOfOneServerAreLogged(t *testing.T) {
	var log bytes.Buffer
	changed := logChanges(slog.New(slog.NewTextHandler(&log, nil)), 2)
	changed(memcache.Same, memcache.ServerHealth{Name: "memcached.example:11211", SameAs: "192.0.2.1:11211"})
	changed(memcache.Several, memcache.ServerHealth{Name: "balancer.example:11211"})
	assert.Regexp(t, `level=ERROR .* server=memcached.example:11211 .* used=192.0.2.1:11211\n`, log.String())
	assert.Regexp(t, `level=ERROR .* use dns:NAME:PORT" server=balancer.example:11211`, log.String())
}
