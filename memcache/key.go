package memcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store"
)

// MinKeySecret is the fewest bytes of a KeySecret.
const MinKeySecret = 16

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

// hash returns the hash of a counter, which an alias has for a key.
func (k *keyer) hash(counter string) store.Hash {
	if key, ok := store.KeyOf(counter); ok && len(key) == store.HashBytes {
		return store.Hash([]byte(key))
	}
	if !k.secret {
		var room [256]byte // on the stack: nearly all counters fit
		sum := sha256.Sum256(append(room[:0], counter...))
		return store.Hash(sum[:store.HashBytes])
	}
	s := k.states.Get().(*keyState)
	hash := store.Hash(s.of(counter)[:store.HashBytes])
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

// Keys returns the Memcached keys of a counter's buckets, as a Fleet without a KeySecret
// has them.
func Keys(counter string, buckets []uint64) []string {
	return memproto.Keys(new(keyer).hash(counter), buckets)
}

// SecretKeys returns the Memcached keys of a counter's buckets, as a Fleet with that
// KeySecret has them; nil: with none.
func SecretKeys(secret []byte, counter string, buckets []uint64) ([]string, error) {
	k, err := newKeyer(secret)
	if err != nil {
		return nil, err
	}
	return memproto.Keys(k.hash(counter), buckets), nil
}
