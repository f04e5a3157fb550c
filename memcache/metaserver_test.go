package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/memcache"
)

const probe = "ma counterd:none MD D1 Oprb"

// noMarker is what fakes answer to the question for their marker: so no losses are detected on them.
const noMarker = "VALUE counterd:memory 0 1 1\r\nx\r\nEND\r\n"

// fakeMeta is a server that knows the meta commands: it answers the probe and the questions
// beside trips itself, and every other line by a function as fakeServer does. The number of
// a connection distinguishes it.
func fakeMeta(t *testing.T, answer func(conn int, line string) (string, bool)) string {
	t.Helper()
	return fakeConns(t, func(number int, conn net.Conn) {
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			text, more := "", true
			switch line = strings.TrimSuffix(line, "\r\n"); line {
			case probe:
				text = "NF Oprb\r\n"
			case "mn":
				text = "MN\r\n"
			case "stats":
				// Nothing is sent behind it: so it is answered by hanging up, as some proxies do.
				return
			case "gets counterd:memory":
				text = noMarker
			default:
				text, more = answer(number, line)
			}
			if _, err := conn.Write([]byte(text)); err != nil || !more {
				return
			}
		}
	})
}

// fakeConns serves each connection by a function.
func fakeConns(t *testing.T, serve func(number int, conn net.Conn)) string {
	t.Helper()
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	var open sync.Map
	conns.Go(func() {
		for number := 0; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			conns.Go(func() {
				defer conn.Close()
				serve(number, conn)
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

func openConfig(t *testing.T, config memcache.Config) *memcache.Fleet {
	t.Helper()
	if config.Timeout == 0 {
		config.Timeout = maxWait
	}
	leaktest.Check(t)
	fleet, err := memcache.NewFleet(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	return fleet
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
