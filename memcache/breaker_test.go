package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// changes keeps what a fleet tells of its servers.
type changes chan string

func (c changes) changed(change memcache.Change, h memcache.ServerHealth) {
	c <- fmt.Sprint(change, " ", h.Name)
}

// await waits for a change, and returns the changes before it.
func (c changes) await(t *testing.T, want string) (before []string) {
	t.Helper()
	for timeout := time.After(maxWait); ; {
		select {
		case got := <-c:
			if got == want {
				return before
			}
			before = append(before, got)
		case <-timeout:
			t.Fatalf("no change says %q, only %q", want, before)
		}
	}
}

func openTold(t *testing.T, config memcache.Config) (*memcache.Fleet, changes) {
	t.Helper()
	told := make(changes, 1000)
	config.OnServerChange = told.changed
	return openConfig(t, config), told
}

// A server that was killed: a few calls fail, the others at once and without a look at
// it, until a probe finds it back.
func TestAKilledServer(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		fleet, told := openTold(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol})
		require.NoError(t, fleet.Ping(t.Context())[server.Addr])
		_, _, err := tripOf(t.Context(), fleet, 1, 1)
		require.NoError(t, err)
		server.Stop()
		for i := 0; !errors.Is(err, memcache.ErrDown); i++ {
			require.Less(t, i, 4)
			_, _, err = tripOf(t.Context(), fleet, 1, 1)
			require.Error(t, err)
			require.ErrorContains(t, err, server.Addr)
		}
		told.await(t, "down "+server.Addr)
		health := fleet.Health()[0]
		assert.False(t, health.Up)
		assert.Error(t, health.Err)
		assert.False(t, health.Down.IsZero())
		assert.Equal(t, uint64(1), health.Openings)
		for range 100 {
			require.ErrorIs(t, storetest.RollBack(t.Context(), fleet, "a", 1, []uint64{1}, store.Acknowledged(1)), memcache.ErrDown)
			require.ErrorIs(t, storetest.Delete(t.Context(), fleet, "a", []uint64{1}), memcache.ErrDown)
			for _, op := range doTogether(t.Context(), fleet, "a", "b") {
				require.ErrorIs(t, op.Err, memcache.ErrDown)
			}
		}
		server.Restart()
		assert.Equal(t, []string{"emptied " + server.Addr}, told.await(t, "back "+server.Addr))
		_, _, err = tripOf(t.Context(), fleet, 1, 1)
		require.NoError(t, err)
		health = fleet.Health()[0]
		assert.True(t, health.Up)
		assert.NoError(t, health.Err)
		assert.InDelta(t, time.Now().Unix(), health.Since, 20)
	})
}

// An outage is noticed without any traffic.
func TestAnOutageWithoutTraffic(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}}, 20*time.Millisecond))
		require.NoError(t, fleet.Ping(t.Context())[server.Addr])
		server.Stop()
		told.await(t, "down "+server.Addr)
		server.Restart()
		told.await(t, "back "+server.Addr)
	})
}

// What proves nothing opens no breaker: answers that are errors, and callers with hardly
// any time.
func TestWhatOpensNoBreaker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		trip := func(fleet *memcache.Fleet, timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_, _, err := tripOf(ctx, fleet, 1, 0)
			return err
		}
		for _, answer := range []string{"SERVER_ERROR out of memory storing object\r\n", "CLIENT_ERROR no\r\n"} {
			for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
				addr := fakeMeta(t, func(int, string) (string, bool) { return answer, true })
				fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Protocol: protocol})
				for range 10 {
					err := trip(fleet, maxWait)
					require.Error(t, err)
					require.NotErrorIs(t, err, memcache.ErrDown)
				}
				assert.Zero(t, fleet.Health()[0].Openings, "%s %q", protocol, answer)
			}
		}
		addr := fakeMeta(t, func(int, string) (string, bool) { return "", true })
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Meta, Timeout: slowTimeout})
		for range 10 {
			require.NotErrorIs(t, trip(fleet, 5*time.Millisecond), memcache.ErrDown)
		}
		assert.Zero(t, fleet.Health()[0].Openings)
		// But nonsense does.
		addr = fakeMeta(t, func(int, string) (string, bool) { return "x\r\n", true })
		for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
			fleet = openUnwatched(t, memcache.Config{Servers: []string{addr}, Protocol: protocol})
			for range 3 {
				require.Error(t, trip(fleet, maxWait))
			}
			assert.Equal(t, uint64(1), fleet.Health()[0].Openings, protocol)
		}
	})
}

