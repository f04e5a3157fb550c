package memcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"sync"
	"time"

	"github.com/counterd/counterd/replication"
	"github.com/counterd/counterd/store"
)

// A key is a hash of its counter and the number of its item, both in letters that Memcached
// takes, always of the same length: the letter behind the hash is the item's level. With a
// value of up to nine digits the item fits Memcached's smallest chunk, of 96 bytes.
const (
	hashBytes   = replication.HashBytes // 120 bits: no two counters will ever share a key
	hashLetters = hashBytes * 8 / 6
	keyLetters  = hashLetters + store.ItemBits/5
)

const base32Letters = "0123456789abcdefghijklmnopqrstuv"

// MinKeySecret is the fewest bytes of a KeySecret.
const MinKeySecret = 16

// counterHash is what of a counter its keys and its place depend on.
type counterHash replication.Hash

// keyer makes the hashes of counters: SHA-256, or HMAC-SHA256 with a secret, cut short.
// The zero keyer has none. It is safe for concurrent use.
type keyer struct {
	secret bool
	states sync.Pool // of *keyState
	mark   string    // what tells the secret from others; empty: there is none
}

// keyState is an HMAC that has taken in its secret, with what is put into it and comes out:
// what goes through an interface would be allocated for each counter.
type keyState struct {
	mac     hash.Hash
	counter []byte
	sum     [sha256.Size]byte
}

// keptCounter is the longest counter whose bytes stay with a state.
const keptCounter = 4 << 10

// newKeyer returns the keyer of the secret; nil: none.
func newKeyer(secret []byte) (*keyer, error) {
	switch {
	case secret == nil:
		return new(keyer), nil
	case len(secret) < MinKeySecret:
		return nil, fmt.Errorf("memcache: the key secret has %d bytes, fewer than %d", len(secret), MinKeySecret)
	}
	secret = append([]byte(nil), secret...)
	k := &keyer{secret: true}
	k.states.New = func() any {
		s := &keyState{mac: hmac.New(sha256.New, secret), counter: make([]byte, 0, 256)}
		s.mac.Reset() // it keeps what the secret has made of it from here on
		return s
	}
	k.mark = k.fingerprint()
	return k, nil
}

// hash returns the hash of a counter.
func (k *keyer) hash(counter string) counterHash {
	if !k.secret {
		var room [256]byte // on the stack: nearly all counters fit
		sum := sha256.Sum256(append(room[:0], counter...))
		return counterHash(sum[:hashBytes])
	}
	s := k.states.Get().(*keyState)
	hash := counterHash(s.of(counter)[:hashBytes])
	if cap(s.counter) <= keptCounter {
		k.states.Put(s)
	}
	return hash
}

// of returns the code of a text, until the next call.
func (s *keyState) of(text string) []byte {
	s.counter = append(s.counter[:0], text...)
	s.mac.Reset()
	s.mac.Write(s.counter)
	return s.mac.Sum(s.sum[:0])
}

// markBytes are enough to tell two secrets apart, and few enough for the item to be small.
const markBytes = 8

// fingerprint returns what tells the secret from others, and nothing else of it. It is of
// bytes that no counter's hash has.
func (k *keyer) fingerprint() string {
	s := k.states.Get().(*keyState)
	defer k.states.Put(s)
	return hex.EncodeToString(s.of("counterd: the secret of keys")[sha256.Size-markBytes:])
}

// counterOf returns the counter as its copies know it.
func (k *keyer) counterOf(counter string) replication.Counter {
	return replication.Counter{Name: counter, Hash: replication.Hash(k.hash(counter))}
}

// Keys returns the Memcached keys of a counter's buckets, as a Fleet without a KeySecret
// has them.
func Keys(counter string, buckets []uint64) []string {
	return new(keyer).hash(counter).keys(buckets)
}

// SecretKeys returns the Memcached keys of a counter's buckets, as a Fleet with that
// KeySecret has them; nil: with none.
func SecretKeys(secret []byte, counter string, buckets []uint64) ([]string, error) {
	k, err := newKeyer(secret)
	if err != nil {
		return nil, err
	}
	return k.hash(counter).keys(buckets), nil
}

// keys returns the keys of the counter's buckets.
func (h counterHash) keys(buckets []uint64) []string {
	keys, prefix := make([]string, len(buckets)), h.prefix()
	for i, bucket := range buckets {
		keys[i] = string(appendKey(make([]byte, 0, keyLetters), &prefix, bucket))
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
