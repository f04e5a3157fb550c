package store

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// An alias names a counter in place of its ID, without its event and features: a byte that begins no ID, the
// hash of the ID, and a key of the store.
const (
	aliasMark  = 0
	aliasBytes = 1 + 8
)

// NewAlias returns the alias of a counter, which has that key in the store.
func NewAlias(counter string, key []byte) string {
	b := make([]byte, 0, aliasBytes+len(key))
	b = binary.BigEndian.AppendUint64(append(b, aliasMark), xxhash.Sum64String(counter))
	return string(append(b, key...))
}

// KeyOf returns the key of the store, if that is the alias of a counter.
func KeyOf(counter string) (key string, ok bool) {
	if len(counter) < aliasBytes || counter[0] != aliasMark {
		return "", false
	}
	return counter[aliasBytes:], true
}

// HashOf returns a hash of the counter's ID, which is the same for its alias.
func HashOf(counter string) uint64 {
	if _, ok := KeyOf(counter); ok {
		return binary.BigEndian.Uint64([]byte(counter[1:aliasBytes]))
	}
	return xxhash.Sum64String(counter)
}
