package plan

import (
	"fmt"
	"math"
	"time"
)

// Memcached's hash table, beside -m, has 8 bytes a place, 2^16 places at first, and doubles at
// one and a half items a place.
const (
	pageBytes  = 1 << 20
	hashPlace  = 8
	hashPlaces = 1 << 16
	hashFilled = 1.5
	keyBytes   = 28 // of each key of counterd
)

// digits returns the length of a number.
func digits(n float64) int { return int(math.Log10(max(n, 1))) + 1 }

// held are items by the size of their chunks.
type held map[int64]float64

func (h held) all() (items float64) {
	for _, n := range h {
		items += n
	}
	return items
}

// each returns the items of one of so many servers.
func (h held) each(servers int) held {
	each := held{}
	for chunk, n := range h {
		each[chunk] = n / float64(servers)
	}
	return each
}

// slabBytes returns the bytes of their pages on one server.
func (h held) slabBytes() (bytes float64) {
	for chunk, n := range h {
		bytes += math.Ceil(n/float64(pageBytes/chunk)) * pageBytes
	}
	return bytes
}

// hashBytes returns the bytes of the hash table for so many items.
func hashBytes(items float64) float64 {
	places := float64(hashPlaces)
	for items > hashFilled*places {
		places *= 2
	}
	return places * hashPlace
}

// A round trip of the meta protocol has an ma for each add, and an mg for each read.
func wireBytesOfAdd(life time.Duration, value float64) float64 {
	request := fmt.Sprintf("ma  N%d J1 D1 v Oabc\r\n", int64(life/time.Second))
	return float64(len(request) + keyBytes + len("VA 1 Oabc\r\n\r\n") + digits(value))
}

func wireBytesOfReads(reads, found, value float64) float64 {
	asked, answered := len("mg  v f Oabc\r\n")+keyBytes, len("VA 1 f0 Oabc\r\n\r\n")+digits(value)
	return reads*float64(asked) + found*float64(answered) + (reads-found)*float64(len("EN Oabc\r\n"))
}
