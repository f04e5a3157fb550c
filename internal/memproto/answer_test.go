package memproto

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// What the meta path relies on, in the words of a real Memcached.
func TestWhatMemcachedAnswers(t *testing.T) {
	conn, err := net.Dial("tcp", memcachedtest.Start(t).Addr)
	require.NoError(t, err)
	defer conn.Close()
	for _, exchange := range [][2]string{
		{probe, "NF Oprb\r\nMN\r\n"},
		{"ma k N60 J5 D5 v O001\r\n", "VA 1 O001\r\n5\r\n"},  // creates
		{"ma k N60 J5 D5 v O002\r\n", "VA 2 O002\r\n10\r\n"}, // increments
		{"ma q N60 J5 D5 v q\r\n", "VA 1\r\n5\r\n"},          // is not quiet when it creates
		{"ma q N60 J5 D5 v q\r\nmn\r\n", "MN\r\n"},
		{"ma k MD D1 O003\r\n", "HD O003\r\n"},
		{"get k\r\n", "VALUE k 0 2\r\n9 \r\nEND\r\n"}, // padded
		{"ma k N60 J5 D5 v O004\r\n", "VA 2 O004\r\n14\r\n"},
		{"ma absent MD D1 O005\r\n", "NF O005\r\n"},
		{"md absent O006\r\nmd k O007\r\n", "NF O006\r\nHD O007\r\n"},
		{"set s 0 0 3\r\nabc\r\n", "STORED\r\n"},
		{"ma s N60 J5 D5 v O008\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
		{"mg s v c f T60 O009\r\n", "VA 3 c7 f0 O009\r\nabc\r\n"},
		{"mg x v c f O00a\r\n", "EN O00a\r\n"},
		{"append x 0 0 1\r\na\r\nadd x 3085 60 1\r\na\r\nappend x 0 0 1\r\nb\r\n", "NOT_STORED\r\nSTORED\r\nSTORED\r\n"},
		{"cas x 3085 60 1 1\r\nc\r\ncas y 3085 60 1 1\r\nc\r\n", "EXISTS\r\nNOT_FOUND\r\n"},
		{"gets x\r\n", "VALUE x 3085 2 9\r\nab\r\nEND\r\n"},
		{"get s s x s\r\n", strings.Repeat("VALUE s 0 3\r\nabc\r\n", 2) + "VALUE x 3085 2\r\nab\r\nVALUE s 0 3\r\nabc\r\nEND\r\n"},
	} {
		_, err := io.WriteString(conn, exchange[0])
		require.NoError(t, err)
		answer := make([]byte, len(exchange[1]))
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err, "%q: %q", exchange[0], answer)
		require.Equal(t, exchange[1], string(answer), "%q", exchange[0])
	}
}

// recorded is a batch of calls, and what a real Memcached answered to each.
type recorded struct {
	batch   func() []*Call
	answers []string  // of each call
	values  [][]int64 // of each call, as they have to be read
	bytes   []string  // the same
}

func (r recorded) stream() []byte { return []byte(strings.Join(r.answers, "")) }

// owner returns the calls whose answer holds the byte at the place, or borders on it.
func (r recorded) owner(place int) (first, last int) {
	from, end := -1, 0
	for i, answer := range r.answers {
		end += len(answer)
		if from < 0 && place <= end {
			from = i
		}
		if place < end {
			return from, i
		}
	}
	return from, len(r.answers) - 1
}

// writeTrip writes the commands of adds and reads into a call.
func writeTrip(c *Call, h store.Hash, tag uint32, by int64, adds []uint64, expires []int64, reads []uint64, now time.Time) {
	op := storetest.Op("", by, adds, expires, reads)
	c.write(h, tag, op.Writes, op.Reads, false, now)
}

func newRecorded() (r recorded) {
	h, other := store.Hash{1}, store.Hash{2}
	now := time.Now()
	until := now.Add(time.Hour).Unix()
	r.batch = func() []*Call {
		batch := make([]*Call, 8)
		for i := range batch {
			batch[i] = newCall(&calls)
		}
		writeTrip(batch[0], h, 40, 7, []uint64{1, 2}, []int64{until, until}, []uint64{2, 3, 1, 1}, now)
		writeTrip(batch[1], other, 42, 1, nil, nil, []uint64{1}, now)
		writeTrip(batch[2], h, 43, 12345, []uint64{1, 4}, []int64{until, until}, nil, now)
		batch[3].write(h, 45, []store.Write{{Kind: store.Subtract, Item: 1, By: 12340}, {Kind: store.Subtract, Item: 9, By: 12340}}, nil, false, now)
		writeTrip(batch[4], h, 47, 1, nil, nil, []uint64{1, 4, 8}, now)
		create := store.Write{Kind: store.Create, Item: 20, Data: []byte("a\r\nb"), Expires: until}
		add := store.Write{Kind: store.Append, Item: 20, Data: []byte("END\r\n")}
		batch[5].writeData(h, 48, true, []store.Write{add, create, add}, []store.Read{{Item: 21}, {Item: 20}}, now)
		batch[6].writeData(h, 50, true, []store.Write{{Kind: store.Swap, Item: 20, Version: 1, Expires: until}}, nil, now)
		batch[7].writeData(h, 50, true, nil, []store.Read{{Item: 20}}, now)
		return batch
	}
	r.values = [][]int64{{7, 7, 7, 0, 7, 7}, {0, 0}, {12352, 12345}, {0, 0}, {0, 12, 12345, 0}, {0, 1, 1, 0, 9}, {0}, {9}}
	r.bytes = []string{5: "a\r\nbEND\r\n", 7: "a\r\nbEND\r\n"}
	return r
}

