package memcache_test

import (
	"bufio"
	"context"
	"github.com/counterd/counterd/internal/testkit"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

func TestProtocolsHaveNames(t *testing.T) {
	for _, protocol := range []memcache.Protocol{memcache.Auto, memcache.Meta, memcache.Classic} {
		read, err := memcache.ParseProtocol(protocol.String())
		require.NoError(t, err)
		assert.Equal(t, protocol, read)
	}
	_, err := memcache.ParseProtocol("binary")
	require.ErrorContains(t, err, "none of auto, meta and classic")
	leaktest.Check(t)
	_, err = memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{"127.0.0.1:1"}, Protocol: 7})
	require.ErrorContains(t, err, "Protocol(7)")
}

// oldServer is a proxy of a Memcached that refuses the meta commands, with the answer of
// refuse, or by hanging up where that is empty, for as long as old is set.
type oldServer struct {
	addr   string
	refuse string
	old    atomic.Bool
	metas  atomic.Int32 // meta commands that were let through

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newOldServer(t *testing.T, refuse string) *oldServer {
	o := &oldServer{refuse: refuse, conns: map[net.Conn]bool{}}
	o.old.Store(true)
	behind := memcachedtest.StartMemory(t).Addr
	o.addr = memcachedtest.Serve(t, func(_ int, conn net.Conn) {
		server, err := memcachedtest.Dial(t.Context(), behind, time.Time{})
		if err != nil {
			return
		}
		o.mu.Lock()
		o.conns[conn] = true
		o.mu.Unlock()
		var back sync.WaitGroup
		back.Go(func() { io.Copy(conn, server) })
		defer back.Wait()
		defer server.Close()
		for lines := bufio.NewReader(conn); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "m") {
				if o.old.Load() && o.refuse == "" {
					return
				}
				if o.old.Load() {
					conn.Write([]byte(o.refuse))
					continue
				}
				o.metas.Add(1)
			}
			server.Write([]byte(line))
		}
	})
	return o
}

// cut closes all connections.
func (o *oldServer) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for conn := range o.conns {
		conn.Close()
	}
	clear(o.conns)
}

func TestServersWithoutMetaCommands(t *testing.T) {
	for name, refuse := range map[string]string{
		"old version":      "ERROR\r\n",
		"strict proxy":     "CLIENT_ERROR unknown command\r\n",
		"proxy hanging up": "",
	} {
		inBubble(t, name, func(t *testing.T) {
			server := newOldServer(t, refuse)
			fleet := openFleet(t, server.addr)
			assert.Equal(t, []int64{3, 3}, add(t, fleet, "a", 3, 1, 2))
			assert.Equal(t, []int64{3, 0}, read(t, fleet, "a", 1, 3))
			require.NoError(t, storetest.RollBack(t.Context(), fleet, "a", 1, []uint64{1, 3}, store.Acknowledged(2)))
			require.NoError(t, storetest.Delete(t.Context(), fleet, "a", []uint64{2}))
			assert.Equal(t, []int64{2, 0, 0}, read(t, fleet, "a", 1, 2, 3))

			// Each of the calls can be the one that finds out.
			fleet = openFleet(t, server.addr)
			require.NoError(t, storetest.RollBack(t.Context(), fleet, "a", 1, []uint64{1}, store.Acknowledged(1)))
			fleet = openFleet(t, server.addr)
			require.NoError(t, storetest.Delete(t.Context(), fleet, "b", []uint64{1}))

			forced := openFleetOf(t, memcache.Meta, server.addr)
			for range 2 {
				landed, err := storetest.Trip(t.Context(), forced, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
				require.ErrorContains(t, err, "does not speak the meta commands")
				require.ErrorContains(t, err, server.addr)
				require.Zero(t, landed)
			}
			assert.Equal(t, []int64{1}, read(t, fleet, "a", 1))
			assert.Zero(t, server.metas.Load())
		})
	}
}

// A connection that breaks during the question says nothing of the server. It is asked again,
// and no hit fails.
func TestABrokenConnectionIsNoRefusal(t *testing.T) {
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Auto} {
		inBubble(t, protocol.String(), func(t *testing.T) {
			behind := memcachedtest.StartMemory(t).Addr
			addr := memcachedtest.Serve(t, func(number int, conn net.Conn) {
				if number == 0 {
					return
				}
				server, err := memcachedtest.Dial(t.Context(), behind, time.Time{})
				if err != nil {
					return
				}
				var back sync.WaitGroup
				back.Go(func() { io.Copy(conn, server) })
				defer back.Wait()
				defer server.Close()
				io.Copy(server, conn)
			})
			var classic atomic.Bool
			fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Protocol: protocol, OnProtocol: func(_ string, speaks memcache.Protocol) {
				if speaks == memcache.Classic {
					classic.Store(true)
				}
			}})
			for i := range int64(3) {
				require.Equal(t, []int64{i + 1}, add(t, fleet, "a", 1, 1))
			}
			require.False(t, classic.Load())
			require.Equal(t, memcache.Meta, fleet.Health()[0].Speaks)
		})
	}
}

