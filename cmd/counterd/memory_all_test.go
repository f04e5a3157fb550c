//go:build testall

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// heap returns the bytes that are in use.
func heap() int64 {
	for range 3 { // what is pooled goes with the second
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Whatever the number of features, a process takes bounded memory: a flood of addresses, each of which is admitted once,
// and half of them denied then. The embedded store has a bound of its own.
func TestAFloodOfFeaturesTakesBoundedMemory(t *testing.T) {
	const most, features, bound = 1000, 150_000, 48 << 20
	server := memcachedtest.Start(t, "-m", "256")
	before := heap()
	f := newFlooded(t, "{per: ip, rate: 1/d}", counterd.WithMemcached(server.Addr), counterd.WithTimeout(10*time.Second), counterd.WithGrace(20*time.Second))
	for _, form := range []func(int) string{
		func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) },
		func(i int) string { return fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff) },
	} {
		addresses := make([]string, most)
		for from := 0; from < features/2; from += most {
			for i := range addresses {
				addresses[i] = form(from + i)
			}
			require.Equal(t, most, strings.Count(batch(t, f, addresses), `"status":200`))
			if from/most%2 == 0 {
				require.Equal(t, most, strings.Count(batch(t, f, addresses), `"status":429`))
			}
		}
	}
	grown := heap() - before
	t.Logf("%d features: the heap has grown by %d MiB", features, grown>>20)
	assert.Less(t, grown, int64(bound))
	runtime.KeepAlive(f)
}
