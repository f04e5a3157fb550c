//go:build testall

package overrides_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// On real servers overrides survive what happens to these: as long as one process, or one replica, has them.
func TestOverridesOnServers(t *testing.T) {
	leaktest.Check(t)
	for name, test := range map[string]struct{ servers, replicas int }{"one": {1, 1}, "three": {3, 1}, "two replicas": {3, 2}} {
		t.Run(name, func(t *testing.T) {
			var servers []*memcachedtest.Server
			config := memcache.Config{Replicas: test.replicas}
			for range test.servers {
				server := memcachedtest.Start(t)
				servers, config.Servers = append(servers, server), append(config.Servers, server.Addr)
			}
			one, other := start(t, storestest.Open(t, config), quietly), start(t, storestest.Open(t, config), quietly)
			follows := func(p *process, want ...string) {
				t.Helper()
				// The names are asked for when nothing changes any more: the rules may be newer than the list.
				testkit.Await(t, time.Minute, "the overrides", func() bool { return len(p.List()) == len(want) })
				assert.Equal(t, want, p.names(t))
			}
			one.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
			one.put(t, of("192.0.2.2", time.Now().Add(time.Hour), "9/m"))
			follows(other, "ip:192.0.2.1 allow", "ip:192.0.2.2 9/m")
			_, _, err := other.Remove(t.Context(), "login", "ip", "192.0.2.1")
			require.NoError(t, err)
			follows(one, "ip:192.0.2.2 9/m")

			for _, server := range servers { // all of them come back empty
				server.Stop()
				server.Restart()
			}
			late := func() bool {
				p := overrides.Start(t.Context(), overrides.Config{Store: storestest.Open(t, config), Rules: one.rules.Load})
				defer p.Close()
				return len(p.List()) == 1
			}
			testkit.Await(t, time.Minute, "what the processes put back", late)

			if test.replicas > 1 { // without any process
				one.Close()
				other.Close()
				servers[0].Stop()
				testkit.Await(t, time.Minute, "the overrides of a replica", late)
			}
		})
	}
}
