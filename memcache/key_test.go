package memcache

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
)

// All processes must make the same keys, also those of later versions. The second is what
// openssl dgst -sha256 -mac HMAC says.
func TestHashesAreStable(t *testing.T) {
	assert.Equal(t, []string{"ypeBEsobvcr6wjGzmiPc00000001"}, Keys("a", []uint64{1}))
	keys, err := SecretKeys([]byte("0123456789abcdef"), "a", []uint64{1})
	require.NoError(t, err)
	assert.Equal(t, []string{"DIBso4qHytke2fVavLKk00000001"}, keys)
	keys, err = SecretKeys(nil, "a", []uint64{1})
	require.NoError(t, err)
	assert.Equal(t, Keys("a", []uint64{1}), keys)
}

// The letter behind the hash is the item's level, and the others are its number.
func TestAKeyShowsTheLevel(t *testing.T) {
	keys := Keys("a", []uint64{store.Item(0, 1), store.Item(3, 1), store.Item(31, 1<<store.NumberBits-1)})
	assert.Equal(t, []string{"ypeBEsobvcr6wjGzmiPc00000001", "ypeBEsobvcr6wjGzmiPc30000001", "ypeBEsobvcr6wjGzmiPcvvvvvvvv"}, keys)
}

// Keys of many buckets are made together: loadtest bench measures clients that ask by them.
func TestKeysTakeFewAllocations(t *testing.T) {
	buckets := make([]uint64, 142)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { Keys("a", buckets) }), 5.0)
}

// Concurrent callers share hash states, and counters may be of any length.
func TestHashesOfManyAtOnce(t *testing.T) {
	k, err := newKeyer([]byte("0123456789abcdef"))
	require.NoError(t, err)
	var counters []string
	want := map[string]store.Hash{}
	for _, length := range []int{0, 1, 63, 64, 65, 255, 256, 257, 5000, 70_000} {
		counters = append(counters, strings.Repeat("a", length), strings.Repeat("b", length))
	}
	for _, counter := range counters {
		alone, err := newKeyer([]byte("0123456789abcdef"))
		require.NoError(t, err)
		want[counter] = alone.hash(counter)
	}
	assert.Len(t, want, len(counters)-1)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 50 {
				for _, counter := range counters {
					assert.Equal(t, want[counter], k.hash(counter))
				}
			}
		})
	}
	asking.Wait()
}

// What tells secrets apart is no part of what a counter's hash shows.
func TestAFingerprint(t *testing.T) {
	k, err := newKeyer([]byte("0123456789abcdef"))
	require.NoError(t, err)
	other, err := newKeyer([]byte("0123456789abcdeg"))
	require.NoError(t, err)
	assert.True(t, isMark(k.mark), k.mark)
	assert.NotEqual(t, k.mark, other.mark)
	hash := k.hash("counterd: the secret of keys")
	assert.NotContains(t, string(hash[:]), k.mark)
	assert.LessOrEqual(t, store.HashBytes, 32-markBytes)
	for _, no := range []string{"", "0123456789abcde", "0123456789abcdeg", "0123456789ABCDEF", "0123456789abcdef0"} {
		assert.False(t, isMark(no), no)
	}
}

// What a secret costs for each trip.
func BenchmarkHash(b *testing.B) {
	counter := "\x0burl_shorten\x02ip\x0b203.0.113.99"
	for name, secret := range map[string][]byte{"plain": nil, "keyed": []byte("0123456789abcdef0123456789abcdef")} {
		k, err := newKeyer(secret)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k.hash(counter)
			}
		})
	}
}
