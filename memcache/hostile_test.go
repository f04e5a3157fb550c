package memcache_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store/storetest"
)

// A server that says that more comes than any bucket has, or that goes on without end,
// makes a trip fail and allocates nothing for it.
func TestHostileAnswersAllocateNothing(t *testing.T) {
	key := memcache.Keys("a", []uint64{101})[0]
	other := memcache.Keys("b", []uint64{101})[0]
	filler := strings.Repeat("x", 64<<10)
	largest := "VALUE " + key + " 0 1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	for name, answer := range map[string]struct{ once, then string }{
		"a size of 4 GiB":             {"VALUE " + key + " 0 4294967295\r\n", filler},
		"a size beyond an item's":     {"VALUE " + key + " 0 1048577\r\n", filler},
		"a line without an end":       {"VALUE " + key + " ", filler},
		"an item again and again":     {"", largest},
		"a count again and again":     {"", "VALUE " + key + " 0 1\r\n7\r\n"},
		"an item that was not wanted": {"", "VALUE " + other + " 0 1\r\n7\r\n"},
		"what comes after the end":    {"END\r\n", filler},
		"an item that does not end":   {"VALUE " + key + " 0 1048576\r\n", filler},
	} {
		then := []byte(answer.then)
		for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
			t.Run(name+" "+protocol.String(), func(t *testing.T) {
				server := fakeConns(t, func(_ int, conn net.Conn) { answerWithoutEnd(conn, answer.once, then) })
				fleet := openUnwatched(t, memcache.Config{Servers: []string{server}, Protocol: protocol})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				bounded(t, name, func() {
					for range 2 {
						_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{101}, make([]int64, 1))
						if name != "what comes after the end" { // the first has its answer, and the next may have another connection
							assert.Error(t, err)
						}
					}
				})
				runtime.ReadMemStats(&after)
				assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
			})
		}
	}
}

// answerWithoutEnd answers a get with once, and with then until the connection ends.
func answerWithoutEnd(conn net.Conn, once string, then []byte) {
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		switch line = strings.TrimSuffix(line, "\r\n"); {
		case err != nil:
			return
		case line == "ma counterd:none MD D1 Oprb":
			io.WriteString(conn, "NF Oprb\r\n")
		case line == "mn":
			io.WriteString(conn, "MN\r\n")
		case strings.HasPrefix(line, "md "):
			io.WriteString(conn, "NF"+tagOf(line)+"\r\n")
		case strings.HasPrefix(line, "get"):
			for _, err := io.WriteString(conn, once); err == nil; {
				_, err = conn.Write(then) // which allocates nothing
			}
			return
		}
	}
}

// The same of answers to what changes buckets, and to what asks how a server is.
func TestLinesWithoutEndAllocateNothing(t *testing.T) {
	filler := bytes.Repeat([]byte("1"), 64<<10)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := fakeConns(t, func(_ int, conn net.Conn) {
			for {
				if _, err := conn.Write(filler); err != nil { // which allocates nothing
					return
				}
			}
		})
		fleet := openConfig(t, memcache.Paced(memcache.Config{Servers: []string{server}, Protocol: protocol, Timeout: time.Second}, 5*time.Millisecond))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		bounded(t, "a call", func() {
			for range 3 {
				_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
				assert.Error(t, err)
				assert.Error(t, storetest.Delete(t.Context(), fleet, "a", []uint64{1}))
				assert.Error(t, fleet.Ping(t.Context())[server])
			}
		})
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
	})
}
