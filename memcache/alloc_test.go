//go:build !race

package memcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/memcache/memcachedtest"
)

// The race detector keeps pools from keeping.
func TestMetaTripsAllocateNothing(t *testing.T) {
	server := memcachedtest.Start(t)
	for name, secret := range map[string][]byte{"plain": nil, "keyed": []byte("0123456789abcdef")} {
		t.Run(name, func(t *testing.T) { metaTripsAllocateNothing(t, server.Addr, secret) })
	}
}

func metaTripsAllocateNothing(t *testing.T, server string, secret []byte) {
	fleet, err := NewFleet(t.Context(), Config{Servers: []string{server}, Protocol: Meta, Timeout: 20 * time.Second, KeySecret: secret})
	require.NoError(t, err)
	defer fleet.Close()
	adds, reads, values := []uint64{1, 2, 3, 4}, []uint64{5, 6, 3}, make([]int64, 7)
	until := time.Now().Add(time.Hour).Unix()
	expires := []int64{until, until, until, until}
	ctx := t.Context()
	allocs := testing.AllocsPerRun(2000, func() {
		if _, err := fleet.Trip(ctx, "a counter of more than thirty-two letters", 1, adds, expires, reads, values); err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, allocs, 0.5) // a look at an idle connection now and then
}
