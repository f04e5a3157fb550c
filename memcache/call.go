package memcache

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/store"
)

// call is one exchange on a shared connection: its commands, and what came of them. The
// goroutine that takes it out of waiting, with settle, has to wake its caller.
//
// A caller may leave before its answers come, and the reader goes on filling the
// call meanwhile. So the values are the call's own, never the caller's, and a call
// goes back to the pool only when all its answers were read: no one else has it
// then.
type call struct {
	request  []byte
	asked    int // where in the request the keys of the get begin, each behind a blank
	kind     store.Kind
	tag      uint32 // of the first tagged command
	tagged   int    // tagged commands
	reads    int    // keys of the get
	deadline int64  // as instant has it

	// What the reader fills in.
	values   []int64  // what each write made of its item, before its answer what it adds; then what each read found
	answered int      // commands answered: first the tagged ones, then keys of the get
	landed   int      // adds acknowledged, from the first on
	fault    error    // the first answer that was an error
	versions []uint64 // as long as the reads if the call asks for the versions of items, else empty
	skipping bool     // in the body of an item that is too long to hold a count
	skip     int      // how much of it is still to come

	state   atomic.Int32
	partly  atomic.Int32 // landed, of a call whose answers came in part
	verdict error        // how the call ended; nil: all answers came
	done    chan<- int   // is sent index when the call has ended
	index   int
	timed   bool     // the fleet has an OnRoundTrip, which needs the instant of its end
	at      int64    // that, as an instant
	own     chan int // for a call of which alone the end is awaited
	// afterwards is called when all answers have come to a call whose caller has left. nil:
	// it is not called.
	afterwards interface{ answeredLate(*call) }
}

// The states of a call.
const (
	waiting int32 = iota
	ended         // answered, or failed with its connection
	late          // its caller has left
)

// refused is the value of an add that was answered with an error.
const refused = math.MinInt64

var calls = sync.Pool{New: func() any { return &call{own: make(chan int, 1)} }}

func newCall() *call { return calls.Get().(*call) }

// free gives the call back. Only one that was answered to its end may be.
func (c *call) free() {
	if !c.large() {
		calls.Put(c)
	}
}

// reset makes the call a new one.
func (c *call) reset(k store.Kind, tag uint32, tagged, reads int) {
	c.request = c.request[:0]
	c.kind, c.tag, c.tagged, c.reads, c.asked = k, tag, tagged, reads, 0
	c.versions, c.skipping, c.skip = c.versions[:0], false, 0
	if n := tagged + reads; n <= cap(c.values) {
		c.values = c.values[:n]
	} else {
		c.values = make([]int64, n)
	}
	c.answered, c.landed, c.fault, c.verdict = 0, 0, nil, nil
	c.done, c.index, c.afterwards = c.own, 0, nil
	c.timed, c.at = false, 0
	c.state.Store(waiting)
	c.partly.Store(0)
}

// answerCame ends a call all of whose answers have come.
func (c *call) answerCame() {
	if !c.settle(ended, nil) && c.afterwards != nil { // a late call has no other holder
		c.afterwards.answeredLate(c)
	}
}

// settle ends the call and wakes its caller, unless another goroutine has. It reports
// whether it did; if so the call is its caller's from then on.
func (c *call) settle(state int32, verdict error) (first bool) {
	first = c.state.CompareAndSwap(waiting, state)
	if first {
		c.verdict = verdict
		if c.timed {
			c.at = instant(time.Now())
		}
		c.done <- c.index
	}
	return first
}

// takeResults copies what the call has found to the reads.
func (c *call) takeResults(reads []store.Read) {
	for i := range reads {
		reads[i].Value, reads[i].Version = c.values[c.tagged+i], 0
		if len(c.versions) > 0 {
			reads[i].Version = c.versions[i]
		}
	}
}

// answerBytes returns about how long the answers may be at most.
func (c *call) answerBytes() int { return 40*c.tagged + 70*c.reads }

// large reports whether the call is more than a batch may be. It goes alone.
func (c *call) large() bool {
	return len(c.request) > maxBatchRequest || c.answerBytes() > maxBatchAnswer
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

// orphaned returns the adds that were acknowledged although one before them failed, the last
// first, each as what rolls it back.
func (c *call) orphaned(adds []store.Write) (writes []store.Write) {
	if c.kind != store.Add || c.state.Load() == late || c.fault == nil {
		return nil
	}
	for i := c.landed; i < min(c.answered, len(adds)); i++ {
		if c.values[i] != refused {
			writes = append(writes, store.Write{Kind: store.Subtract, Item: adds[i].Item, By: adds[i].By})
		}
	}
	slices.Reverse(writes)
	return writes
}