// bubbled is a server in a bubble of fake time: there, silent, or gone. It is for the
// classic path: calls of the meta path wait on channels that go from test to test.
type bubbled struct {
	state atomic.Int32
	dials atomic.Int32
}

const (
	there int32 = iota
	silent
	gone
)

func (b *bubbled) dial(_ context.Context, _ string, deadline time.Time) (net.Conn, error) {
	b.dials.Add(1)
	if b.state.Load() == gone {
		return nil, syscall.ECONNREFUSED
	}
	conn, other := net.Pipe()
	go func() {
		defer other.Close()
		for lines := bufio.NewReader(other); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			text := "1\r\n"
			switch line {
			case "stats\r\n":
				text = "ERROR\r\n"
			case "gets counterd:memory\r\n":
				text = noMarker
			}
			if b.state.Load() == there {
				other.Write([]byte(text))
			}
		}
	}()
	return conn, nil
}

// However long a server was gone, and in whatever way, calls are made again within two
// seconds of its return, and until then it is asked hardly more than once a second.
func TestAReturnIsNoticedInTwoSeconds(t *testing.T) {
	for _, way := range []int32{silent, gone} {
		for _, timeout := range []time.Duration{100 * time.Millisecond, 10 * time.Second} {
			bubble.Test(t, func(t *testing.T) {
				server := &bubbled{}
				fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(memcache.Config{Protocol: memcache.Classic, Servers: []string{"127.0.0.1:1"}, Timeout: timeout}, server.dial))
				require.NoError(t, err)
				defer fleet.Close()
				trip := func() error {
					_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
					return err
				}
				for outage := time.Second; outage < time.Minute; outage = outage * 27 / 20 {
					require.NoError(t, trip())
					server.state.Store(way)
					for fleet.Health()[0].Up {
						trip()
					}
					server.dials.Store(0)
					began := time.Now()
					time.Sleep(outage)
					require.ErrorIs(t, trip(), memcache.ErrDown)
					assert.LessOrEqual(t, int(server.dials.Load()), 7+int(2*outage/time.Second))
					require.Equal(t, outage, time.Since(began), "who asks meanwhile waits for nothing")
					server.state.Store(there)
					time.Sleep(2 * time.Second)
					require.NoError(t, trip(), "after %s", outage)
				}
			})
		}
	}
}

// A server that comes and goes is not probed as quickly as one that was well.
func TestAServerThatComesAndGoes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := &bubbled{}
		fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(memcache.Config{Protocol: memcache.Classic, Servers: []string{"127.0.0.1:1"}}, server.dial))
		require.NoError(t, err)
		defer fleet.Close()
		for {
			// It is there when it is probed, and gone when it is called.
			server.state.Store(gone)
			for fleet.Health()[0].Up {
				storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
			}
			server.state.Store(there)
			began := time.Now()
			for !fleet.Health()[0].Up {
				time.Sleep(time.Millisecond)
			}
			if openings := fleet.Health()[0].Openings; openings == 1 {
				require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
			} else if openings > 7 {
				require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)
				return
			}
		}
	})
}

// A call that runs out of time while this process does not run says nothing of the server, for as
// long as the server is known to answer within two seconds of it. A stall before the call, and
// another failure than a timeout, are no excuse.
func TestTimeoutsOfThisProcesssOwnMaking(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := &bubbled{}
		fleet, err := memcache.NewFleet(t.Context(), memcache.Unwatched(memcache.Dialed(memcache.Config{Protocol: memcache.Classic, Servers: []string{"127.0.0.1:1"}}, server.dial)))
		require.NoError(t, err)
		defer fleet.Close()
		trip := func() error {
			_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
			return err
		}
		stalledTrip := func() {
			time.AfterFunc(memcache.DefaultTimeout/2, fleet.Stall)
			require.ErrorIs(t, trip(), os.ErrDeadlineExceeded)
		}
		for range 3 {
			server.state.Store(silent)
			for range 15 {
				stalledTrip()
				require.Zero(t, fleet.Failures())
			}
			server.state.Store(there)
			require.NoError(t, trip())
		}
		server.state.Store(silent)
		fleet.Stall()
		time.Sleep(memcache.DefaultTimeout)
		require.ErrorIs(t, trip(), os.ErrDeadlineExceeded)
		require.Equal(t, int32(1), fleet.Failures())

		began := time.Now()
		for fleet.Health()[0].Up {
			stalledTrip()
		}
		require.WithinRange(t, time.Now(), began.Add(2*time.Second), began.Add(3*time.Second))
		server.state.Store(there)
		time.Sleep(2 * time.Second)
		require.NoError(t, trip())
		server.state.Store(gone)
		for fleet.Failures() < 3 {
			fleet.Stall()
			require.Error(t, trip())
		}
	})
}

