package clocks_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/replica/clocks"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/simulate"
)

const skew = 500 * time.Millisecond

// server is a Memcached server in memory, as far as Exchange needs one.
type server struct {
	mu    sync.Mutex
	items map[string]item
}

type item struct {
	value   string
	expires time.Time
}

// conn is a connection to the server. Each command, and its answer, is under way for as long as late
// returns.
type conn struct {
	server  *server
	late    func() time.Duration
	answers bytes.Buffer
}

func (c *conn) Read(p []byte) (int, error) { return c.answers.Read(p) }

func (c *conn) Write(p []byte) (int, error) {
	time.Sleep(c.late())
	c.server.mu.Lock()
	lines := bufio.NewScanner(bytes.NewReader(p))
	for lines.Scan() {
		c.server.take(strings.Fields(lines.Text()), lines, &c.answers)
	}
	c.server.mu.Unlock()
	time.Sleep(c.late())
	return len(p), nil
}

func (s *server) take(words []string, lines *bufio.Scanner, answer io.Writer) {
	get := func(key string) (string, bool) {
		i, found := s.items[key]
		return i.value, found && time.Now().Before(i.expires)
	}
	value, found := get(words[1])
	switch words[0] {
	case "incr":
		if !found {
			fmt.Fprint(answer, "NOT_FOUND\r\n")
			return
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			fmt.Fprint(answer, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
			return
		}
		s.items[words[1]] = item{strconv.FormatUint(n+1, 10), s.items[words[1]].expires}
		fmt.Fprintf(answer, "%d\r\n", n+1)
	case "add", "set":
		lines.Scan()
		if words[0] == "add" && found {
			fmt.Fprint(answer, "NOT_STORED\r\n")
			return
		}
		seconds, _ := strconv.Atoi(words[3])
		if seconds == 0 {
			seconds = 1 << 30
		}
		s.items[words[1]] = item{lines.Text(), time.Now().Add(time.Duration(seconds) * time.Second)}
		fmt.Fprint(answer, "STORED\r\n")
	case "get":
		for _, key := range words[1:] {
			if value, found := get(key); found {
				fmt.Fprintf(answer, "VALUE %s 0 %d\r\n%s\r\n", key, len(value), value)
			}
		}
		fmt.Fprint(answer, "END\r\n")
	}
}

// process is a process whose wall clock is off by so much.
type process struct {
	*clocks.Clocks
	off     time.Duration
	changes []bool
}

func newProcess(off time.Duration) *process {
	p := &process{off: off}
	p.Clocks = clocks.New(func() time.Time { return time.Now().Add(p.off) }, skew, func(_ time.Duration, wrong bool) { p.changes = append(p.changes, wrong) })
	return p
}

// fleet is some processes on one server.
type fleet struct {
	*testing.T
	rng       *rand.Rand
	server    *server
	processes []*process
	latest    time.Duration // longest time for which a command or an answer is under way
}

// run has the processes look at the server for so long, every five seconds or so.
func (f *fleet) run(lasts time.Duration) {
	var running sync.WaitGroup
	for _, p := range f.processes {
		rng := rand.New(rand.NewPCG(f.rng.Uint64(), 0))
		running.Go(func() {
			late := func() time.Duration { return time.Duration(rng.Int64N(int64(f.latest))) }
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				time.Sleep(time.Duration((3.75 + 2.5*rng.Float64()) * float64(time.Second)))
				_, err := p.Exchange(&conn{server: f.server, late: late})
				assert.NoError(f, err)
			}
		})
	}
	running.Wait()
}

// simulateFleet runs a test on fleets with clocks that are off by so much.
func simulateFleet(t *testing.T, offs []time.Duration, test func(f *fleet)) {
	for seed := range simulate.Seeds(200) / uint64(1+len(offs)/20) {
		bubble.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			f := &fleet{T: t, rng: rng, server: &server{items: map[string]item{}}, latest: []time.Duration{time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}[rng.IntN(3)]}
			for _, off := range offs {
				f.processes = append(f.processes, newProcess(off))
			}
			test(f)
		})
	}
}

func TestTheProcessWithTheWrongClockSaysSo(t *testing.T) {
	for name, test := range map[string]struct{ offs, says []time.Duration }{
		"ahead":                      {[]time.Duration{0, 5 * time.Second, 0}, []time.Duration{0, 5 * time.Second, 0}},
		"behind":                     {[]time.Duration{0, 0, -5 * time.Second}, []time.Duration{0, 0, -5 * time.Second}},
		"either of two":              {[]time.Duration{0, 5 * time.Second}, []time.Duration{-5 * time.Second, 5 * time.Second}},
		"both of four":               {[]time.Duration{0, -time.Hour, 0, -time.Hour}, []time.Duration{time.Hour, -time.Hour, time.Hour, -time.Hour}},
		"one of many":                {append(make([]time.Duration, 90), 20*time.Second), append(make([]time.Duration, 90), 20*time.Second)},
		"two of five, one each way":  {[]time.Duration{-8 * time.Second, 0, 0, 0, 8 * time.Second}, []time.Duration{-8 * time.Second, 0, 0, 0, 8 * time.Second}},
		"all within what is allowed": {[]time.Duration{-skew / 2, skew / 2, 0}, make([]time.Duration, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			simulateFleet(t, test.offs, func(f *fleet) {
				f.run(time.Minute)
				for i, p := range f.processes {
					ahead, known := p.Ahead()
					assert.True(t, known)
					assert.Equal(t, test.says[i] != 0, p.Wrong(), "process %d: %s", i, ahead)
					if p.Wrong() {
						assert.Equal(t, []bool{true}, p.changes, "it says so once")
						assert.Equal(t, test.says[i] > 0, ahead > 0, "the right way: %s", ahead)
					} else {
						assert.Empty(t, p.changes)
					}
					least := f.processes[0].off - p.off
					for _, other := range f.processes {
						least = max(least, (p.off - other.off).Abs())
					}
					assert.LessOrEqual(t, ahead.Abs(), least, "at the least")
				}
			})
		})
	}
}

