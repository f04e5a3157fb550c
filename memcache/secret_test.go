package memcache_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

var (
	aSecret      = []byte("a secret of thirty-two bytes, so")
	anotherOne   = []byte("a secret of thirty-two bytes, no")
	secretItem   = "counterd:secret"
	otherItem    = "counterd:secret:other"
	betweenLooks = 20 * time.Millisecond
)

// keysOn returns the keys of the counters on a server.
func keysOn(t *testing.T, server *memcachedtest.Server, want int) (keys []string) {
	t.Helper()
	require.Eventually(t, func() bool { // the crawler leaves out what is being moved about
		keys = nil
		for _, line := range server.Ask("lru_crawler metadump all") {
			key, _, _ := strings.Cut(strings.TrimPrefix(line, "key="), " ")
			if !strings.HasPrefix(key, "counterd") {
				keys = append(keys, key)
			}
		}
		return len(keys) == want
	}, maxWait, 20*time.Millisecond)
	return keys
}

// A reader of a server can find the counted features by trying; with a key secret it
// cannot, unless it has the secret.
func TestNobodyFindsOutWhoWasCounted(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		found := func(secret []byte) (n int) {
			server := memcachedtest.Start(t)
			fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, KeySecret: secret})
			guesses := map[string]bool{}
			for i := range 1000 {
				guesses[memcache.Keys(fmt.Sprint("user ", i), []uint64{1})[0]] = true
			}
			for i := range 10 {
				add(t, fleet, fmt.Sprint("user ", i), 1, 1)
			}
			for _, key := range keysOn(t, server, 10) {
				assert.Len(t, key, 28)
				if guesses[key] {
					n++
				}
			}
			if secret == nil {
				return n
			}
			mine, err := memcache.SecretKeys(secret, "user 0", []uint64{1})
			require.NoError(t, err)
			assert.Contains(t, keysOn(t, server, 10), mine[0])
			return n
		}
		assert.Equal(t, 10, found(nil))
		assert.Zero(t, found(aSecret))
	})
}

// A client of the servers can write to the bucket of a counter whose name is known; with a
// secret no bucket has the key that it writes.
func TestNobodyAimsAtABucket(t *testing.T) {
	server := memcachedtest.Start(t)
	aimed := func(secret []byte) int64 {
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, KeySecret: secret})
		add(t, fleet, "a", 1, 1)
		put(t, server, memcache.Keys("a", []uint64{1})[0], "1000")
		return read(t, fleet, "a", 1)[0]
	}
	assert.Equal(t, int64(1000), aimed(nil))
	assert.Equal(t, int64(1), aimed(aSecret))
}

// Features can be chosen so that all their counters are on one server, or share a key's
// beginning; with a secret they lie where they lie.
func TestNobodyChoosesAServer(t *testing.T) {
	servers := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"}
	plain := openConfig(t, memcache.Config{Servers: servers})
	keyed := openConfig(t, memcache.Config{Servers: servers, KeySecret: aSecret})
	const chosen = 1000
	there, n := 0, 0
	for i := 0; n < chosen; i++ {
		counter := fmt.Sprint("feature ", i)
		if plain.Server(counter) != servers[0] {
			continue
		}
		n++
		if keyed.Server(counter) == servers[0] {
			there++
		}
	}
	assert.InDelta(t, chosen/len(servers), there, 100)
}

// With copies as without: what one secret has counted another does not see.
func TestSecretsCountApart(t *testing.T) {
	servers := memcachedtest.StartMany(t, 3)
	for _, replicas := range []int{1, 2} {
		open := func(secret []byte) *memcache.Fleet {
			return openConfig(t, memcache.Config{Servers: servers, Replicas: replicas, KeySecret: secret})
		}
		counter := fmt.Sprint("counter ", replicas)
		mine, same, other, none := open(aSecret), open(aSecret), open(anotherOne), open(nil)
		add(t, mine, counter, 5, 1)
		assert.Equal(t, []int64{5}, read(t, same, counter, 1))
		assert.Equal(t, mine.Servers(counter), same.Servers(counter))
		assert.Equal(t, []int64{0}, read(t, other, counter, 1))
		assert.Equal(t, []int64{0}, read(t, none, counter, 1))
		require.NoError(t, storetest.RollBack(t.Context(), same, counter, 2, []uint64{1}, store.Acknowledged(1)))
		require.NoError(t, storetest.Delete(t.Context(), other, counter, []uint64{1}))
	}
}