// A look at a server may take longer than the timeout, if none of its exchanges does.
func TestASlowServerIsNotDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const timeout = 500 * time.Millisecond
		var answers atomic.Int64
		addr := memcachedtest.Serve(t, func(_ int, conn net.Conn) {
			for lines := bufio.NewReader(conn); ; answers.Add(1) {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				answer := "END\r\n"
				if line == "version\r\n" {
					answer = "VERSION 1.6.38\r\n"
				} else {
					time.Sleep(timeout * 3 / 5)
				}
				if strings.HasPrefix(line, "add") { // another process did, and its item is gone again
					if _, err = lines.ReadString('\n'); err != nil {
						return
					}
					answer = "NOT_STORED\r\n"
				}
				if _, err := io.WriteString(conn, answer); err != nil {
					return
				}
			}
		})
		fleet, told := openTold(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: timeout})
		require.NoError(t, fleet.Ping(t.Context())[addr])
		testkit.Await(t, maxWait, "twelve answers", func() bool { return answers.Load() >= 12 || len(told) > 0 })
		assert.Empty(t, told)
	})
}

// One late answer to a look does not end the looks at statistics, on which it depends that evictions are
// noticed.
func TestALateAnswerToALook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const timeout = 300 * time.Millisecond
		var asked atomic.Int64
		addr := memcachedtest.Serve(t, func(_ int, conn net.Conn) {
			for lines := bufio.NewReader(conn); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				answer := "END\r\n"
				switch {
				case line == "version\r\n":
					answer = "VERSION 1.6.38\r\n"
				case line == "gets counterd:memory\r\n":
					answer = noMarker
				case strings.HasPrefix(line, "incr "):
					answer = "ERROR\r\n"
				case line == "stats\r\n":
					n := asked.Add(1)
					if n == 3 {
						time.Sleep(2 * timeout)
					}
					answer = fmt.Sprintf("STAT curr_items %d\r\nSTAT evictions 0\r\nEND\r\n", n)
				}
				if _, err := io.WriteString(conn, answer); err != nil {
					return
				}
			}
		})
		fleet, told := openTold(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: timeout})
		require.NoError(t, fleet.Ping(t.Context())[addr])
		testkit.Await(t, maxWait/2, "the statistics of a later look", func() bool { return fleet.Health()[0].Stats.Items > 3 })
		assert.Empty(t, told)
	})
}

// A proxy that hangs up on what it does not know is none the worse for it, nor one that
// refuses to keep the marker.
func TestAProxyWithoutStatistics(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		var asked, looks atomic.Int32
		refuse := func(conn net.Conn, line string) (more bool) {
			switch {
			case line == "stats":
				asked.Add(1)
				return false
			case line == "gets counterd:memory":
				looks.Add(1)
				fmt.Fprint(conn, "END\r\n")
			case strings.HasPrefix(line, "add counterd:memory"):
			case line == "version":
				fmt.Fprint(conn, "VERSION 1.4\r\n")
			case strings.HasPrefix(line, "{"): // the marker itself
				fmt.Fprint(conn, "SERVER_ERROR no\r\n")
			case line == probe:
				fmt.Fprint(conn, "NF Oprb\r\n")
			case line == "mn":
				fmt.Fprint(conn, "MN\r\n")
			case strings.HasPrefix(line, "incr"):
				fmt.Fprint(conn, "7\r\n")
			default:
				fmt.Fprint(conn, sound(line, 7))
			}
			return true
		}
		addr := memcachedtest.Serve(t, func(_ int, conn net.Conn) {
			for lines := bufio.NewScanner(conn); lines.Scan() && refuse(conn, lines.Text()); {
			}
		})
		fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{addr}, Protocol: protocol}, time.Millisecond))
		require.NoError(t, fleet.Ping(t.Context())[addr])
		for range 100 {
			assert.Equal(t, []int64{7}, add(t, fleet, "a", 7, 1))
		}
		testkit.Await(t, maxWait, "ten looks", func() bool { return looks.Load() > 10 })
		assert.Empty(t, told)
		assert.True(t, fleet.Health()[0].Up)
		assert.Positive(t, asked.Load())
		assert.LessOrEqual(t, asked.Load(), int32(2), "it is not asked again and again")
	})
}
