package memcache_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// A server that says that more comes than any bucket has, or that goes on without end,
// makes a trip fail and allocates nothing for it.
func TestHostileAnswersAllocateNothing(t *testing.T) {
	filler := strings.Repeat("x", 64<<10)
	for name, answer := range map[string]struct{ once, then string }{ // ITEM and OTHER begin an item, as its size follows
		"a size of 4 GiB":             {"ITEM 4294967295\r\n", filler},
		"a size beyond an item's":     {"ITEM 1048577\r\n", filler},
		"a line without an end":       {"ITEM ", filler},
		"an item again and again":     {"", "ITEM 1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n"},
		"a count again and again":     {"", "ITEM 1\r\n7\r\n"},
		"an item that was not wanted": {"", "OTHER 1\r\n7\r\n"},
		"what comes after the end":    {"END\r\n", filler},
		"an item that does not end":   {"ITEM 1048576\r\n", filler},
	} {
		for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
			t.Run(name+" "+protocol.String(), func(t *testing.T) {
				server := memcachedtest.Serve(t, func(_ int, conn net.Conn) { answerWithoutEnd(conn, answer.once, answer.then) })
				fleet := openUnwatched(t, memcache.Config{Servers: []string{server}, Protocol: protocol})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				bounded(t, name, func() {
					for range 2 {
						_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{101}, make([]int64, 1))
						// Else the first has its answer, and the next may have another connection.
						if name != "what comes after the end" && (name != "a count again and again" || protocol == memcache.Classic) {
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

// answerWithoutEnd answers a read with once, and with then until the connection ends.
func answerWithoutEnd(conn net.Conn, once, then string) {
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
		case strings.HasPrefix(line, "get"), strings.HasPrefix(line, "mg "):
			once, again := itemsOf(line, once), []byte(itemsOf(line, then))
			for _, err := io.WriteString(conn, once); err == nil; {
				_, err = conn.Write(again) // which allocates nothing
			}
			return
		}
	}
}

// itemsOf returns the text as it answers the read, which is of counter a.
func itemsOf(line, text string) string {
	if strings.HasPrefix(line, "get") {
		key := func(counter string) string { return "VALUE " + memcache.Keys(counter, []uint64{101})[0] + " 0 " }
		return strings.NewReplacer("ITEM ", key("a"), "OTHER ", key("b")).Replace(text)
	}
	text = sizes.ReplaceAllString(text, "VA $2 f0 O$1")
	return strings.NewReplacer("OITEM", tagOf(line)[1:], "ITEM ", "VA ", "END", "EN").Replace(text)
}

var sizes = regexp.MustCompile(`(ITEM|OTHER) (\d+)`)

// The same of answers to what changes buckets, and to what asks how a server is.
func TestLinesWithoutEndAllocateNothing(t *testing.T) {
	filler := bytes.Repeat([]byte("1"), 64<<10)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Serve(t, func(_ int, conn net.Conn) {
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