// recordFrom asks a Memcached once for each of the calls.
func recordFrom(tb testing.TB) recorded {
	tb.Helper()
	r := newRecorded()
	conn, err := net.Dial("tcp", memcachedtest.Start(tb).Addr)
	require.NoError(tb, err)
	defer conn.Close()
	for _, c := range r.batch() {
		_, err := conn.Write(append(bytes.Clone(c.request), "mn\r\n"...))
		require.NoError(tb, err)
		var answer []byte
		for b := make([]byte, 1); !bytes.HasSuffix(answer, []byte("MN\r\n")); {
			_, err := io.ReadFull(conn, b)
			require.NoError(tb, err)
			answer = append(answer, b...)
		}
		r.answers = append(r.answers, strings.TrimSuffix(string(answer), "MN\r\n"))
	}
	return r
}

// feed hands a stream to a new batch in pieces of at most that many bytes, as the
// reader does, and returns how many calls it answered.
func feed(r recorded, stream []byte, piece int) (batch []*Call, whole int, fault error) {
	batch = r.batch()
	var buf []byte
	for len(stream) > 0 && fault == nil {
		n := min(piece, len(stream))
		buf, stream = append(buf, stream[:n]...), stream[n:]
		var used, more int
		used, more, fault = readAnswers(batch[whole:], buf)
		whole += more
		buf = slices.Delete(buf, 0, used)
	}
	return batch, whole, fault
}

// check holds what came of a stream that was changed from one place to another: of the
// calls whose own answer was left alone, none has anything else. (No reader can find a
// digit that has become another one in a call's own answer.)
func check(t *testing.T, r recorded, stream []byte, from, to, piece int) {
	t.Helper()
	batch, whole, _ := feed(r, stream, piece)
	first, _ := r.owner(from)
	_, last := r.owner(to)
	for i, c := range batch[:whole] {
		if i >= first && i <= last || c.fault != nil {
			continue
		}
		if c.kind == store.Add || c.reads > 0 {
			adds := c.values[:len(c.values)-c.reads]
			if c.kind == store.Add {
				require.Equal(t, r.values[i][:len(adds)], adds, "call %d of %q", i, stream)
			}
			require.Equal(t, r.values[i][len(adds):], c.values[len(adds):], "call %d of %q", i, stream)
		}
		require.Equal(t, r.bytes[i], string(c.bytes), "call %d of %q", i, stream)
	}
}

func TestAnswersChangedAtEveryByte(t *testing.T) {
	r := recordFrom(t)
	whole := r.stream()
	letters := append([]byte{0, 0xff}, whole...) // and those of the answers
	slices.Sort(letters)
	letters = slices.Compact(letters)
	for place := range whole {
		_, answered, _ := feed(r, whole[:place], len(whole))
		first, _ := r.owner(place)
		require.LessOrEqual(t, answered, first+1, "cut at %d", place)
		check(t, r, whole[:place], place, len(whole), 1000)
		check(t, r, slices.Delete(bytes.Clone(whole), place, place+1), place, place, 1000)
		for _, b := range letters {
			flipped := bytes.Clone(whole)
			flipped[place] = b
			check(t, r, flipped, place, place, 1000)
			check(t, r, slices.Insert(bytes.Clone(whole), place, b), place, place, 1000)
		}
	}
	// Lines that come twice, are lost, or change places.
	lines := bytes.SplitAfter(whole, []byte("\n"))
	at := make([]int, len(lines)+1)
	for i, line := range lines {
		at[i+1] = at[i] + len(line)
	}
	for i, line := range lines {
		check(t, r, slices.Concat(whole[:at[i+1]], line, whole[at[i+1]:]), at[i], at[i+1], 1000)
		check(t, r, slices.Concat(whole[:at[i]], whole[at[i+1]:]), at[i], at[i+1], 1000)
		if i+1 < len(lines) {
			check(t, r, slices.Concat(whole[:at[i]], lines[i+1], line, whole[at[i+2]:]), at[i], at[i+2], 1000)
		}
	}
	// And so do the answers of whole calls. No answer that changed places may be taken for
	// the other one, unless both are empty.
	for i := range r.answers {
		for j := range i {
			swapped := slices.Clone(r.answers)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			_, answered, fault := feed(r, []byte(strings.Join(swapped, "")), 1000)
			require.Error(t, fault)
			require.Equal(t, j, answered)
		}
	}
}

