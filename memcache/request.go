package memcache

import (
	"encoding/base64"
	"strconv"
	"time"
)

// kind is what the tagged commands of a call do.
type kind uint8

const (
	adding   kind = iota // ma, answered with the value
	taking               // ma MD, which creates nothing
	deleting             // md
)

// Every meta command carries a tag, which its answer repeats. Answers come in the
// order of the commands, so the tags say nothing new, until a server loses one:
// Memcached drops the answers that it has not sent yet when it runs out of
// memory in a later get of the same connection. An answer with the wrong tag ends
// the connection; without tags it would be taken for somebody else's.
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

// trip writes the commands of a trip into the call: an ma for each add, and one
// get of all reads.
//
// It never asks for silence (the flag q): Memcached answers a quiet ma that
// creates its item all the same.
func (c *call) trip(h counterHash, tag uint32, by int64, adds []uint64, expires []int64, reads []uint64, now time.Time) {
	prefix := h.prefix()
	if len(adds) > 0 {
		c.reset(adding, tag, len(adds), len(reads))
		c.by = by
	} else {
		c.reset(deleting, tag, 1, len(reads))
		c.request = appendTag(append(c.request, "md "+absentKey...), tag)
		c.request = append(c.request, "\r\n"...)
	}
	b := c.request
	for i, bucket := range adds {
		b = append(b, "ma "...)
		b = appendKey(b, &prefix, bucket)
		b = append(b, " N"...)
		b = strconv.AppendInt(b, int64(expiration(expires[i], now)), 10)
		b = append(b, " J"...)
		b = strconv.AppendUint(b, uint64(by), 10)
		b = append(b, " D"...)
		b = strconv.AppendUint(b, uint64(by), 10)
		b = append(b, " v"...)
		b = appendTag(b, tag+uint32(i))
		b = append(b, "\r\n"...)
	}
	c.request = b
	if len(reads) > 0 {
		c.appendGet("get", &prefix, reads)
	}
}

// get writes one get of all reads into the call, and nothing else: for a connection that it
// has to itself. Where versions is not nil the call asks for the items' versions too, and
// sets them there.
func (c *call) get(h counterHash, reads, versions []uint64) {
	c.reset(deleting, 0, 0, len(reads))
	prefix, verb := h.prefix(), "get"
	if versions != nil {
		clear(versions)
		c.versions, verb = versions, "gets"
	}
	c.appendGet(verb, &prefix, reads)
}

func (c *call) appendGet(verb string, prefix *keyPrefix, reads []uint64) {
	b := append(c.request, verb...)
	c.asked = len(b)
	for _, bucket := range reads {
		b = append(b, ' ')
		b = appendKey(b, prefix, bucket)
	}
	c.request = append(b, "\r\n"...)
}

// takeBack writes the commands that subtract from buckets where they are there.
func (c *call) takeBack(h counterHash, tag uint32, by int64, buckets []uint64) {
	c.reset(taking, tag, len(buckets), 0)
	prefix := h.prefix()
	b := c.request
	for i, bucket := range buckets {
		b = append(b, "ma "...)
		b = appendKey(b, &prefix, bucket)
		b = append(b, " MD D"...)
		b = strconv.AppendUint(b, uint64(by), 10)
		b = appendTag(b, tag+uint32(i))
		b = append(b, "\r\n"...)
	}
	c.request = b
}

// delete writes the commands that remove buckets.
func (c *call) delete(h counterHash, tag uint32, buckets []uint64) {
	c.reset(deleting, tag, len(buckets), 0)
	prefix := h.prefix()
	b := c.request
	for i, bucket := range buckets {
		b = append(b, "md "...)
		b = appendKey(b, &prefix, bucket)
		b = appendTag(b, tag+uint32(i))
		b = append(b, "\r\n"...)
	}
	c.request = b
}

// askedKey returns the key of the i-th read, from the request itself.
func (c *call) askedKey(i int) []byte {
	from := c.asked + i*(1+keyLetters) + 1
	return c.request[from : from+keyLetters]
}