func TestOneProcessSaysNothing(t *testing.T) {
	simulateFleet(t, []time.Duration{time.Hour}, func(f *fleet) {
		f.run(time.Minute)
		ahead, known := f.processes[0].Ahead()
		assert.False(t, known)
		assert.Zero(t, ahead)
		assert.False(t, f.processes[0].Wrong())
		assert.Len(t, f.server.items, 1, "nor does it leave notes")
	})
}

func TestProcessesThatEndedAreForgotten(t *testing.T) {
	simulateFleet(t, []time.Duration{time.Hour, time.Hour, 0}, func(f *fleet) {
		f.run(30 * time.Second)
		require.True(t, f.processes[2].Wrong())
		f.processes = f.processes[2:]
		f.run(time.Minute)
		_, known := f.processes[0].Ahead()
		assert.False(t, known)
		assert.Equal(t, []bool{true, false}, f.processes[0].changes)
	})
}

// A clock that is set is compared as it is now, and what others know of it from before is of no use.
func TestClocksAreSet(t *testing.T) {
	simulateFleet(t, make([]time.Duration, 3), func(f *fleet) {
		f.run(30 * time.Second)
		f.processes[1].off = 5 * time.Second
		f.run(time.Minute)
		f.processes[1].off = -5 * time.Second
		f.run(time.Minute)
		require.True(t, f.processes[1].Wrong())
		f.processes[1].off = 0
		f.run(time.Minute)
		for i, p := range f.processes {
			assert.False(t, p.Wrong(), "process %d", i)
			assert.Equal(t, i != 1, len(p.changes) == 0, "process %d: %v", i, p.changes)
		}
	})
}

func TestAClockThatIsSetRightIsComparedAnew(t *testing.T) {
	simulateFleet(t, []time.Duration{0, time.Hour}, func(f *fleet) {
		f.run(time.Minute)
		f.processes[1].off = 0
		f.run(40 * time.Second)
		for _, p := range f.processes {
			assert.Equal(t, []bool{true, false}, p.changes)
		}
	})
}

// A server that comes back empty counts anew: ticks of the two counts have no order.
func TestTheServerBeginsAnew(t *testing.T) {
	simulateFleet(t, make([]time.Duration, 3), func(f *fleet) {
		for range 5 {
			f.run(15 * time.Second)
			f.server.mu.Lock()
			clear(f.server.items)
			f.server.mu.Unlock()
		}
		for _, p := range f.processes {
			assert.Empty(t, p.changes)
		}
	})
}

// What another client has put in the place of notes is none, and what it put in the place of the count is replaced.
func TestForeignItems(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &server{items: map[string]item{}}
		s.items["counterd:clocks"] = item{"hello", time.Now().Add(time.Hour)}
		now := time.Now().UnixNano()
		long := int64(math.MaxInt64)
		for i, text := range []string{
			"1 2 3 4", "-1 2 3 4 5", "hello", "", fmt.Sprintf("1 4 4 %d %d", -long, long), fmt.Sprintf("1 5 5 %d %d", now, now-1),
			fmt.Sprintf("1 6 6 %d %d", now, long), fmt.Sprintf("1 9 7 %d %d", now, now), fmt.Sprintf("1 9 9 %d %d", now, now),
		} {
			s.items[fmt.Sprintf("counterd:clock:%d", i)] = item{text, time.Now().Add(time.Hour)}
		}
		p, other := newProcess(0), newProcess(0)
		for range 10 {
			for _, p := range []*process{p, other} {
				items, err := p.Exchange(&conn{server: s, late: func() time.Duration { return 0 }})
				require.NoError(t, err)
				assert.Positive(t, items)
				assert.LessOrEqual(t, items, 24, "the notes of both, and the count")
			}
			time.Sleep(5 * time.Second)
		}
		ahead, known := p.Ahead()
		assert.True(t, known, "there are notes of the other one")
		assert.Zero(t, ahead)
		assert.Empty(t, p.changes)
	})
}

func TestOnMemcached(t *testing.T) {
	conn, err := net.Dial("tcp", memcachedtest.Start(t).Addr)
	require.NoError(t, err)
	defer conn.Close()
	for i := range 70 { // more than there are slots
		items, err := newProcess(0).Exchange(conn)
		require.NoError(t, err)
		assert.Equal(t, min(i+1, 65), items) // the first one begins the count
	}
}
