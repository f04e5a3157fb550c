package wire

import (
	"math"
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

// Hash is what of a counter its keys depend on.
type Hash replication.Hash

// Key returns the key of the counter's item.
func (h Hash) Key(item uint64) string {
	prefix := h.prefix()
	return string(appendKey(make([]byte, 0, keyLetters), &prefix, item))
}

// maxRelative is the longest time to live that Memcached takes as such. A longer
// one it reads as a Unix time, long past: the item is gone at once.
const maxRelative = 30 * 24 * time.Hour

// expiration returns the argument with which Memcached keeps an item until the Unix second
// expires: the seconds from now on, at least one since zero means for ever; above 30 days
// the second itself. Memcached's times end in January 2038: what would live longer has 30
// days then.
func expiration(expires int64, now time.Time) int32 {
	left := expires - now.Unix()
	const longest = int64(maxRelative / time.Second)
	if left > longest && expires <= math.MaxInt32 {
		return int32(expires)
	}
	return int32(min(max(left, 1), longest))
}

// Epoch is where instants begin.
var Epoch = time.Now()

// Instant is a time as nanoseconds since epoch, on the monotonic clock where the
// time has its reading.
func Instant(t time.Time) int64 { return int64(t.Sub(Epoch)) }
