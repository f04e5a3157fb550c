package memcache_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

var (
	aSecret      = []byte("a secret of thirty-two bytes, so")
	anotherOne   = []byte("a secret of thirty-two bytes, no")
	secretItem   = "counterd:secret"
	otherItem    = "counterd:secret:other"
	betweenLooks = 300 * time.Millisecond
)

// keysOn returns the keys of the counters on a server.
func keysOn(t *testing.T, server *memcachedtest.Memory, want int) (keys []string) {
	t.Helper()
	for _, line := range server.Ask("lru_crawler metadump all") {
		key, _, _ := strings.Cut(strings.TrimPrefix(line, "key="), " ")
		if !strings.HasPrefix(key, "counterd") {
			keys = append(keys, key)
		}
	}
	require.Len(t, keys, want)
	return keys
}

// setText writes an item, as another client of the server does.
func setText(server *memcachedtest.Memory, key, text string) {
	server.Ask(fmt.Sprintf("set %s 0 0 %d\r\n%s", key, len(text), text))
}

// A reader of a server can find the counted features by trying; with a key secret it
// cannot, unless it has the secret.
func TestNobodyFindsOutWhoWasCounted(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		found := func(secret []byte) (n int) {
			server := memcachedtest.StartMemory(t)
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
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		aimed := func(secret []byte) int64 {
			fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, KeySecret: secret})
			add(t, fleet, "a", 1, 1)
			setText(server, memcache.Keys("a", []uint64{1})[0], "1000")
			return read(t, fleet, "a", 1)[0]
		}
		assert.Equal(t, int64(1000), aimed(nil))
		assert.Equal(t, int64(1), aimed(aSecret))
	})
}

// Features can be chosen so that all their counters are on one server, or share a key's
// beginning; with a secret they lie where they lie.
func TestNobodyChoosesAServer(t *testing.T) {
	servers := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"}
	plain := openUnwatched(t, memcache.Config{Servers: servers})
	keyed := openUnwatched(t, memcache.Config{Servers: servers, KeySecret: aSecret})
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
	fleet := openUnwatched(t, memcache.Config{Servers: []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}, KeySecret: secret})
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
	server *memcachedtest.Memory
}

func openOnlooker(t *testing.T, server *memcachedtest.Memory, protocol memcache.Protocol, secret []byte) onlooker {
	t.Helper()
	o := onlooker{server: server}
	config := memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, KeySecret: secret}
	o.Fleet, o.told = openTold(t, memcache.Paced(config, betweenLooks))
	require.NoError(t, o.Ping(t.Context())[server.Addr])
	return o
}

// looks waits until all have looked at all of the server: they look every betweenLooks, at all of it in each second look.
func (o onlooker) looks(*testing.T) { time.Sleep(5 * betweenLooks) }

func (o onlooker) sees() bool { return o.Health()[0].OtherSecret }

// A process that uses another secret, or none, is noticed, by itself and by processes that
// were there before it; processes with the same secret are not. It is over when it has
// gone.
func TestAnotherSecretIsNoticed(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		for name, another := range map[string][]byte{"another": anotherOne, "none": nil} {
			inBubble(t, name, func(t *testing.T) {
				server := memcachedtest.StartMemory(t)
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

// The process with another secret is named by its host, as far as it can be one's name.
func TestTheHostOfAnotherSecret(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		mine := openOnlooker(t, server, memcache.Auto, aSecret)
		mine.looks(t)
		own, err := os.Hostname()
		require.NoError(t, err)
		_, host, _ := strings.Cut(server.Ask("get " + secretItem)[1], " ")
		assert.Equal(t, own, host)
		for host, want := range map[string]string{
			"web-7f9c.shop": "web-7f9c.shop", "": "", "a b": "", "<b>": "", strings.Repeat("a", 254): "",
		} {
			setText(server, otherItem, strings.Repeat("0", 16)+" "+host)
			mine.looks(t)
			assert.True(t, mine.sees(), host)
			assert.Equal(t, want, mine.Health()[0].OtherHost, host)
			setText(server, secretItem, strings.Repeat("0", 16)+" "+host)
			server.Ask("delete " + otherItem)
			mine.looks(t)
			assert.True(t, mine.sees(), host)
			assert.Equal(t, want, mine.Health()[0].OtherHost, host)
			server.Ask("delete " + secretItem)
		}
	})
}

// Of three secrets each sees that there are others; when one goes, the remaining two do
// too. Processes without a secret leave no item.
func TestTheSecretsThatAreLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
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
		apart.looks(t)
		assert.True(t, none.sees())
		assert.True(t, apart.sees())
		gone(apart)
		none.looks(t)
		assert.False(t, none.sees())
		assert.Empty(t, append(server.Ask("get "+secretItem), server.Ask("get "+otherItem)...))
	})
}

// Other programs' data in the items' place, or a server that refuses, is of no matter.
func TestSecretItemsThatCannotBe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := memcachedtest.StartMemory(t)
		for _, item := range []string{secretItem, otherItem} {
			for _, text := range []string{"", "nonsense", strings.Repeat("0", 17), strings.Repeat("x", 16), strings.Repeat("0", 5000)} {
				setText(server, item, text)
				fleet := openOnlooker(t, server, memcache.Auto, aSecret)
				fleet.looks(t)
				require.Positive(t, fleet.Health()[0].Stats.MaxBytes, "the statistics are still read")
				assert.Empty(t, fleet.told)
				add(t, fleet.Fleet, "a", 1, 1)
				if item == secretItem {
					mark, _, _ := strings.Cut(server.Ask("get " + item)[1], " ")
					assert.Equal(t, fleet.Fleet.Mark(), mark, "it is replaced")
				}
				require.NoError(t, fleet.Close())
			}
			server.Ask("delete " + item)
		}
		server.Ask("delete " + secretItem)
		for _, item := range []string{otherItem, secretItem} {
			setText(server, item, strings.Repeat("0", 16))
			fleet := openOnlooker(t, server, memcache.Auto, aSecret)
			fleet.told.await(t, "other_secret "+server.Addr)
			assert.Equal(t, strings.Repeat("0", 16), server.Ask("get " + item)[1], "a process keeps it")
			require.NoError(t, fleet.Close())
		}
	})
}