// Many callers at once find out together and all go the classic way.
func TestManyFindOutAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fleet := openFleet(t, newOldServer(t, "").addr)
		var running sync.WaitGroup
		for range 32 {
			running.Go(func() { add(t, fleet, "a", 1, 1) })
		}
		running.Wait()
		require.Equal(t, []int64{32}, read(t, fleet, "a", 1))
	})
}

func TestAServerThatLearnsTheMetaCommands(t *testing.T) {
	inBubble(t, "after a reconnection", func(t *testing.T) {
		server := newOldServer(t, "ERROR\r\n")
		fleet := openFleet(t, server.addr)
		add(t, fleet, "a", 1, 1)
		server.old.Store(false)
		testkit.Await(t, maxWait, "the server is asked again and again", func() bool {
			server.cut()
			time.Sleep(10 * time.Millisecond)
			storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
			return server.metas.Load() > 5
		})
		require.Equal(t, []int64{2}, add(t, fleet, "a", 1, 1))
	})
	inBubble(t, "and forgets them", func(t *testing.T) {
		server := newOldServer(t, "ERROR\r\n")
		server.old.Store(false)
		fleet := openFleet(t, server.addr)
		add(t, fleet, "a", 1, 1)
		server.old.Store(true)
		server.cut()
		testkit.Await(t, maxWait, "a trip on a new connection", func() bool { // a call may come before the end of its connection
			_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
			return err == nil
		})
		require.Equal(t, []int64{2}, add(t, fleet, "a", 1, 1))
	})
}

// A server that is silent, down or talks nonsense when it is asked is not taken for a
// classic one: nothing classic is sent to it, and it is asked again.
func TestAServerThatCannotBeAskedIsNotClassic(t *testing.T) {
	var silent atomic.Bool
	var classics atomic.Int32
	silent.Store(true)
	for name, answer := range map[string]string{"silent": "", "nonsense": "hello\r\n", "busy": "ERROR Too many open connections\r\n", "broken": "SERVER_ERROR\r\n", "stopping": "hangs up"} {
		inBubble(t, name, func(t *testing.T) {
			silent.Store(true)
			addr := memcachedtest.Serve(t, func(_ int, conn net.Conn) {
				for lines := bufio.NewReader(conn); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					line = strings.TrimSuffix(line, "\r\n")
					switch {
					case line == "stats" || strings.HasPrefix(line, "incr counterd:clocks"): // a look, not a trip
						io.WriteString(conn, "ERROR\r\n")
					case !strings.HasPrefix(line, "m") && !strings.HasPrefix(line, "gets counterd:") && !strings.HasPrefix(line, "get counterd:"):
						classics.Add(1)
					case silent.Load() && answer == "hangs up":
						return
					case silent.Load():
						io.WriteString(conn, answer)
					case line == probe:
						io.WriteString(conn, "NF Oprb\r\n")
					case line == "mn":
						io.WriteString(conn, "MN\r\n")
					default:
						io.WriteString(conn, sound(line, 7))
					}
				}
			})
			fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Timeout: 500 * time.Millisecond})
			_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
			require.Error(t, err)
			if answer == "" {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			silent.Store(false)
			testkit.Await(t, maxWait, "a trip to the next server", func() bool {
				landed, err := storetest.Trip(context.Background(), fleet, "a", 1, []uint64{1}, []int64{later()}, []uint64{2}, make([]int64, 2))
				return err == nil && landed.On(0) == 1
			})
			require.Zero(t, classics.Load())
		})
	}
}

// OnProtocol is called once for each server, and again when its protocol changes.
func TestHowServersSpeakIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := newOldServer(t, "ERROR\r\n")
		var mu sync.Mutex
		var told []string
		fleet := openConfig(t, memcache.Config{Servers: []string{server.addr}, OnProtocol: func(name string, speaks memcache.Protocol) {
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, server.addr, name)
			told = append(told, speaks.String())
		}})
		heard := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(told)
		}
		fleet.SetClassicFor(time.Nanosecond)
		for range 5 {
			add(t, fleet, "a", 1, 1)
		}
		assert.Equal(t, []string{"classic"}, heard())
		server.old.Store(false)
		testkit.Await(t, maxWait, "the other protocol", func() bool {
			add(t, fleet, "a", 1, 1)
			return len(heard()) == 2
		})
		assert.Equal(t, []string{"classic", "meta"}, heard())
	})
}
