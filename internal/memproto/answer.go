package memproto

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/internal/store"
)

const (
	// maxDigits is the length of the largest number that Memcached counts to. One
	// that has become shorter is padded with blanks to what it was.
	maxDigits = 20
	// MaxLine is longer than any line that is an answer.
	MaxLine = 1024
	// maxItem is the size of the largest item that Memcached keeps with any -I. The reader
	// skips an item up to that size, and refuses a larger one before its body.
	maxItem = 1 << 30
	// maxData is the size of the largest item of bytes that the reader takes.
	maxData = 1 << 20
	// maxCount is the largest count of a bucket. It is far beyond what a counter reaches, and
	// so many buckets as any window has cannot overflow a sum.
	maxCount = 1 << 53
	// nonNumeric begins Memcached's answer to an add to an item that holds no number.
	nonNumeric = "CLIENT_ERROR cannot increment or decrement"
)

// errNoCount is the fault of a counter with an item that holds no count. Memcached keeps
// what any client writes: the server is well, and so are its other counters.
var errNoCount error = noCount{}

type noCount struct{}

func (noCount) Error() string {
	return "an item of the counter holds no count: another client of the server wrote it; reset the counter, or wait until the item expires"
}

func (noCount) Unwrap() error { return store.ErrNoCount }

// errNoData is the same of an item that holds no bytes of counterd, or too many.
var errNoData error = noData{}

type noData struct{}

func (noData) Error() string {
	return "an item of the counter holds no bytes of counterd: another client of the server wrote it; reset the counter, or wait until the item expires"
}

func (noData) Unwrap() error { return store.ErrNoData }

// lostAnswers is what Memcached says when it runs out of memory in a get. It then
// has also dropped the answers to earlier commands that it had not sent yet.
const lostAnswers = "SERVER_ERROR out of memory writing get response"

// errNonsense is the fault of a connection on which something came that is no
// answer to what was asked. Nothing that follows on it can be trusted.
var errNonsense = errors.New("the answer makes no sense")

// refusal is an answer that is an error in good form: the server is there.
type refusal string

func (r refusal) Error() string { return string(r) }

func nonsense(line []byte) error {
	told := withoutKeys(string(line[:min(len(line), MaxLine)]))
	return fmt.Errorf("%w: %q", errNonsense, told[:min(len(told), 80)])
}

// lettersOfKeys finds what may be a key or a part of one: errors go into logs, and without
// a secret a key reveals its features to a reader that tries all values.
var lettersOfKeys = regexp.MustCompile(`[A-Za-z0-9_-]{5,}`)

// isWord finds what is none: a word, or a number, shorter than a key. That some letters of
// a key look like one is rare, and less the more they are.
var isWord = regexp.MustCompile(`^(?:[A-Z_]{1,21}|[A-Z]?[a-z]{1,20}|[0-9]{1,20})$`)

// withoutKeys returns the text with ... instead of keys.
func withoutKeys(text string) string {
	return lettersOfKeys.ReplaceAllStringFunc(text, func(found string) string {
		if isWord.MatchString(found) {
			return found
		}
		return "..."
	})
}

// answers are what a call's reader has found. Those of the writes come first.
type answers struct {
	commands
	values   []int64  // what each write made of its item, before its answer what it adds; then what each read found
	answered int      // commands answered: first the tagged writes, then the reads
	landed   int      // adds acknowledged, from the first on
	fault    error    // the first answer that was an error
	versions []uint64 // as long as the reads if the call asks for the versions of items, else empty
	skipping bool     // in the body of an item that is too long to hold a count, or of bytes
	skip     int      // how much of it is still to come
	keep     bool     // it goes into bytes
	bytes    []byte   // of the items of bytes, one behind the other; values are their lengths
	conn     uint32   // the number of the connection on which the call went
}

// refused is the value of an add that was answered with an error.
const refused = math.MinInt64

