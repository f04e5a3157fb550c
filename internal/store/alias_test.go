package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/store"
)

func TestAliases(t *testing.T) {
	alias := store.NewAlias("\x01ecounter", []byte("key"))
	key, ok := store.KeyOf(alias)
	assert.True(t, ok)
	assert.Equal(t, "key", key)
	assert.Equal(t, store.HashOf("\x01ecounter"), store.HashOf(alias))
	assert.NotContains(t, alias, "counter")
	for _, id := range []string{"", "\x01ecounter", "\x00short"} {
		_, ok := store.KeyOf(id)
		assert.False(t, ok)
		store.HashOf(id)
	}
}
