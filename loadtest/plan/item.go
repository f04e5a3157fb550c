package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/memcache"
)

// The layout of Memcached 1.6. An item has a header, a version (unless -C), the key and a
// zero byte, the value and the end of its line; client flags of 0 take no room. Its chunk is
// of the smallest class with room for it: by default (-n 48, -f 1.25) of 96 or 120 bytes. The
// hash table, beside -m, has 8 bytes a place, 2^16 places at first, and doubles at one and a
// half items a place.
const (
	itemOverhead = 48 + 8 + 1 + 2
	smallChunk   = 96
	nextChunk    = 120
	pageBytes    = 1 << 20
	hashPlace    = 8
	hashPlaces   = 1 << 16
	hashFilled   = 1.5
)

// keyBytes is the length of every bucket's key.
var keyBytes = len(memcache.Keys("", []uint64{0})[0])

// digits returns the length of a number.
func digits(n float64) float64 { return math.Floor(math.Log10(max(n, 1))) + 1 }

// itemBytes returns what Memcached counts for an item with that number.
func itemBytes(value float64) float64 { return itemOverhead + float64(keyBytes) + digits(value) }

var chunks = [...]float64{smallChunk, nextChunk}

// classOf returns the class of an item, an index of chunks.
func classOf(bytes float64) int {
	if bytes <= smallChunk {
		return 0
	}
	return 1
}

// pages returns the bytes of the pages for so many items in chunks of that size.
func pages(items, chunk float64) float64 {
	return math.Ceil(items/math.Floor(pageBytes/chunk)) * pageBytes
}

// held are items by their class.
type held [len(chunks)]float64

func (h held) all() float64 { return h[0] + h[1] }

// each returns the items of one of so many servers.
func (h held) each(servers int) held {
	return held{h[0] / float64(servers), h[1] / float64(servers)}
}

// slabBytes returns the bytes of their pages on one server.
func (h held) slabBytes() float64 { return pages(h[0], chunks[0]) + pages(h[1], chunks[1]) }

// hashBytes returns the bytes of the hash table for so many items.
func hashBytes(items float64) float64 {
	places := float64(hashPlaces)
	for items > hashFilled*places {
		places *= 2
	}
	return places * hashPlace
}

// A round trip of the meta protocol has an ma for each add, and one get for all reads.
func wireBytesOfAdd(life time.Duration, value float64) float64 {
	request := fmt.Sprintf("ma  N%d J1 D1 v Oabc\r\n", int64(life/time.Second))
	return float64(len(request)+keyBytes+len("VA 1 Oabc\r\n\r\n")) + digits(value)
}

func wireBytesOfReads(reads, found, value float64) float64 {
	if reads == 0 {
		return 0
	}
	asked := min(reads, 1)*float64(len("get\r\nEND\r\n")) + reads*float64(1+keyBytes)
	return asked + found*(float64(len("VALUE  0 1\r\n\r\n")+keyBytes)+digits(value))
}