// reset makes room for the answers to so many commands.
func (c *answers) reset(k store.Kind, tag uint32, tagged, reads int) {
	c.commands = commands{request: c.request[:0], ends: c.ends[:0], kind: k, tag: tag, tagged: tagged, reads: reads}
	c.versions, c.skipping, c.skip, c.keep, c.bytes, c.conn = c.versions[:0], false, 0, false, c.bytes[:0], 0
	if n := tagged + reads; n <= cap(c.values) {
		c.values = c.values[:n]
	} else {
		c.values = make([]int64, n)
	}
	c.answered, c.landed, c.fault = 0, 0, nil
}

func (c *answers) wantVersions() {
	c.versions = slices.Grow(c.versions, c.reads)[:c.reads]
	clear(c.versions)
}

// read takes answers to the call from the front of b, as many as are there whole.
// It returns how long they are, and whether they were the last ones. An error is one
// of the connection; an answer that is an error in good form is the call's own.
func (c *answers) read(b []byte) (used int, last bool, err error) {
	for c.answered < c.tagged {
		n, err := 0, error(nil)
		if c.data {
			n, err = c.readStored(b[used:])
		} else {
			n, err = c.readTagged(b[used:])
		}
		if n == 0 || err != nil {
			return used, false, err
		}
		used += n
		c.answered++
	}
	for !last {
		n := 0
		switch {
		case c.skipping:
			n, err = c.skipItem(b[used:])
		case c.asked > 0:
			n, last, err = c.readItem(b[used:])
		case c.answered == c.tagged+c.reads:
			return used, true, nil
		default:
			n, err = c.readRead(b[used:])
		}
		if n == 0 || err != nil {
			return used, false, err
		}
		used += n
	}
	return used, true, nil
}

// readTagged takes the answer to the next tagged command. It returns 0 where that is
// not there whole.
func (c *answers) readTagged(b []byte) (used int, err error) {
	line, used, err := cutLine(b)
	if used == 0 {
		return 0, err
	}
	tag := tagText(c.tag + uint32(c.answered))
	switch {
	case c.kind == store.Add && len(line) > 3 && string(line[:3]) == "VA ":
		size, rest := cutSize(line[3:])
		if size < 1 || size > maxDigits || !isTag(rest, tag) {
			return 0, nonsense(line)
		}
		data, n, err := cutData(b[used:], size)
		if n == 0 {
			return 0, err
		}
		value, ok := number(data)
		if !ok || value < c.values[c.answered] { // Memcached wraps at 2^64
			c.refuse(errNoCount)
			return used + n, nil
		}
		c.values[c.answered] = value
		if c.fault == nil {
			c.landed++
		}
		return used + n, nil
	case c.kind != store.Add && len(line) > 2 && (string(line[:2]) == "HD" || string(line[:2]) == "NF") && isTag(line[2:], tag):
		return used, nil
	case len(line) > 2 && (string(line[:2]) == "NS" || string(line[:2]) == "EX") && isTag(line[2:], tag):
		c.refuse(refusal("the server answered " + string(line[:2])))
		return used, nil
	case strings.HasPrefix(string(line), nonNumeric):
		c.refuse(errNoCount)
		return used, nil
	case isRefusal(line) && string(line) != lostAnswers:
		c.refuse(refusal(line))
		return used, nil
	}
	return 0, nonsense(line)
}

// refuse notes that the next command was answered with an error.
func (c *answers) refuse(fault error) {
	c.values[c.answered] = refused
	c.fail(fault)
}

// fail notes a fault. The first one stays; but that of an item without a count leaves the other reads of a look good,
// see Result, and gives way to one that does not.
func (c *answers) fail(fault error) {
	if c.fault == nil || c.fault == errNoCount && len(c.versions) > 0 {
		c.fault = fault
	}
}

// readRead takes the answer to the next tagged read, of data up to the body of the item. It returns 0 where that is not
// there whole.
func (c *answers) readRead(b []byte) (used int, err error) {
	line, used, err := cutLine(b)
	if used == 0 {
		return 0, err
	}
	tag := tagText(c.tag + uint32(c.answered))
	switch {
	case string(line) == "EN", len(line) > 2 && string(line[:2]) == "EN" && isTag(line[2:], tag):
		c.values[c.answered] = 0
		c.answered++
	case len(line) > 3 && string(line[:3]) == "VA ":
		size, rest := cutSize(line[3:])
		flags, version, ok := cutFlags(rest, tag)
		if size < 0 || size > maxItem || !ok {
			return 0, nonsense(line)
		}
		return c.takeItem(b, used, size, flags, version)
	case isRefusal(line) && string(line) != lostAnswers:
		c.refuse(refusal(line))
		c.answered++
	default:
		return 0, nonsense(line)
	}
	return used, nil
}