func TestKeySecretsAreChecked(t *testing.T) {
	for _, secret := range [][]byte{{}, []byte("fifteen letters")} {
		_, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{"127.0.0.1:1"}, KeySecret: secret})
		require.ErrorContains(t, err, "key secret")
		assert.NotContains(t, err.Error(), "fifteen")
		_, err = memcache.SecretKeys(secret, "a", nil)
		require.ErrorContains(t, err, "key secret")
	}
	// What is written over the secret later changes nothing.
	secret := []byte("sixteen letters!")
	fleet := openConfig(t, memcache.Config{Servers: []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}, KeySecret: secret})
	place := func() (places []string) {
		for i := range 20 {
			places = append(places, fleet.Server(fmt.Sprint(i)))
		}
		return places
	}
	before := place()
	clear(secret)
	assert.Equal(t, before, place())
}

// onlooker is a fleet of one server that it looks at all the time.
type onlooker struct {
	*memcache.Fleet
	told   changes
	looked *atomic.Int64 // how often it has asked for statistics, the end of a look
}

// lookedOn is a connection that counts looks.
type lookedOn struct {
	*net.TCPConn
	looked *atomic.Int64
}

func (c lookedOn) Write(b []byte) (int, error) {
	if string(b) == "stats\r\n" {
		c.looked.Add(1)
	}
	return c.TCPConn.Write(b)
}

func openOnlooker(t *testing.T, server *memcachedtest.Server, protocol memcache.Protocol, secret []byte) onlooker {
	t.Helper()
	o := onlooker{looked: &atomic.Int64{}}
	config := memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, KeySecret: secret}
	o.Fleet, o.told = openTold(t, memcache.Dialed(memcache.Paced(config, betweenLooks), func(ctx context.Context, _ time.Time) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Addr)
		if err != nil {
			return nil, err
		}
		return lookedOn{conn.(*net.TCPConn), o.looked}, nil
	}))
	require.NoError(t, o.Ping(t.Context())[server.Addr])
	return o
}

// looks waits until it has looked once more, from the beginning to the statistics, of which
// those of the look before are known then.
func (o onlooker) looks(t *testing.T) {
	t.Helper()
	looked := o.looked.Load()
	require.Eventually(t, func() bool { return o.looked.Load() >= looked+2 }, maxWait, time.Millisecond)
}

func (o onlooker) sees() bool { return o.Health()[0].OtherSecret }

// A process that uses another secret, or none, is noticed, by itself and by processes that
// were there before it; processes with the same secret are not. It is over when it has
// gone.
func TestAnotherSecretIsNoticed(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		for name, another := range map[string][]byte{"another": anotherOne, "none": nil} {
			t.Run(name, func(t *testing.T) {
				server := memcachedtest.Start(t)
				mine := openOnlooker(t, server, protocol, aSecret)
				mine.looks(t)
				same := openOnlooker(t, server, protocol, aSecret)
				first := server.Ask("get " + secretItem)
				require.Len(t, first, 2)
				mine.looks(t)
				same.looks(t)
				assert.Empty(t, mine.told)
				assert.Empty(t, same.told)
				assert.Empty(t, server.Ask("get "+otherItem), "there is nothing to tell of")

				apart := openOnlooker(t, server, protocol, another)
				for _, o := range []onlooker{apart, mine, same} {
					o.told.await(t, "other_secret "+server.Addr)
					assert.True(t, o.sees())
				}
				for _, item := range []string{secretItem, otherItem} {
					assert.Regexp(t, `^HD t([1-5]?\d|60)$`, server.Ask("mg " + item + " t")[0], "it ends if no process keeps it")
				}
				mine.looks(t)
				apart.looks(t)
				assert.Equal(t, first, server.Ask("get "+secretItem), "the first one's is kept")
				assert.Empty(t, mine.told, "it is told once")
				assert.Empty(t, apart.told)

				require.NoError(t, apart.Close())
				server.Ask("delete " + otherItem) // as if a minute had passed
				mine.looks(t)
				same.looks(t)
				assert.False(t, mine.sees())
				assert.False(t, same.sees())
			})
		}
	})
}

