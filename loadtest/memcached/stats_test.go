package memcached

import (
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What Memcached says it did is what was asked of it, to the byte, and asking is no
// part of it.
func TestStatsOfARealServer(t *testing.T) {
	server := memcachedtest.Start(t)
	read := func() Stats {
		s, err := Read(server.Addr)
		require.NoError(t, err)
		return s
	}
	before := read()
	// What has been answered last may not be in the figures yet.
	for range 5 {
		testkit.Await(t, 30*time.Second, "an idle server", func() bool {
			after := read()
			idle := after.Minus(before)
			idle.CPU, before = 0, after
			return idle == Stats{}
		})
	}

	client := gomemcache.New(server.Addr)
	defer client.Close()
	require.NoError(t, client.Add(&gomemcache.Item{Key: "k", Value: []byte("1")}))
	for range 3 {
		_, err := client.Increment("k", 1)
		require.NoError(t, err)
	}
	_, err := client.GetMulti([]string{"k", "l"})
	require.NoError(t, err)
	sent := len("add k 0 0 1\r\n1\r\n") + 3*len("incr k 1\r\n") + len("gets k l\r\n")
	answered := len("STORED\r\n") + 3*len("2\r\n") + len("VALUE k 0 1 9\r\n4\r\nEND\r\n")
	var took Stats
	testkit.Await(t, 30*time.Second, "what the trips took", func() bool {
		after := read()
		took, before = took.plus(after.Minus(before)), after
		return took == Stats{Bytes: int64(sent + answered), Gets: 2, Adds: 4, Items: 1}
	})
}

func (s Stats) plus(t Stats) Stats {
	return Stats{Bytes: s.Bytes + t.Bytes, Gets: s.Gets + t.Gets, Adds: s.Adds + t.Adds, Items: s.Items + t.Items}
}