// cutFlags reads the flags of an mg that was answered: the item's client flags and version, and
// the tag. Others may be there: another client has marked the item as stale.
func cutFlags(b []byte, tag [tagLetters]byte) (flags int, version uint64, ok bool) {
	flags = -1
	for len(b) > 1 && b[0] == ' ' {
		end := bytes.IndexByte(b[1:], ' ') + 1
		if end == 0 {
			end = len(b)
		}
		flag := b[:end]
		b = b[end:]
		switch {
		case len(flag) == 1:
			return 0, 0, false
		case flag[1] == 'f':
			number, rest := cutSize(flag[2:])
			if number < 0 || len(rest) > 0 {
				return 0, 0, false
			}
			flags = number
		case flag[1] == 'c':
			number, err := strconv.ParseUint(string(flag[2:]), 10, 64)
			if err != nil {
				return 0, 0, false
			}
			version = number
		case flag[1] == 'O':
			if !isTag(flag, tag) {
				return 0, 0, false
			}
			ok = true
		}
	}
	return flags, version, ok && flags >= 0 && len(b) == 0
}

// takeItem takes in the item that the next read has found, whose head is so long; of one that holds bytes, or is too
// long to hold a count, the body follows. It returns 0 where it is not there whole.
func (c *answers) takeItem(b []byte, head, size, flags int, version uint64) (used int, err error) {
	value, fault := int64(0), error(nil)
	switch {
	case len(c.versions) > 0 && version == 0:
		fault = errNoVersions
	case c.data && (flags != dataFlags || size > maxData):
		fault = errNoData
	case flags == dataFlags && !c.data:
		fault = errNoCount
	}
	switch {
	case c.data:
		c.skipping, c.skip, c.keep = true, size, fault == nil
		if fault == nil {
			value = int64(size)
		}
	case size > maxDigits:
		c.skipping, c.skip, c.keep = true, size, false
		fault = cmp.Or(fault, errNoCount)
	default:
		data, n, err := cutData(b[head:], size)
		if n == 0 {
			return 0, err
		}
		head += n
		ok := false
		if value, ok = number(data); !ok {
			fault = cmp.Or(fault, errNoCount)
		}
	}
	c.values[c.answered] = value
	if len(c.versions) > 0 {
		c.versions[c.answered-c.tagged] = version
	}
	if fault != nil {
		c.fail(fault)
	}
	c.answered++
	return head, nil
}

// readItem takes the next item of a classic get, or its end. Items come in the order of the keys;
// keys without an item are left out. A key that was asked for twice comes twice; should it
// come or go in between, the one item that comes is the first one's, which is no worse than
// having asked a moment sooner or later.
func (c *answers) readItem(b []byte) (used int, end bool, err error) {
	line, used, err := cutLine(b)
	if used == 0 {
		return 0, false, err
	}
	const head = len("VALUE ")
	all := c.tagged + c.reads
	switch {
	case string(line) == "END":
		clear(c.values[c.answered:])
		c.answered = all
		return used, true, nil
	case len(line) <= head+keyLetters || string(line[:head]) != "VALUE " || line[head+keyLetters] != ' ':
		return 0, false, nonsense(line)
	}
	flags, rest := cutSize(line[head+keyLetters+1:])
	if flags < 0 || len(rest) < 2 || rest[0] != ' ' {
		return 0, false, nonsense(line)
	}
	size, rest := cutSize(rest[1:])
	version, ok := c.cutVersion(rest)
	if size < 0 || size > maxItem || !ok {
		return 0, false, nonsense(line)
	}
	for c.answered < all && !bytes.Equal(line[head:head+keyLetters], c.askedKey(c.answered-c.tagged)) {
		c.values[c.answered] = 0
		c.answered++
	}
	if c.answered == all {
		return 0, false, nonsense(line)
	}
	used, err = c.takeItem(b, used, size, flags, version)
	return used, false, err
}

