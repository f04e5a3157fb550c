//go:build testall

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/internal/testkit"
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

// peak returns the most memory that the process has had, in MiB.
func (p *process) peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	require.NoError(t, err)
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(t, found)
	kib, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return kib >> 10
}

// Many requests at once whose bodies or answers are as large as they can be take bounded memory.
func TestLargeRequestsTakeBoundedMemory(t *testing.T) {
	limits, hits := make([]string, 8), make([]string, 1000)
	for i := range limits {
		limits[i] = fmt.Sprintf("{per: user, rate: 9/%dh}", i+1)
	}
	for i := range hits {
		hits[i] = fmt.Sprintf(`{"event":"e","features":{"user":"%d%s"}}`, i, strings.Repeat("u", 980))
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.ReplaceFile(t, rules, "events: {e: {limits: ["+strings.Join(limits, ", ")+"]}}")
	for name, test := range map[string]struct {
		path, body string
		requests   int
		bound      int // MiB
	}{
		"batches that are not read": {"/v1/batch", `{"hits":[` + strings.Join(hits, ",") + `]}`, 100, 350}, // the embedded store included
		"overrides of empty rates":  {"/v1/events/e/override", `{"rates":[` + strings.Repeat(`"",`, 349_000) + `""]}`, 24, 300},
		"JSON of empty descriptors": {"/json", `{"domain":"d","descriptors":[` + strings.Repeat(`{},`, 349_000) + `{}]}`, 48, 300},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, "-rules", rules, "-rls", "127.0.0.1:0")
			var asking sync.WaitGroup
			for range test.requests {
				asking.Go(func() {
					conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
					if !assert.NoError(t, err) {
						return
					}
					t.Cleanup(func() { conn.Close() })
					_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", test.path, len(test.body), test.body)
					assert.NoError(t, err)
					_, err = bufio.NewReaderSize(conn, 16).ReadByte() // it is answered, and the rest is not read
					assert.NoError(t, err)
				})
			}
			asking.Wait()
			peak := p.peak(t)
			t.Logf("%d at once: %d MiB", test.requests, peak)
			assert.Less(t, peak, test.bound)
		})
	}
}
