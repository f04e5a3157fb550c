package memcache

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A key is a hash of its counter and the number of its bucket, both in letters
// that Memcached takes, always of the same length. With a value of up to nine
// digits the item fits Memcached's smallest chunk, of 96 bytes.
const (
	hashBytes   = 15 // 120 bits: no two counters will ever share a key
	hashLetters = hashBytes * 8 / 6
	bucketBits  = 40
	keyLetters  = hashLetters + bucketBits/5
)

const base32Letters = "0123456789abcdefghijklmnopqrstuv"

// counterHash is what of a counter its keys and its place depend on.
type counterHash [hashBytes]byte

func hashCounter(counter string) counterHash {
	sum := sha256.Sum256([]byte(counter))
	return counterHash(sum[:hashBytes])
}

// place returns the part of the hash that chooses the server.
func (h counterHash) place() uint64 { return binary.BigEndian.Uint64(h[:8]) }

// Keys returns the Memcached keys of a counter's buckets.
func Keys(counter string, buckets []uint64) []string {
	return hashCounter(counter).keys(buckets)
}

// keys returns the keys of the counter's buckets.
func (h counterHash) keys(buckets []uint64) []string {
	letters := make([]byte, 0, keyLetters*len(buckets))
	var head [hashLetters]byte
	base64.RawURLEncoding.Encode(head[:], h[:])
	for _, bucket := range buckets {
		letters = append(letters, head[:]...)
		for shift := bucketBits - 5; shift >= 0; shift -= 5 {
			letters = append(letters, base32Letters[bucket>>shift&31])
		}
	}
	// One string for all of them: each key is a piece of it.
	all := string(letters)
	keys := make([]string, len(buckets))
	for i := range keys {
		keys[i] = all[i*keyLetters : (i+1)*keyLetters]
	}
	return keys
}

// hashOfKey returns the hash that a key begins with.
func hashOfKey(key string) (h counterHash, err error) {
	_, err = base64.RawURLEncoding.Decode(h[:], []byte(key[:min(hashLetters, len(key))]))
	return h, err
}

// maxRelative is the longest time to live that Memcached takes as such. A longer
// one it reads as a Unix time, long past: the item is gone at once.
const maxRelative = 30 * 24 * time.Hour

// expiration returns what Memcached is told so that an item lives until the Unix
// second expires: the seconds from now on, at least one since zero means for
// ever; above 30 days the second itself.
func expiration(expires int64, now time.Time) int32 {
	left := expires - now.Unix()
	if left > int64(maxRelative/time.Second) {
		return int32(expires)
	}
	return int32(max(left, 1))
}
