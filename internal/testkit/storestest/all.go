//go:build testall

package storestest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

func init() {
	fleets["one server"] = fleet{1, []memcache.Protocol{memcache.Meta}}
	fleets["classic"] = fleet{1, []memcache.Protocol{memcache.Classic}}
}

// onSecured runs a test on a server that demands TLS and a password.
func onSecured(t *testing.T, clock func() time.Time, test func(t *testing.T, open func() store.Store)) {
	t.Run("secured", func(t *testing.T) {
		authority := memcachedtest.NewAuthority(t)
		server := memcachedtest.StartSecure(t, memcachedtest.Security{Authority: authority, User: "counterd", Password: "sesame"})
		config := memcache.Config{
			Servers: []string{server.Addr},
			TLS:     func() (*tls.Config, error) { return authority.Client(), nil },
			Credentials: func() (memcache.Credentials, error) {
				return memcache.Credentials{User: "counterd", Password: "sesame"}, nil
			},
			Clock: func() time.Time { return clock().Add(-time.Hour) },
		}
		test(t, func() store.Store { return Open(t, config) })
	})
}