// FuzzAnswers changes a stream of a real Memcached at will: a part of it is replaced by
// anything, or all of it is.
func FuzzAnswers(f *testing.F) {
	f.Add(uint16(0), uint16(0), uint16(1), []byte(""))
	f.Add(uint16(10), uint16(20), uint16(7), []byte("VA 1 O018\r\n7\r\nEND\r\n"))
	f.Add(uint16(430), uint16(99), uint16(3), []byte("STORED\r\nVA 3 c9 f3085 O01g W\r\nabc\r\nEN\r\n"))
	f.Add(uint16(0), uint16(9999), uint16(100), []byte("VALUE x 0 1\r\n1\r\nSERVER_ERROR\r\nEND\r\n"))
	r := recordFrom(f)
	whole := r.stream()
	f.Fuzz(func(t *testing.T, from, length, piece uint16, with []byte) {
		start := min(int(from), len(whole))
		end := min(start+int(length), len(whole))
		stream := slices.Concat(whole[:start], with, whole[end:])
		// What is put in may hold sound answers to later calls: those then belong to no
		// call in particular. Only what comes before is judged.
		batch, answered, fault := feed(r, stream, max(int(piece), 1))
		first, _ := r.owner(start)
		for i := range min(first, answered) {
			if c := batch[i]; c.kind == store.Add {
				require.Equal(t, r.values[i], c.values)
			}
			require.Equal(t, r.bytes[i], string(batch[i].bytes))
		}
		require.True(t, fault != nil || answered <= len(batch))
		again, answeredAgain, faultAgain := feed(r, stream, len(stream)+1)
		require.Equal(t, answered, answeredAgain, "it does not matter in what pieces the stream comes")
		if fault == nil || faultAgain == nil {
			require.Equal(t, fault == nil, faultAgain == nil)
		}
		for i := range answered {
			require.Equal(t, again[i].values, batch[i].values)
			require.Equal(t, again[i].bytes, batch[i].bytes)
			// Whatever has come, the results can be taken.
			if batch[i].fault == nil {
				batch[i].takeResults(make([]store.Read, batch[i].reads))
			}
		}
	})
}

// An item that holds no count leaves the other reads of a look good, but not one that the server refuses.
func TestALookWithARefusal(t *testing.T) {
	const bad, refused, good = "VA 3 c7 f0 O00%d\r\nabc\r\n", "SERVER_ERROR refcount overflow during fetch\r\n", "VA 1 c9 f0 O00%d\r\n5\r\n"
	for _, is := range []struct {
		answers []string
		isBad   bool
	}{{[]string{bad, good}, true}, {[]string{bad, refused}, false}, {[]string{refused, bad}, false}, {[]string{bad, refused, bad}, false}} {
		c, reads := newCall(&calls), make([]store.Read, len(is.answers))
		c.write(store.Hash{1}, 0, nil, reads, true, time.Now())
		text := "NF O000\r\n"
		for i, answer := range is.answers {
			if answer != refused {
				answer = fmt.Sprintf(answer, i+1)
			}
			text += answer
		}
		used, last, err := c.read([]byte(text))
		require.NoError(t, err)
		require.True(t, last)
		require.Equal(t, len(text), used)
		c.answerCame()
		c.Wait()
		r := c.Result(nil, reads)
		require.Error(t, r.Err)
		require.Equal(t, is.isBad, errors.Is(r.Err, store.ErrNoCount), "%q: %v", is.answers, r.Err)
		if is.isBad {
			require.EqualValues(t, 5, reads[1].Value)
		}
	}
}

// Of a line that makes no sense stays what helps an operator. What may be a key goes, and a
// part of one.
func TestErrorsWithoutKeys(t *testing.T) {
	key := keyOf(store.Hash{1, 2, 250, 4, 77, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 101)
	for line, want := range map[string]string{
		"VALUE " + key + " 0 1 5":                          "VALUE ... 0 1 5",
		key[7:] + " 0 1":                                   "... 0 1",
		"HD O123\r\nVALUE " + key[:12]:                     "HD O123\r\nVALUE ...",
		"HTTP/1.1 400 Bad Request":                         "HTTP/1.1 400 Bad Request",
		"SERVER_ERROR out of memory writing get response":  "SERVER_ERROR out of memory writing get response",
		"CLIENT_ERROR unauthenticated":                     "CLIENT_ERROR unauthenticated",
		"VA 20 18446744073709551615":                       "VA 20 18446744073709551615",
		strings.Repeat("a", 30) + strings.Repeat("9", 100): "...",
	} {
		require.Equal(t, want, withoutKeys(line))
		require.EqualError(t, nonsense([]byte(line)), fmt.Sprintf("the answer makes no sense: %q", want))
	}
	require.NotContains(t, nonsense([]byte(strings.Repeat("x ", 35)+key)).Error(), key[:6], "the end is cut off")
}
