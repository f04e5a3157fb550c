//go:build !race

package memcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
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
	until := time.Now().Add(time.Hour).Unix()
	op := storetest.Op("a counter of more than thirty-two letters", 1, []uint64{1, 2, 3, 4}, []int64{until, until, until, until}, []uint64{5, 6, 3})
	ctx, ops := t.Context(), []*store.Op{op}
	allocs := testing.AllocsPerRun(2000, func() {
		if fleet.Do(ctx, ops...); op.Err != nil {
			t.Error(op.Err)
		}
	})
	require.LessOrEqual(t, allocs, 0.5) // a look at an idle connection now and then
}
