package memcache

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/counterd/counterd/store"
)

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

func (h counterHash) prefix() (p keyPrefix) {
	base64.RawURLEncoding.Encode(p[:], h[:])
	return p
}

func appendKey(b []byte, prefix *keyPrefix, bucket uint64) []byte {
	b = append(b, prefix[:]...)
	return append(b,
		base32Letters[bucket>>35&31], base32Letters[bucket>>30&31], base32Letters[bucket>>25&31], base32Letters[bucket>>20&31],
		base32Letters[bucket>>15&31], base32Letters[bucket>>10&31], base32Letters[bucket>>5&31], base32Letters[bucket&31])
}

// write writes the commands of an op into the call: a tagged one for each write, and one
// get of all reads.
//
// It never asks for silence (the flag q): Memcached answers a quiet ma that
// creates its item all the same.
func (c *call) write(h counterHash, tag uint32, writes []store.Write, reads []store.Read, now time.Time) {
	prefix := h.prefix()
	if len(writes) > 0 {
		c.reset(writes[0].Kind, tag, len(writes), len(reads))
	} else {
		c.reset(store.Delete, tag, 1, len(reads))
		c.request = appendTag(append(c.request, "md "+absentKey...), tag)
		c.request = append(c.request, "\r\n"...)
	}
	b := c.request
	for i := range writes {
		c.values[i] = writes[i].By
		b = appendWrite(b, &prefix, &writes[i], now)
		b = appendTag(b, tag+uint32(i))
		b = append(b, "\r\n"...)
	}
	c.request = b
	if len(reads) > 0 {
		c.appendGet("get", &prefix, reads)
	}
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

// get writes one get of all reads into the call, and nothing else: for a connection that it
// has to itself. It may ask for the items' versions, too.
func (c *call) get(h counterHash, reads []store.Read, versions bool) {
	c.reset(store.Delete, 0, 0, len(reads))
	prefix, verb := h.prefix(), "get"
	if versions {
		c.versions, verb = slices.Grow(c.versions, len(reads))[:len(reads)], "gets"
		clear(c.versions)
	}
	c.appendGet(verb, &prefix, reads)
}

func (c *call) appendGet(verb string, prefix *keyPrefix, reads []store.Read) {
	b := append(c.request, verb...)
	c.asked = len(b)
	for i := range reads {
		b = append(b, ' ')
		b = appendKey(b, prefix, reads[i].Item)
	}
	c.request = append(b, "\r\n"...)
}

// askedKey returns the key of the i-th read, from the request itself.
func (c *call) askedKey(i int) []byte {
	from := c.asked + i*(1+keyLetters) + 1
	return c.request[from : from+keyLetters]
}
