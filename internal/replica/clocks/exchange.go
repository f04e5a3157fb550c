package clocks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store"
)

const (
	tickKey = "counterd:clocks"
	noteKey = "counterd:clock:" // and the number of a slot
	// slots is how many notes a server keeps, the latest; they last for so many seconds, less than
	// they are remembered: each is new once.
	slots     = 64
	noteLasts = 30
	// A server without ticks begins with a random multiple of beginning: ticks that are further apart
	// are of two counts, which have no order.
	beginning  = 1 << 32
	beginnings = 1 << 30
	// notNumeric begins Memcached's answer to an incr of an item that holds no number.
	notNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric"
)

// errRefused is why there are no notes on a server that takes no such commands.
var errRefused = errors.New("clocks: the server refuses")

// Exchange looks at the server at the other end of the connection: it leaves a note there, and reads
// those of others. It returns how many items of the clocks the server has. An error is one of the
// connection, which is then of no more use.
func (c *Clocks) Exchange(conn io.ReadWriter) (items int, err error) {
	answers := bufio.NewReaderSize(conn, memproto.MaxLine)
	began := time.Now()
	before := c.now().Round(0)
	tick, first, err := nextTick(conn, answers)
	after := c.now().Round(0)
	if errors.Is(err, errRefused) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var request strings.Builder
	own, leave, alone := c.took(tick, first, before, after, began)
	if alone { // there are no notes of others, and none would read its own
		c.read(nil)
		return 1, nil
	}
	if leave {
		fmt.Fprintf(&request, "set %s%d 0 %d %d\r\n%s\r\n", noteKey, tick%slots, noteLasts, len(own.String()), own)
	}
	keys := make([]string, slots)
	request.WriteString("get")
	for i := range keys {
		keys[i] = noteKey + strconv.Itoa(i)
		request.WriteString(" " + keys[i])
	}
	request.WriteString("\r\n")
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return 0, err
	}
	if leave {
		if _, err := answers.ReadSlice('\n'); err != nil { // a note that is not stored is left with the next look
			return 0, err
		}
	}
	found, err := memproto.ReadItems(answers, keys...)
	if err != nil && !errors.Is(err, store.ErrRefused) {
		return 0, err
	}
	var notes []note
	for i, key := range keys {
		if n, ok := parse(found[key]); ok && n.tick%slots == uint64(i) {
			notes = append(notes, n)
		}
	}
	c.read(notes)
	return len(notes) + 1, nil
}

// nextTick returns the next tick of the server's count. It begins the count if there is none, or something
// else in its place: then it is the first.
func nextTick(conn io.Writer, answers *bufio.Reader) (tick uint64, first bool, err error) {
	for range 3 { // another process may begin it at the same time
		line, err := ask(conn, answers, "incr "+tickKey+" 1\r\n")
		if err != nil {
			return 0, false, err
		}
		if tick, err := strconv.ParseUint(line, 10, 64); err == nil {
			return tick, false, nil
		}
		verb := "add"
		switch {
		case strings.HasPrefix(line, notNumeric):
			verb = "set"
		case line != "NOT_FOUND":
			return 0, false, errRefused
		}
		anew := (1 + rand.Uint64N(beginnings)) * beginning
		text := strconv.FormatUint(anew, 10)
		line, err = ask(conn, answers, fmt.Sprintf("%s %s 0 0 %d\r\n%s\r\n", verb, tickKey, len(text), text))
		switch {
		case err != nil:
			return 0, false, err
		case line == "STORED":
			return anew, true, nil
		case line != "NOT_STORED":
			return 0, false, errRefused
		}
	}
	return 0, false, errRefused
}

// ask returns the answer to a command, a line.
func ask(conn io.Writer, answers *bufio.Reader, command string) (string, error) {
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	line, err := answers.ReadSlice('\n')
	return strings.TrimSpace(string(line)), err
}
