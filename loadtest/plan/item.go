package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/counterd/counterd/memcache"
)

// How Memcached 1.6 keeps an item: a header, the number that tells its versions apart
// (there unless it was started with -C), the key and a zero byte, then the value and the
// end of its line. Client flags take no room where they are 0, as they are here.
const (
	itemHeader  = 48
	itemVersion = 8
	keyEnd      = 1
	valueEnd    = 2
)

// An item lies in a chunk, of the smallest class that has room for it. With the flags that
// Memcached has unless told otherwise the first two classes are of these bytes (-n 48,
// -f 1.25); a page holds as many chunks as go into it, and is of one class for good.
const (
	smallChunk = 96
	nextChunk  = 120
	pageBytes  = 1 << 20
)

// The table by which Memcached finds items has 8 bytes for each of its places, 2^16 at
// first and twice as many whenever there are half as many items again as places. It is not
// taken of -m. While it doubles, the old one is there too.
const (
	hashPlace    = 8
	hashMinPower = 16
	hashFilled   = 1.5
)

// keyBytes is how long the keys of buckets are: all are as long as any.
var keyBytes = len(memcache.Keys("", []uint64{0})[0])

// digits returns how long a number is.
func digits(n float64) float64 { return math.Floor(math.Log10(max(n, 1))) + 1 }

// itemBytes returns what Memcached counts for an item that holds such a number.
func itemBytes(value float64) float64 {
	return itemHeader + itemVersion + float64(keyBytes) + keyEnd + digits(value) + valueEnd
}

// chunks are the sizes of the two smallest classes.
var chunks = [...]float64{smallChunk, nextChunk}

// classOf returns the class of an item of so many bytes, in chunks.
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

// all returns how many they are.
func (h held) all() (sum float64) {
	for _, items := range h {
		sum += items
	}
	return sum
}

// each returns what one of so many servers has of them.
func (h held) each(servers int) held {
	for class := range h {
		h[class] /= float64(servers)
	}
	return h
}

// slabBytes returns the bytes of their pages, on one server that has all of them. The few
// items that counterd keeps for itself fit in among them.
func (h held) slabBytes() (sum float64) {
	for class, items := range h {
		sum += pages(items, chunks[class])
	}
	return sum
}

// hashBytes returns the bytes of the table for so many items.
func hashBytes(items float64) float64 {
	places := math.Exp2(hashMinPower)
	for items > hashFilled*places {
		places *= 2
	}
	return places * hashPlace
}

// What a trip sends and gets, in bytes, by the meta protocol: an ma for each add, and one
// get for all reads.
func wireBytesOfAdd(life time.Duration, value float64) float64 {
	request := fmt.Sprintf("ma  N%d J1 D1 v Oabc\r\n", int64(life/time.Second))
	answer := "VA 1 Oabc\r\n\r\n"
	return float64(len(request)+keyBytes+len(answer)) + digits(value)
}

func wireBytesOfReads(reads, found, value float64) float64 {
	if reads == 0 {
		return 0
	}
	asked := min(reads, 1)*float64(len("get\r\nEND\r\n")) + reads*float64(1+keyBytes)
	return asked + found*(float64(len("VALUE  0 1\r\n\r\n")+keyBytes)+digits(value))
}
