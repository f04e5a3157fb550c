package memcache

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strings"
	"time"

	"github.com/counterd/counterd/memcache/copies"
)

// A key is a hash of its counter and the number of its bucket, both in letters
// that Memcached takes, always of the same length. With a value of up to nine
// digits the item fits Memcached's smallest chunk, of 96 bytes.
const (
	hashBytes   = copies.HashBytes // 120 bits: no two counters will ever share a key
	hashLetters = hashBytes * 8 / 6
	bucketBits  = 40
	keyLetters  = hashLetters + bucketBits/5
)

const base32Letters = "0123456789abcdefghijklmnopqrstuv"

// counterHash is what of a counter its keys and its place depend on.
type counterHash copies.Hash

func hashCounter(counter string) counterHash {
	var room [256]byte // on the stack: nearly all counters fit
	sum := sha256.Sum256(append(room[:0], counter...))
	return counterHash(sum[:hashBytes])
}

// counterOf returns the counter as its copies know it.
func counterOf(counter string) copies.Counter {
	return copies.Counter{Name: counter, Hash: copies.Hash(hashCounter(counter))}
}

// Keys returns the Memcached keys of a counter's buckets.
func Keys(counter string, buckets []uint64) []string {
	return hashCounter(counter).keys(buckets)
}

// keys returns the keys of the counter's buckets.
func (h counterHash) keys(buckets []uint64) []string {
	var key [keyLetters]byte
	base64.RawURLEncoding.Encode(key[:hashLetters], h[:])
	var all strings.Builder
	all.Grow(keyLetters * len(buckets))
	for _, bucket := range buckets {
		for i := keyLetters - 1; i >= hashLetters; i-- {
			key[i] = base32Letters[bucket&31]
			bucket >>= 5
		}
		all.Write(key[:])
	}
	// One string for all of them: each key is a piece of it.
	keys := make([]string, len(buckets))
	for i := range keys {
		keys[i] = all.String()[i*keyLetters : (i+1)*keyLetters]
	}
	return keys
}

// maxRelative is the longest time to live that Memcached takes as such. A longer
// one it reads as a Unix time, long past: the item is gone at once.
const maxRelative = 30 * 24 * time.Hour

// expiration returns what Memcached is told so that an item lives until the Unix
// second expires: the seconds from now on, at least one since zero means for
// ever; above 30 days the second itself. Memcached's times end in January 2038:
// what would live longer has 30 days then.
func expiration(expires int64, now time.Time) int32 {
	left := expires - now.Unix()
	const longest = int64(maxRelative / time.Second)
	if left > longest && expires <= math.MaxInt32 {
		return int32(expires)
	}
	return int32(min(max(left, 1), longest))
}
