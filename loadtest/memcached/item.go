package memcached

import "github.com/counterd/counterd/memcache"

const (
	// SmallestChunk is what the smallest item takes.
	SmallestChunk = 96
	// KeyBytes is the length of every key of counterd.
	KeyBytes = 28
)

// ItemBytes returns what Memcached counts for an item of counterd with a value of so many bytes.
func ItemBytes(value int) int64 { return memcache.ItemBytes(value) }

// ChunkOf returns the bytes of the chunk that this item takes.
func ChunkOf(value int) int64 { return memcache.ChunkBytes(value) }

// ItemBytesOfData returns what Memcached counts for an item of bytes with a value of that size.
func ItemBytesOfData(value int) int64 { return memcache.ItemBytesOfData(value) }

// ChunkOfData returns the bytes of the chunk that this item takes.
func ChunkOfData(value int) int64 { return memcache.ChunkBytesOfData(value) }
