package memproto

import (
	"strconv"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// A call for bytes writes with the classic commands append, add, set and cas, also on a connection
// of the meta path: where memory is short, a failed meta append deletes the item. It reads
// as any other does: that leaves the item's life as it is.

const (
	// dataFlags are the client flags of items of bytes. Those of counts are 0, and an append
	// keeps them: so each kind is known from the other, and from what other clients write.
	dataFlags = 0xc0d
	// dataAnswer is about how long the answer to a read of bytes is, for the bound of a batch.
	dataAnswer = 1 << 10
)

// writeData writes the commands of an op with data, or of one that creates or swaps a count, and makes room
// for their answers.
func (c *Call) writeData(h store.Hash, tag uint32, data bool, writes []store.Write, reads []store.Read, now time.Time) {
	prefix := prefixOf(h)
	c.reset(store.Append, tag, len(writes), len(reads))
	c.data = true
	c.wantVersions()
	b := c.request
	for i := range writes {
		b = appendStore(b, &prefix, &writes[i], data, now)
		c.ends = append(c.ends, len(b))
	}
	c.request = b
	c.appendReads(&prefix, reads)
	if len(c.request) <= maxRecord {
		c.ends = c.ends[:0]
	}
}

func appendStore(b []byte, prefix *keyPrefix, w *store.Write, isData bool, now time.Time) []byte {
	verb, flags, expires := "append ", int64(0), int64(0) // the item keeps its own
	if w.Kind != store.Append {
		verb, flags, expires = "add ", dataFlags, int64(expiration(w.Expires, now))
	}
	data := w.Data
	if !isData {
		var count [maxDigits]byte
		data, flags = strconv.AppendInt(count[:0], w.By, 10), 0
	}
	switch w.Kind {
	case store.Swap:
		verb = "cas "
	case store.Put:
		verb = "set "
	}
	b = appendKey(append(b, verb...), prefix, w.Item)
	for _, number := range []int64{flags, expires, int64(len(data))} {
		b = strconv.AppendInt(append(b, ' '), number, 10)
	}
	if w.Kind == store.Swap {
		b = strconv.AppendUint(append(b, ' '), changeOf(w.Version), 10)
	}
	b = append(b, "\r\n"...)
	b = append(b, data...)
	return append(b, "\r\n"...)
}

// changeOf returns the number that the server gave to a version.
func changeOf(version uint64) uint64 { return version & (1<<store.VersionBits - 1) }

// readStored takes the answer to the next write of bytes. It returns 0 where that is not there
// whole.
func (c *answers) readStored(b []byte) (used int, err error) {
	line, used, err := cutLine(b)
	if used == 0 {
		return 0, err
	}
	switch text := string(line); {
	case text == "STORED":
		c.values[c.answered] = 1
	case text == "NOT_STORED", text == "EXISTS", text == "NOT_FOUND":
		c.values[c.answered] = 0
	case isRefusal(line) && text != lostAnswers:
		c.refuse(refusal(line))
		return used, nil
	default:
		return 0, nonsense(line)
	}
	if c.fault == nil {
		c.landed++
	}
	return used, nil
}
