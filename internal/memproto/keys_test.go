package memproto

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func randomHash(random *rand.Rand) (h store.Hash) {
	for i := range h {
		h[i] = byte(random.Uint32())
	}
	return h
}

func TestOtherKeysAreNotParsed(t *testing.T) {
	key := keyOf(store.Hash{1, 2, 3}, store.Item(3, 12345))
	for _, other := range []string{"", markerKey, absentKey, "session:4711", key[1:], key + "0", strings.Repeat("k", 250)} {
		_, _, ok := parseKey([]byte(other))
		assert.False(t, ok, "%q", other)
	}
	for i := range key {
		letters := 0
		for letter := range 256 {
			changed := []byte(key)
			changed[i] = byte(letter)
			h, item, ok := parseKey(changed)
			if !ok {
				continue
			}
			letters++
			require.Equal(t, string(changed), keyOf(h, item), "a key is made of one hash and item only")
		}
		assert.Equal(t, map[bool]int{true: 64, false: 32}[i < hashLetters], letters, "letters that can be at place %d", i)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(keyOf(store.Hash{1}, store.Item(31, 1))))
	f.Add([]byte("AAAAAAAAAAAAAAAAAA\r\n00000000"))
	f.Fuzz(func(t *testing.T, key []byte) {
		if h, item, ok := parseKey(key); ok {
			require.Equal(t, string(key), keyOf(h, item))
		}
	})
}

// pipeConn takes deadlines as a TCP connection does: also when the other side has hung up.
type pipeConn struct{ net.Conn }

func (c pipeConn) SetDeadline(deadline time.Time) error {
	if err := c.Conn.SetDeadline(deadline); !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return nil
}

func connect() (ours, theirs net.Conn) {
	ours, theirs = net.Pipe()
	return pipeConn{ours}, theirs
}

// lister answers each line that it reads, and hangs up where it has no answer.
type lister map[string]string