// Of three secrets each sees that there are others; when one goes, the remaining two do
// too. Processes without a secret leave no item.
func TestTheSecretsThatAreLeft(t *testing.T) {
	server := memcachedtest.Start(t)
	open := func(secret []byte) onlooker { return openOnlooker(t, server, memcache.Auto, secret) }
	gone := func(o onlooker) {
		require.NoError(t, o.Close())
		server.Ask("delete " + secretItem) // as if a minute had passed
		server.Ask("delete " + otherItem)
	}
	none := open(nil)
	none.looks(t)
	assert.Empty(t, append(server.Ask("get "+secretItem), server.Ask("get "+otherItem)...))
	mine := open(aSecret)
	mine.looks(t)
	apart := open(anotherOne)
	all := []onlooker{none, mine, apart}
	for _, o := range all {
		o.told.await(t, "other_secret "+server.Addr)
	}
	for range 5 { // those with others write over what they say of each other
		for _, o := range all {
			o.looks(t)
			assert.True(t, o.sees())
		}
	}
	for _, o := range all {
		assert.Empty(t, o.told)
	}
	gone(mine)
	require.Eventually(t, func() bool { return len(server.Ask("get "+otherItem)) == 2 }, maxWait, time.Millisecond)
	apart.looks(t)
	assert.True(t, none.sees())
	assert.True(t, apart.sees())
	gone(apart)
	none.looks(t)
	assert.False(t, none.sees())
	assert.Empty(t, append(server.Ask("get "+secretItem), server.Ask("get "+otherItem)...))
}

// A process that had another secret and takes the first one does not see itself in the item
// that it left.
func TestNobodyIsAnotherToItself(t *testing.T) {
	server := memcachedtest.Start(t)
	mine := openOnlooker(t, server, memcache.Auto, aSecret)
	mine.looks(t)
	apart := openOnlooker(t, server, memcache.Auto, anotherOne)
	mine.told.await(t, "other_secret "+server.Addr)
	said := server.Ask("get " + otherItem)
	require.Len(t, said, 2)
	require.NoError(t, mine.Close())
	server.Ask("delete " + secretItem) // as if a minute had passed
	apart.looks(t)
	apart.looks(t)
	assert.Equal(t, said[1], server.Ask("get " + secretItem)[1])
	assert.Equal(t, said, server.Ask("get "+otherItem))
	assert.False(t, apart.sees())
}

// Other programs' data in the items' place, or a server that refuses, is of no matter.
func TestSecretItemsThatCannotBe(t *testing.T) {
	server := memcachedtest.Start(t)
	for _, item := range []string{secretItem, otherItem} {
		for _, text := range []string{"", "nonsense", strings.Repeat("0", 17), strings.Repeat("x", 16), strings.Repeat("0", 5000)} {
			put(t, server, item, text)
			fleet := openOnlooker(t, server, memcache.Auto, aSecret)
			fleet.looks(t)
			require.Positive(t, fleet.Health()[0].Stats.MaxBytes, "the statistics are still read")
			assert.Empty(t, fleet.told)
			add(t, fleet.Fleet, "a", 1, 1)
			require.NoError(t, fleet.Close())
		}
		server.Ask("delete " + item)
	}
	server.Ask("delete " + secretItem)
	for _, item := range []string{otherItem, secretItem} {
		put(t, server, item, strings.Repeat("0", 16))
		fleet := openOnlooker(t, server, memcache.Auto, aSecret)
		fleet.told.await(t, "other_secret "+server.Addr)
		assert.Equal(t, strings.Repeat("0", 16), server.Ask("get " + item)[1], "a process keeps it")
		require.NoError(t, fleet.Close())
	}
}
