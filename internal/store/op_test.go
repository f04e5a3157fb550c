package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
)

func TestItems(t *testing.T) {
	seen := map[uint64]bool{}
	for level := range uint8(1 << store.LevelBits) {
		for _, number := range []int64{0, 1, 20_000, 1_790_000_000, 1<<store.NumberBits - 1} {
			item := store.Item(level, number)
			assert.Less(t, item, uint64(1)<<store.ItemBits)
			assert.False(t, seen[item])
			seen[item] = true
			require.Equal(t, level, store.ItemLevel(item))
			require.Equal(t, number, store.ItemNumber(item))
		}
	}
}

// A rollback goes from the last item to the first, also where fewer adds were acknowledged; a
// hint in the order of the adds.
func TestOpsThatFollowOthers(t *testing.T) {
	adds := []store.Write{{Kind: store.Add, Item: 1, By: 5, Expires: 7, Result: 9}, {Kind: store.Add, Item: 2, By: 5, Expires: 8, Result: 9}}
	receipt := store.Acknowledged(1)
	op := store.Op{Server: "a", Reads: make([]store.Read, 3), Err: assert.AnError}
	op.RollBack("c", adds, receipt, 3)
	assert.Equal(t, store.Op{Counter: "c", Reads: []store.Read{}, Receipt: receipt, Writes: []store.Write{
		{Kind: store.Subtract, Item: 2, By: 3, Expires: 8}, {Kind: store.Subtract, Item: 1, By: 3, Expires: 7},
	}}, op)
	assert.Equal(t, store.Subtract, op.Kind())
	op.Hint("c", adds, receipt, 4)
	assert.Equal(t, []store.Write{{Kind: store.Hint, Item: 1, By: 4, Expires: 7}, {Kind: store.Hint, Item: 2, By: 4, Expires: 8}}, op.Writes)
	assert.Equal(t, store.Kind(0), new(store.Op).Kind())
}

func TestReceipts(t *testing.T) {
	assert.True(t, store.Receipt{List: 7}.None())
	assert.True(t, store.Acknowledged(0).None())
	assert.False(t, store.Acknowledged(2).None())
	assert.Equal(t, 2, store.Acknowledged(2).On(0))
	assert.True(t, store.KindsOf(store.Add, store.Swap).Has(store.Swap))
	assert.False(t, store.KindsOf(store.Add, store.Swap).Has(store.Delete))
	assert.False(t, store.Capabilities{Replicas: 1}.Replicated())
}
