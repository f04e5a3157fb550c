package seal_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/seal"
)

// What is sealed opens by the same key alone, and not if a byte of it is another one. Without a key it has a checksum.
func TestSeal(t *testing.T) {
	one, other := seal.KeyOf([]byte("secret"), "tests"), seal.KeyOf([]byte("secret"), "others")
	for name, test := range map[string]struct {
		key     seal.Key
		foreign []seal.Key
		hides   bool
	}{"sealed": {one, []seal.Key{other, nil}, true}, "plain": {nil, []seal.Key{one}, false}} {
		t.Run(name, func(t *testing.T) {
			for _, content := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("content"), 1000)} {
				sealed, err := test.key.Seal(content)
				require.NoError(t, err)
				opened, ok := test.key.Open(sealed)
				require.True(t, ok)
				assert.Equal(t, string(content), string(opened))
				if len(content) > 1 {
					assert.Equal(t, !test.hides, bytes.Contains(sealed, content))
				}
				for _, key := range test.foreign {
					_, ok := key.Open(sealed)
					assert.False(t, ok)
				}
				for i := range min(len(sealed), 100) {
					altered := bytes.Clone(sealed)
					altered[i] ^= 1
					_, ok := test.key.Open(altered)
					assert.False(t, ok, "byte %d", i)
					_, ok = test.key.Open(sealed[:i])
					assert.False(t, ok, "cut off at %d", i)
				}
			}
		})
	}
}
