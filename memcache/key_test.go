package memcache

import (
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

// Keys of many buckets are made together: loadtest bench measures clients that ask by them.
func TestKeysTakeFewAllocations(t *testing.T) {
	buckets := make([]uint64, 142)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { Keys("a", buckets) }), 5.0)
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