func (answers lister) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer, ok := answers[lines.Text()]
		if !ok {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

const (
	hashWalk = "lru_crawler metadump hash"
	allWalk  = "lru_crawler metadump all"
)

// list returns what is listed by the fake server.
func (answers lister) list(t *testing.T) (all []Listed, err error) {
	ours, theirs := connect()
	var serving sync.WaitGroup
	serving.Go(func() { answers.serve(theirs) })
	err = ListKeys(t.Context(), ours, time.Minute, func(l Listed) error {
		all = append(all, l)
		return nil
	})
	require.NoError(t, ours.Close())
	serving.Wait()
	return all, err
}

func keyLine(l Listed) string {
	return fmt.Sprintf("key=%s exp=%d la=1760000000 cas=7 fetch=no cls=1 size=96\n", keyOf(l.Hash, l.Item), l.Expires)
}

func TestAnswersToAListOfKeys(t *testing.T) {
	first := Listed{store.Hash{1}, store.Item(2, 5), 1760000100}
	second := Listed{store.Hash{2}, store.Item(31, 6), 1760000200}
	keys := keyLine(first) + "key=session%3A4711 exp=-1 la=1 cas=1 fetch=yes cls=1 size=70\n" +
		"key=" + markerKey + " exp=-1 la=1 cas=1 fetch=yes cls=1 size=70\n" + keyLine(second)
	const (
		end      = "END\r\n"
		badClass = "BADCLASS invalid class id\r\n"
		disabled = "CLIENT_ERROR lru crawler disabled\r\n"
		denied   = "ERROR metadump not allowed\r\n"
		busy     = "BUSY currently processing crawler request\r\n"
		locked   = "ERROR locked try again later\r\n"
		version  = "VERSION 1.6.18\r\n"
	)
	for name, test := range map[string]struct {
		answers lister
		listed  int
		want    error // nil: none
		not     error
	}{
		"keys":                          {lister{hashWalk: keys + end, "version": version}, 2, nil, nil},
		"none":                          {lister{hashWalk: end, "version": version}, 0, nil, nil},
		"since 1.6.43":                  {lister{hashWalk: "OK\r\n" + strings.ReplaceAll(keys, "\n", " flags=3085 \n") + end, "version": version}, 2, nil, nil},
		"before 1.6.9":                  {lister{hashWalk: badClass, allWalk: keys + end, "version": version}, 2, ErrKeysMissed, ErrNoKeys},
		"before 1.6.9, busy":            {lister{hashWalk: badClass, allWalk: busy}, 0, ErrKeysBusy, ErrNoKeys},
		"before 1.6.9, hangs up on all": {lister{hashWalk: badClass}, 0, ErrNoKeys, nil},
		"unknown command":               {lister{hashWalk: "ERROR\r\n", allWalk: "ERROR\r\n"}, 0, ErrNoKeys, nil},
		"disabled":                      {lister{hashWalk: disabled, allWalk: disabled}, 0, ErrNoKeys, nil},
		"denied":                        {lister{hashWalk: denied, allWalk: denied}, 0, ErrNoKeys, nil},
		"hangs up":                      {lister{}, 0, ErrNoKeys, nil},
		"busy":                          {lister{hashWalk: busy, allWalk: keys + end, "version": version}, 0, ErrKeysBusy, ErrNoKeys},
		"hash table grows":              {lister{hashWalk: locked}, 0, ErrKeysBusy, ErrNoKeys},
		"hash table grows, 1.6.43":      {lister{hashWalk: "OK\r\n" + locked}, 0, ErrKeysBusy, ErrNoKeys},
		"out of memory":                 {lister{hashWalk: "SERVER_ERROR out of memory\r\n"}, 0, refusal("SERVER_ERROR out of memory"), ErrNoKeys},
		"error after keys":              {lister{hashWalk: keys + "ERROR\r\n", allWalk: keys + end}, 2, refusal("ERROR"), ErrNoKeys},
		"no login":                      {lister{hashWalk: unauthenticated + "\r\n"}, 0, errNoCredentials, ErrNoKeys},
		"no end":                        {lister{hashWalk: keys + "\r\n"}, 2, errNonsense, ErrNoKeys},
		"end over keys":                 {lister{hashWalk: end + "3a exp=-1 la=1\n" + keys, "version": version}, 0, errNonsense, nil},
		"end over whole lines":          {lister{hashWalk: end + keys + end, "version": version}, 0, errNonsense, nil},
		"hangs up at the end":           {lister{hashWalk: end}, 0, io.EOF, ErrNoKeys},
		"no version":                    {lister{hashWalk: keys + version}, 2, errNonsense, nil},
		"other lines":                   {lister{hashWalk: keys + "VALUE k 0 1\r\n"}, 2, errNonsense, nil},
		"long line":                     {lister{hashWalk: "key=" + strings.Repeat("k", 1<<17)}, 0, errNonsense, nil},
		"no expiry":                     {lister{hashWalk: "key=" + keyOf(first.Hash, first.Item) + " la=1\n" + end}, 0, errNonsense, nil},
		"wrong expiry":                  {lister{hashWalk: keyLine(Listed{Expires: -2}) + end}, 0, errNonsense, nil},
	} {
		bubble.Test(t, func(t *testing.T) {
			all, err := test.answers.list(t)
			assert.Equal(t, []Listed{first, second}[:test.listed], append([]Listed{}, all...), name)
			require.ErrorIs(t, err, test.want, name)
			if test.not != nil {
				require.NotErrorIs(t, err, test.not, name)
			}
			if err != nil {
				assert.NotContains(t, err.Error(), keyOf(first.Hash, first.Item), name)
			}
		})
	}
}

func TestAListOfKeysIsCutShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		whole := keyLine(Listed{Hash: store.Hash{1}}) + keyLine(Listed{Hash: store.Hash{2}}) + "END\r\n"
		for n := 1; n <= len(whole); n++ {
			ours, theirs := connect()
			var serving sync.WaitGroup
			serving.Go(func() {
				defer theirs.Close()
				_, _ = bufio.NewReader(theirs).ReadString('\n')
				_, _ = io.WriteString(theirs, whole[:n])
			})
			err := ListKeys(t.Context(), ours, time.Minute, func(Listed) error { return nil })
			require.Error(t, err, "%d bytes", n)
			require.NotErrorIs(t, err, ErrNoKeys, "%d bytes", n)
			require.True(t, IsOutage(err), "%d bytes: %v", n, err)
			require.NoError(t, ours.Close())
			serving.Wait()
		}
	})
}

func TestAnErrorEndsAListOfKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		failed, calls := errors.New("failed"), 0
		ours, theirs := connect()
		var serving sync.WaitGroup
		serving.Go(func() { lister{hashWalk: strings.Repeat(keyLine(Listed{}), 3) + "END\r\n"}.serve(theirs) })
		err := ListKeys(t.Context(), ours, time.Minute, func(Listed) error {
			calls++
			return failed
		})
		require.Equal(t, failed, err)
		assert.Equal(t, 1, calls)
		require.NoError(t, ours.Close())
		serving.Wait()
	})
}

// slowList lists, on a fake clock, from a server that sends a key after each pause, n times, and
// then nothing. It returns how long that took.
func slowList(ctx context.Context, t *testing.T, pause, idle time.Duration, n int, yield func(Listed) error) (took time.Duration, err error) {
	ours, theirs := connect()
	var serving sync.WaitGroup
	serving.Go(func() {
		defer theirs.Close()
		commands := bufio.NewReader(theirs)
		_, _ = commands.ReadString('\n')
		for range n {
			time.Sleep(pause)
			_, _ = io.WriteString(theirs, keyLine(Listed{}))
		}
		_, _ = commands.ReadString('\n')
	})
	start := time.Now()
	err = ListKeys(ctx, ours, idle, yield)
	took = time.Since(start)
	require.NoError(t, ours.Close())
	serving.Wait()
	return took, err
}

