package memcache

// The layout of Memcached 1.6 as it is by default. An item has a header, a version (unless
// -C), the key and a zero byte, the value and the end of its line; client flags of 0 take no
// room. Its chunk is of the smallest class with room for it (-n 48, -f 1.25): chunks grow by a
// quarter, in multiples of eight. Beyond the largest an item takes several.
const (
	itemBytes  = 48 + 8 + 1 + 2
	firstChunk = 96
	maxChunk   = 512 << 10

	keyBytes  = 28 // of every key of counterd
	kindBytes = 4  // of items of bytes: their client flags
)

// ItemBytes returns what Memcached counts for an item with a value of so many bytes.
func ItemBytes(value int) int64 { return int64(itemBytes + keyBytes + value) }

// ChunkBytes returns the bytes of the chunk that this item takes.
func ChunkBytes(value int) int64 {
	item := ItemBytes(value)
	for size := int64(firstChunk); size*5 < maxChunk*4; size = (size*5/4 + 7) &^ 7 {
		if item <= size {
			return size
		}
	}
	return (item + maxChunk - 1) / maxChunk * maxChunk
}

// ItemBytesOfData returns what Memcached counts for an item of bytes with a value of that size.
func ItemBytesOfData(value int) int64 { return ItemBytes(value + kindBytes) }

// ChunkBytesOfData returns the bytes of the chunk that this item takes.
func ChunkBytesOfData(value int) int64 { return ChunkBytes(value + kindBytes) }
