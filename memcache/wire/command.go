package wire

import (
	"encoding/base64"
	"math"
	"strconv"
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

// Keys returns the keys of a counter's items, which share one text.
func (h Hash) Keys(items []uint64) []string {
	prefix, all, keys := h.prefix(), make([]byte, 0, keyLetters*len(items)), make([]string, len(items))
	for _, item := range items {
		all = appendKey(all, &prefix, item)
	}
	text := string(all)
	for i := range keys {
		keys[i] = text[i*keyLetters:][:keyLetters]
	}
	return keys
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

// commands are those of a call.
type commands struct {
	request []byte
	asked   int // where in the request the keys of the get begin, each behind a blank
	kind    store.Kind
	tag     uint32 // of the first tagged command
	tagged  int    // tagged commands
	reads   int    // keys of the get
	data    bool   // the items hold bytes: what is tagged are the reads
	ends    []int  // where in a large request the writes of bytes end
}

// Every meta command carries a tag, which its answer repeats. Answers come in the order of
// the commands, so the tags say nothing new, until a server loses one: Memcached drops the
// answers that it has not sent yet when it runs out of memory in a later get of the same
// connection. An answer with the wrong tag ends the connection; without tags another call
// would take it for its own.
//
// A get has no tag, and two of them next to each other could be mixed up. So a
// call that only reads begins with a fence: a tagged delete of a key that is not
// there.
const (
	tagLetters = 3
	tagBits    = 5 * tagLetters // more than the commands under way on one connection
	absentKey  = "counterd:none"
)

// tagText returns the letters of a tag.
func tagText(tag uint32) [tagLetters]byte {
	return [tagLetters]byte{base32Letters[tag>>10&31], base32Letters[tag>>5&31], base32Letters[tag&31]}
}

func appendTag(b []byte, tag uint32) []byte {
	text := tagText(tag)
	return append(append(b, " O"...), text[:]...)
}

// keyPrefix is what all keys of a counter begin with.
type keyPrefix [hashLetters]byte

func (h Hash) prefix() (p keyPrefix) {
	base64.RawURLEncoding.Encode(p[:], h[:])
	return p
}

func appendKey(b []byte, prefix *keyPrefix, bucket uint64) []byte {
	b = append(b, prefix[:]...)
	return append(b,
		base32Letters[bucket>>35&31], base32Letters[bucket>>30&31], base32Letters[bucket>>25&31], base32Letters[bucket>>20&31],
		base32Letters[bucket>>15&31], base32Letters[bucket>>10&31], base32Letters[bucket>>5&31], base32Letters[bucket&31])
}

func appendWrite(b []byte, prefix *keyPrefix, w *store.Write, now time.Time) []byte {
	switch w.Kind {
	case store.Add:
		b = appendKey(append(b, "ma "...), prefix, w.Item)
		b = append(b, " N"...)
		b = strconv.AppendInt(b, int64(expiration(w.Expires, now)), 10)
		b = append(b, " J"...)
		b = strconv.AppendUint(b, uint64(w.By), 10)
		b = append(b, " D"...)
		b = strconv.AppendUint(b, uint64(w.By), 10)
		return append(b, " v"...)
	case store.Subtract:
		b = appendKey(append(b, "ma "...), prefix, w.Item)
		b = append(b, " MD D"...)
		return strconv.AppendUint(b, uint64(w.By), 10)
	}
	return appendKey(append(b, "md "...), prefix, w.Item) // store.Delete
}

func (c *commands) appendGet(verb string, prefix *keyPrefix, reads []store.Read) {
	b := append(c.request, verb...)
	c.asked = len(b)
	for i := range reads {
		b = append(b, ' ')
		b = appendKey(b, prefix, reads[i].Item)
	}
	c.request = append(b, "\r\n"...)
}

// askedKey returns the key of the i-th read, from the request itself.
func (c *commands) askedKey(i int) []byte {
	from := c.asked + i*(1+keyLetters) + 1
	return c.request[from : from+keyLetters]
}

// answerBytes returns about how long the answers may be at most.
func (c *commands) answerBytes() int {
	if c.data {
		return 40*c.tagged + dataAnswer*c.reads
	}
	return 40*c.tagged + 70*c.reads
}

// large reports whether the call is more than a batch may be. It goes alone.
func (c *commands) large() bool {
	return len(c.request) > maxBatchRequest || c.answerBytes() > maxBatchAnswer || len(c.ends) > 0
}