func TestAServerStopsListing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		took, err := slowList(t.Context(), t, 9*time.Second, 10*time.Second, 20, func(Listed) error { return nil })
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 190*time.Second, took, "of fake time: the last key, and idle")
	})
}

func TestTheContextEndsAListOfKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 1, 9 * time.Second, 30 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			took, err := slowList(ctx, t, 9*time.Second, time.Minute, 3, func(Listed) error { return nil })
			require.ErrorIs(t, err, context.DeadlineExceeded, "%v", after)
			assert.Equal(t, after, took, "of fake time")
			cancel()
		}
	})
}

// listReal lists the keys of a real server, again while it is busy with work of its own.
func listReal(t *testing.T, server *memcachedtest.Server, yield func(Listed) error) (err error) {
	testkit.Await(t, time.Minute, "a list of keys", func() bool {
		conn, fault := net.Dial("tcp", server.Addr)
		require.NoError(t, fault)
		err = ListKeys(t.Context(), conn, time.Minute, yield)
		require.NoError(t, conn.Close())
		return !errors.Is(err, ErrKeysBusy)
	})
	return err
}

// run sends commands that are each answered by one line. It may run beside the test.
func run(t *testing.T, addr string, commands ...string) {
	conn, err := net.Dial("tcp", addr)
	if !assert.NoError(t, err) {
		return
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for batch := range slices.Chunk(commands, 100) {
		_, err := io.WriteString(conn, strings.Join(batch, ""))
		for range batch {
			if err == nil {
				_, err = answers.ReadString('\n')
			}
		}
		if !assert.NoError(t, err) {
			return
		}
	}
}

// fill writes n counts, and as many items of others, and returns the commands that read and write
// these again.
func fill(t *testing.T, server *memcachedtest.Server, n int) (there map[Listed]int, again []string) {
	random, writes := rand.New(rand.NewPCG(3, 4)), []string(nil)
	there = map[Listed]int{}
	for i := range n {
		l := Listed{Hash: randomHash(random), Item: store.Item(uint8(i%32), int64(i))}
		expiry := 0
		if i%2 == 0 {
			expiry = 3600
			l.Expires = 1
		}
		there[l] = 0
		key := keyOf(l.Hash, l.Item)
		writes = append(writes, fmt.Sprintf("set %s 0 %d 1\r\n1\r\n", key, expiry), fmt.Sprintf("set other:%d 0 0 1\r\n1\r\n", i))
		again = append(again, "incr "+key+" 7\r\n", "mg "+key+" t\r\n", fmt.Sprintf("incr other:%d 1\r\n", i))
	}
	run(t, server.Addr, writes...)
	return there, again
}

// All that is there all the time is listed once, though it is read and written meanwhile, and
// other items come and go.
func TestARealServerListsItsKeys(t *testing.T) {
	server := memcachedtest.Start(t, "-m", "128")
	there, again := fill(t, server, 10_000)
	var done atomic.Bool
	var using sync.WaitGroup
	defer using.Wait()
	defer done.Store(true)
	using.Go(func() {
		for !done.Load() {
			run(t, server.Addr, again...)
		}
	})
	using.Go(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for !done.Load() {
			key := keyOf(randomHash(random), 1)
			run(t, server.Addr, "set "+key+" 0 60 1\r\n1\r\n", "md "+key+"\r\n")
		}
	})
	for range 5 {
		require.NoError(t, listReal(t, server, func(l Listed) error {
			if l.Expires > 0 {
				left := time.Until(time.Unix(l.Expires, 0))
				assert.Positive(t, left)
				assert.Less(t, left, time.Hour+5*time.Second, "Memcached's clock is not exact")
				l.Expires = 1
			}
			if _, ok := there[l]; ok {
				there[l]++
			}
			return nil
		}))
	}
	for l, n := range there {
		require.Equal(t, 5, n, "%v", l)
	}
}

func TestARealServerHasNoKeys(t *testing.T) {
	none := func(Listed) error { return errors.New("listed") }
	require.NoError(t, listReal(t, memcachedtest.Start(t), none))
	require.ErrorIs(t, listReal(t, memcachedtest.Start(t, "-X"), none), ErrNoKeys)
	require.ErrorIs(t, listReal(t, memcachedtest.Start(t, "-o", "no_lru_crawler"), none), ErrNoKeys)
}
