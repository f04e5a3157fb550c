package counting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/oracle"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

// Logs on two servers count exactly while one of them and then the other is down, returns empty, and
// has the logs again by one increment on each; also after resets.
func TestLogsOnReplicasEqualAnOracle(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	unused := counterOf(t, newEvent(t, "[{per: ip, rate: 9/d}]", eventlog.Algorithm), "ip", "192.0.2.3")
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
		t.Run(protocol.String(), func(t *testing.T) {
			servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
			open := func() store.Store {
				return storestest.Open(t, memcache.Config{
					Protocol: protocol, Servers: []string{servers[0].Addr, servers[1].Addr}, Replicas: 2,
					Clock: func() time.Time { return clock.Now().Add(-time.Hour) },
				})
			}
			equalAnOracle(t, clock, eventlog.Algorithm, open, func(round int, processes []process, counters []events.Counter, log *oracle.Log) {
				server := servers[round/3%2]
				switch round % 3 {
				case 0:
					server.Stop()
				case 1:
					server.Restart()
					for _, p := range processes { // which all use it again
						testkit.Await(t, time.Minute, "the server is up", func() bool { return p.Reset(t.Context(), unused) == nil })
					}
				case 2:
					require.NoError(t, processes[0].Reset(t.Context(), counters[0]))
					log.Forget(counters[0].ID())
				}
				for _, p := range processes {
					for _, counter := range counters {
						testkit.Await(t, time.Minute, "the counter is incremented", func() bool {
							_, err := p.Increment(t.Context(), 1, time.Time{}, counter)
							require.False(t, err != nil && round%3 > 0, "all servers are up: %v", err)
							if err == nil {
								log.Add(counter.ID(), clock.Now().UnixMilli(), 1)
							}
							return err == nil
						})
					}
				}
			})
		})
	}
}