// skipItem skips the body of an item that is too long to hold a count, as much of it as is
// there. It keeps that of an item of bytes.
func (c *answers) skipItem(b []byte) (used int, err error) {
	if c.skip > 0 {
		used = min(c.skip, len(b))
		if c.keep {
			c.bytes = append(c.bytes, b[:used]...)
		}
		c.skip -= used
		return used, nil
	}
	_, used, err = cutData(b, 0)
	c.skipping = used == 0
	return used, err
}

// cutVersion reads the version of an item, which follows its size where the call asked for
// versions, and nothing does where it did not.
func (c *answers) cutVersion(rest []byte) (version uint64, ok bool) {
	if len(c.versions) == 0 || len(rest) == 0 {
		return 0, len(rest) == 0
	}
	version, err := strconv.ParseUint(string(rest[1:]), 10, 64)
	return version, rest[0] == ' ' && err == nil
}

// isRefusal reports whether the line is an error that names its cause.
func isRefusal(line []byte) bool {
	const head = len("SERVER_ERROR")
	if len(line) < head || string(line[:head]) != "SERVER_ERROR" && string(line[:head]) != "CLIENT_ERROR" {
		return false
	}
	return len(line) == head || line[head] == ' '
}

// isTag reports whether b is the tag as a flag of an answer.
func isTag(b []byte, tag [tagLetters]byte) bool {
	return len(b) == 2+tagLetters && b[0] == ' ' && b[1] == 'O' && string(b[2:]) == string(tag[:])
}

// cutLine returns the line that b begins with, and its length with its end; 0 where
// its end is not there.
func cutLine(b []byte) (line []byte, used int, err error) {
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0 && len(b) > MaxLine, i > MaxLine, i == 0, i > 0 && b[i-1] != '\r':
		return nil, 0, nonsense(b)
	case i < 0:
		return nil, 0, nil
	}
	return b[:i-1], i + 1, nil
}

// cutData returns the data block of that size that b begins with, and its length with
// its end; 0 where it is not there whole.
func cutData(b []byte, size int) (data []byte, used int, err error) {
	switch {
	case len(b) < size+2:
		return nil, 0, nil
	case b[size] != '\r' || b[size+1] != '\n':
		return nil, 0, nonsense(b[:size+2])
	}
	return b[:size], size + 2, nil
}

// cutSize reads the number that b begins with, and returns what follows; -1 where
// there is none, or one of more than ten digits. What is larger than any size here
// is maxItem+1.
func cutSize(b []byte) (size int, rest []byte) {
	for i, digit := range b {
		if digit < '0' || digit > '9' {
			if i == 0 {
				return -1, b
			}
			return size, b[i:]
		}
		if i == 10 {
			return -1, b
		}
		size = min(size*10+int(digit-'0'), maxItem+1)
	}
	if len(b) == 0 {
		return -1, b
	}
	return size, nil
}

// number reads a counter's value, with the blanks behind it. One above maxCount is none.
func number(b []byte) (int64, bool) {
	value, i := uint64(0), 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if value = value*10 + digit; value > maxCount {
			return 0, false
		}
	}
	if i == 0 {
		return 0, false
	}
	for ; i < len(b); i++ {
		if b[i] != ' ' {
			return 0, false
		}
	}
	return int64(value), true
}

// takeResults copies what the call has found to the reads.
func (c *answers) takeResults(reads []store.Read) {
	used := 0
	for i := range reads {
		reads[i].Value, reads[i].Version = c.values[c.tagged+i], 0
		if len(c.versions) > 0 && c.versions[i] != 0 {
			reads[i].Version = store.Version(c.conn, c.versions[i])
		}
		if c.data {
			end := used + int(reads[i].Value)
			reads[i].Data, reads[i].Value, used = append(reads[i].Data[:0], c.bytes[used:end]...), 0, end
		}
	}
}

// orphaned returns the adds that were acknowledged although one before them failed, the last
// first, each as what rolls it back.
func (c *answers) orphaned(adds []store.Write) (writes []store.Write) {
	if c.kind != store.Add || c.fault == nil {
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
