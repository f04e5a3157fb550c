package memproto

import (
	"encoding/base64"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// Call is one exchange on a shared connection: its commands, and what came of them. The
// goroutine that takes it out of waiting, with settle, has to wake its caller.
//
// A caller may leave before its answers come, and the reader goes on filling the
// call meanwhile. So the values are the call's own, never the caller's, and a call
// goes back to the pool only when all its answers were read: no one else has it
// then.
type Call struct {
	answers
	pool     *sync.Pool
	deadline int64 // as an instant

	state   atomic.Int32
	partly  atomic.Int32 // landed, of a call whose answers came in part
	verdict error        // how the call ended; nil: all answers came
	done    chan<- int   // is sent index when the call has ended
	index   int
	swaps   bool // it is a Swap, for the connection of the number on
	on      uint32
	timed   bool     // the fleet has an OnRoundTrip, which needs the instant of its end
	at      int64    // that, as an instant
	own     chan int // for a call of which alone the end is awaited
	// afterwards is called when all answers have come to a call whose caller has left. nil:
	// it is not called.
	afterwards Latecomer
}

// The states of a call.
const (
	waiting int32 = iota
	ended         // answered, or failed with its connection
	late          // its caller has left
)

// calls has the calls of the classic path. Each Pipeline has a pool of its own: tests run it in a bubble, which the
// channels of calls must not leave.
var calls sync.Pool

// newCall returns a call of the pool, without commands.
func newCall(pool *sync.Pool) *Call {
	c, found := pool.Get().(*Call)
	if !found {
		c = &Call{pool: pool, own: make(chan int, 1)}
	}
	c.verdict, c.done, c.index, c.afterwards = nil, c.own, 0, nil
	c.swaps, c.on = false, 0
	c.timed, c.at = false, 0
	c.state.Store(waiting)
	c.partly.Store(0)
	return c
}

// free gives the call back. Only one that was answered to its end may be.
func (c *Call) free() {
	if !c.large() && cap(c.bytes) <= maxBatchAnswer {
		c.pool.Put(c)
	}
}

// write writes the commands of an op and makes room for their answers, which are all tagged. A call that only reads
// begins with a fence.
//
// It never asks for silence (the flag q): Memcached answers a quiet ma that
// creates its item all the same.
func (c *Call) write(h store.Hash, tag uint32, writes []store.Write, reads []store.Read, versions bool, now time.Time) {
	prefix := prefixOf(h)
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
	if versions {
		c.wantVersions()
	}
	c.appendReads(&prefix, reads)
}

// appendReads writes the commands of tagged reads, behind the writes.
func (c *Call) appendReads(prefix *keyPrefix, reads []store.Read) {
	flags := " v f"
	if len(c.versions) > 0 {
		flags = " v c f"
	}
	b := c.request
	for i := range reads {
		b = appendKey(append(b, "mg "...), prefix, reads[i].Item)
		b = append(b, flags...)
		b = appendTag(b, c.tag+uint32(c.tagged+i))
		b = append(b, "\r\n"...)
	}
	c.request = b
}

// get writes one classic get of all reads and nothing else: for a connection that it
// has to itself. It may ask for the items' versions, too.
func (c *Call) get(h store.Hash, reads []store.Read, versions bool) {
	c.reset(store.Delete, 0, 0, len(reads))
	verb := "get"
	if versions {
		c.wantVersions()
		verb = "gets"
	}
	b := append(c.request, verb...)
	c.asked = len(b)
	prefix := prefixOf(h)
	for i := range reads {
		b = appendKey(append(b, ' '), &prefix, reads[i].Item)
	}
	c.request = append(b, "\r\n"...)
}

// answerCame ends a call all of whose answers have come.
func (c *Call) answerCame() {
	if !c.settle(ended, nil) && c.afterwards != nil { // a late call has no other holder
		// Of one that was answered in part before, the rest alone is missing to its caller.
		c.afterwards.AnsweredLate(c.fault == nil && c.partly.Load() == 0)
	}
}

// settle ends the call and wakes its caller, unless another goroutine has. It reports
// whether it did; if so the call is its caller's from then on.
func (c *Call) settle(state int32, verdict error) (first bool) {
	first = c.state.CompareAndSwap(waiting, state)
	if first {
		c.verdict = verdict
		if c.timed {
			c.at = Instant(time.Now())
		}
		c.done <- c.index
	}
	return first
}

// Latecomer is what a call is of whose caller may leave. AnsweredLate is called when all answers
// have come after that; whole: none of them is an error, and none had come before.
type Latecomer interface{ AnsweredLate(whole bool) }

// Notify has index sent to ended when the call has ended, instead of Wait. It is for a call
// that was not sent yet.
func (c *Call) Notify(ended chan<- int, index int, late Latecomer) {
	c.done, c.index, c.afterwards = ended, index, late
}

// Wait waits until the call has ended.
func (c *Call) Wait() { <-c.own }

// GiveUp has its caller leave, if the call has not ended.
func (c *Call) GiveUp() { c.settle(late, ErrNoReply) }

// Result is what came of a call.
type Result struct {
	Landed int   // writes acknowledged
	At     int64 // the instant of its end, where it was sent as timed
	// Orphaned are the writes that roll back adds which were acknowledged although one before
	// them had failed.
	Orphaned []store.Write
	Err      error
}

// Result takes in what came of a call that has ended, into the writes and the reads that it is
// of. It is the end of the call.
func (c *Call) Result(writes []store.Write, reads []store.Read) (r Result) {
	r.At, r.Err = c.at, c.verdict
	switch {
	case c.state.Load() == late:
		r.Landed = int(c.partly.Load())
	default:
		r.Landed = c.landed
		if r.Err == nil {
			r.Err = c.fault
		}
	}
	for i := range writes[:min(r.Landed, len(writes))] {
		writes[i].Result = c.values[i]
	}
	if isForeign := r.Err == errNoCount || r.Err == errNoData; r.Err == nil || isForeign && len(c.versions) > 0 { // such an item leaves the others good, see readAll
		c.takeResults(reads)
		c.free()
		return r
	}
	if c.state.Load() != late { // else it is still in the hands of the connection
		r.Orphaned = c.orphaned(writes)
	}
	return r
}

// Epoch is where instants begin.
var Epoch = time.Now()

// Instant is a time as nanoseconds since Epoch, on the monotonic clock where the
// time has its reading.
func Instant(t time.Time) int64 { return int64(t.Sub(Epoch)) }

// A key is a hash of its counter and the number of its item, both in letters that Memcached
// takes, always of the same length: the letter behind the hash is the item's level. With a
// value of up to nine digits the item fits Memcached's smallest chunk, of 96 bytes.
const (
	hashBytes   = store.HashBytes // 120 bits: no two counters will ever share a key
	hashLetters = hashBytes * 8 / 6
	keyLetters  = hashLetters + store.ItemBits/5
)

const base32Letters = "0123456789abcdefghijklmnopqrstuv"

// keyOf returns the key of the counter's item.
func keyOf(h store.Hash, item uint64) string {
	prefix := prefixOf(h)
	return string(appendKey(make([]byte, 0, keyLetters), &prefix, item))
}

// Keys returns the keys of a counter's items, which share one text.
func Keys(h store.Hash, items []uint64) []string {
	prefix, all, keys := prefixOf(h), make([]byte, 0, keyLetters*len(items)), make([]string, len(items))
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
	asked   int // where in the request the keys of a classic get begin, each behind a blank; 0: there is none
	kind    store.Kind
	tag     uint32 // of the first tagged command
	tagged  int    // writes, or the fence of a call that only reads
	reads   int
	data    bool  // the items hold bytes: the writes have no tags
	ends    []int // where in a large request the writes of bytes end
}

// Every meta command carries a tag, which its answer repeats. Answers come in the order of
// the commands, so the tags say nothing new, until a server loses one: Memcached drops the
// answers that it has not sent yet when it runs out of memory in a later get of the same
// connection. An answer with the wrong tag ends the connection; without tags another call
// would take it for its own.
//
// Older servers do not repeat the tag of a read that finds nothing. So a call that only reads
// counts begins with a fence, a tagged delete of a key that is not there: else those of two such
// calls could be mixed up.
const (
	tagLetters = 3 // of 5 bits each: more tags than commands under way on one connection
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

func prefixOf(h store.Hash) (p keyPrefix) {
	base64.RawURLEncoding.Encode(p[:], h[:])
	return p
}

func appendKey(b []byte, prefix *keyPrefix, bucket uint64) []byte {
	b = append(b, prefix[:]...)
	return append(b,
		base32Letters[bucket>>35&31], base32Letters[bucket>>30&31], base32Letters[bucket>>25&31], base32Letters[bucket>>20&31],
		base32Letters[bucket>>15&31], base32Letters[bucket>>10&31], base32Letters[bucket>>5&31], base32Letters[bucket&31])
}

// parseKey returns what a key was made of: the inverse of appendKey.
func parseKey(key []byte) (h store.Hash, item uint64, ok bool) {
	if len(key) != keyLetters {
		return h, 0, false
	}
	for _, c := range key[hashLetters:] {
		switch {
		case '0' <= c && c <= '9':
			item = item<<5 | uint64(c-'0')
		case 'a' <= c && c <= 'v':
			item = item<<5 | uint64(c-'a'+10)
		default:
			return h, 0, false
		}
	}
	n, err := base64.RawURLEncoding.Decode(h[:], key[:hashLetters]) // it skips line breaks
	return h, item, err == nil && n == hashBytes
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
	return 40*c.tagged + 90*c.reads // with versions
}

// large reports whether the call is more than a batch may be. It goes alone.
func (c *commands) large() bool {
	return len(c.request) > maxBatchRequest || c.answerBytes() > maxBatchAnswer || len(c.ends) > 0
}
