package memcache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/memcache/memcachedtest"
)

var (
	aSecret      = []byte("a secret of thirty-two bytes, so")
	anotherOne   = []byte("a secret of thirty-two bytes, no")
	secretItem   = "counterd:secret"
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
	}, patience, 20*time.Millisecond)
	return keys
}

// Who reads a server and knows, or guesses, who might have been counted finds out who
// was; with a secret nobody does who does not have it.
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

// Who shares the servers can write to the bucket of a counter whose name is known; with a
// secret what is written is nobody's bucket.
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
		require.NoError(t, same.TakeBack(t.Context(), counter, 2, []uint64{1}, 1))
		require.NoError(t, other.Delete(t.Context(), counter, []uint64{1}))
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

// A process that uses another secret is noticed at the start, and not those with the
// same; a rolling change ends by itself when the last one has gone.
func TestAnotherSecretIsNoticed(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		open := func(secret []byte) (*memcache.Fleet, changes) {
			fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, KeySecret: secret}, betweenLooks))
			require.NoError(t, fleet.Ping(t.Context())[server.Addr])
			return fleet, told
		}
		_, none := open(nil)
		assert.Empty(t, server.Ask("get "+secretItem), "who has no secret leaves no item")
		mine, told := open(aSecret)
		same, alsoTold := open(aSecret)
		first := server.Ask("get " + secretItem)
		require.Len(t, first, 2)
		none.await(t, "other_secret "+server.Addr)
		apart, other := open(anotherOne)
		other.await(t, "other_secret "+server.Addr)
		assert.True(t, apart.Health()[0].OtherSecret)
		assert.False(t, mine.Health()[0].OtherSecret)
		assert.Regexp(t, `^HD t(59|60)$`, server.Ask("mg " + secretItem + " t")[0], "it ends if nobody keeps it")
		assert.Equal(t, first, server.Ask("get "+secretItem), "the first one's is kept")

		require.NoError(t, mine.Close())
		require.NoError(t, same.Close())
		assert.Empty(t, told)
		assert.Empty(t, alsoTold)
		server.Ask("delete " + secretItem) // as if a minute had passed
		var next []string
		require.Eventually(t, func() bool { next = server.Ask("get " + secretItem); return len(next) == 2 }, patience, time.Millisecond)
		assert.NotEqual(t, first, next)
		none.await(t, "other_secret "+server.Addr)
	})
}

// What somebody else puts in the item's place, or a server that refuses, is of no matter.
func TestSecretItemsThatCannotBe(t *testing.T) {
	server := memcachedtest.Start(t)
	for _, text := range []string{"", "nonsense", strings.Repeat("0", 17), strings.Repeat("x", 16), strings.Repeat("0", 5000)} {
		put(t, server, secretItem, text)
		fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, KeySecret: aSecret}, betweenLooks))
		require.NoError(t, fleet.Ping(t.Context())[server.Addr])
		require.Eventually(t, func() bool { return fleet.Health()[0].Stats.MaxBytes > 0 }, patience, time.Millisecond, "the statistics are still read")
		assert.Empty(t, told)
		add(t, fleet, "a", 1, 1)
	}
	put(t, server, secretItem, strings.Repeat("0", 16))
	fleet, told := openTold(t, memcache.Paced(memcache.Config{Servers: []string{server.Addr}, KeySecret: aSecret}, betweenLooks))
	require.NoError(t, fleet.Ping(t.Context())[server.Addr])
	told.await(t, "other_secret "+server.Addr)
	assert.Equal(t, strings.Repeat("0", 16), server.Ask("get " + secretItem)[1], "somebody keeps it")
}
