package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

const probe = "ma counterd:none MD D1 Oprb"

// noMarker is what fakes answer to the question for their marker: so no losses are detected on them.
const noMarker = "ERROR\r\n"

// fakeMeta is a server in this process that knows the meta commands: it answers the probe and the
// questions beside trips itself, and every other line by a function as fakeServer does. The number of
// a connection distinguishes it.
func fakeMeta(t *testing.T, answer func(conn int, line string) (string, bool)) string {
	t.Helper()
	return memcachedtest.Serve(t, func(number int, conn net.Conn) {
		answerLines(conn, func(line string) (string, bool) {
			switch line {
			case probe:
				return "NF Oprb\r\n", true
			case "mn":
				return "MN\r\n", true
			case "stats":
				// Nothing is sent behind it: so it is answered by hanging up, as some proxies do.
				return "", false
			case "gets counterd:memory":
				return noMarker, true
			}
			return answer(number, line)
		})
	})
}

// fakeServer answers each command line of a trip by a function: no answer if that returns
// none, and an end of the connection if it returns false.
func fakeServer(t *testing.T, answer func(line string) (string, bool)) string {
	t.Helper()
	return memcachedtest.Serve(t, func(_ int, conn net.Conn) { answerClassic(conn, answer) })
}

func answerClassic(conn net.Conn, answer func(line string) (string, bool)) {
	answerLines(conn, func(line string) (string, bool) {
		switch line {
		case "stats":
			return "ERROR\r\n", true
		case "gets counterd:memory":
			return noMarker, true
		}
		return answer(line)
	})
}

func answerLines(conn net.Conn, answer func(line string) (string, bool)) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		text, more := answer(lines.Text())
		if _, err := io.WriteString(conn, text); err != nil || !more {
			return
		}
	}
}

// listenTCP serves each connection to a port by a function. TLS and credentials need it.
func listenTCP(t *testing.T, serve func(conn net.Conn)) string {
	t.Helper()
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	var open sync.Map
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			conns.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		conns.Wait()
	})
	return listener.Addr().String()
}

// tagOf returns the tag of a command as its answer repeats it.
func tagOf(line string) string {
	_, tag, _ := strings.Cut(line, " O")
	return " O" + tag
}

// sound answers a command as a server would on which every add makes value.
func sound(line string, value int) string {
	number := fmt.Sprint(value)
	switch {
	case line == "gets counterd:memory":
		return noMarker
	case strings.HasPrefix(line, "get "):
		var items strings.Builder
		for _, key := range strings.Fields(line)[1:] {
			fmt.Fprintf(&items, "VALUE %s 0 %d\r\n%s\r\n", key, len(number), number)
		}
		return items.String() + "END\r\n"
	case strings.HasPrefix(line, "mg "):
		return fmt.Sprintf("VA %d f0%s\r\n%s\r\n", len(number), tagOf(line), number)
	case strings.HasSuffix(strings.TrimSuffix(line, tagOf(line)), " v"):
		return fmt.Sprintf("VA %d%s\r\n%s\r\n", len(number), tagOf(line), number)
	}
	return "NF" + tagOf(line) + "\r\n"
}

// openConfig opens a fleet, which the end of the test closes. Its servers may run in this process.
func openConfig(tb testing.TB, config memcache.Config) *memcache.Fleet {
	tb.Helper()
	if config.Timeout == 0 {
		config.Timeout = maxWait
	}
	if memcachedtest.IsLocal(config.Servers[0]) {
		config = memcache.Dialed(config, memcachedtest.Dial)
	} else {
		leaktest.Check(tb)
	}
	fleet, err := memcache.NewFleet(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, fleet.Close()) })
	return fleet
}

// inBubbles runs a test of what fleets do alike with both protocols, each in a bubble.
func inBubbles(t *testing.T, test func(t *testing.T, protocol memcache.Protocol)) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		bubble.Test(t, func(t *testing.T) { test(t, protocol) })
	})
}

// keep adds as a limiter does whose hits are admitted.
func keep(t *testing.T, fleet *memcache.Fleet, counter string, by int64, buckets ...uint64) {
	t.Helper()
	landed := landedOf(t, fleet, counter, by, buckets...)
	expires := slices.Repeat([]int64{later()}, len(buckets))
	storetest.Hint(fleet, counter, by, buckets, expires, landed)
}

// holds returns what one server has of a counter.
func holds(t *testing.T, fleet *memcache.Fleet, counter, server string, buckets ...uint64) []int64 {
	t.Helper()
	values, versions := make([]int64, len(buckets)), make([]uint64, len(buckets))
	require.NoError(t, storetest.Look(t.Context(), fleet, counter, server, buckets, values, versions))
	for i, version := range versions {
		require.Equal(t, values[i] == 0, version == 0)
	}
	return values
}

// openUnwatched opens a fleet for tests that count what comes to a server.
func openUnwatched(t *testing.T, config memcache.Config) *memcache.Fleet {
	t.Helper()
	return openConfig(t, memcache.Unwatched(config))
}

// bounded fails the test where f does not come back.
func bounded(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * maxWait):
		t.Fatalf("%s hangs", what)
	}
}

// inBubble runs a part of a test in a bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { bubble.Test(t, test) })
}

// memories starts servers in this process, and returns them by their addresses.
func memories(t *testing.T, n int) map[string]*memcachedtest.Memory {
	t.Helper()
	servers := map[string]*memcachedtest.Memory{}
	for range n {
		server := memcachedtest.StartMemory(t)
		servers[server.Addr] = server
	}
	return servers
}
