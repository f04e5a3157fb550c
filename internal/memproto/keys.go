package memproto

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// Listed is an item of a counter that a server holds.
type Listed struct {
	Hash    store.Hash // of the counter's name
	Item    uint64     // see store.Item
	Expires int64      // Unix second, by the server's clock as it started; 0: never
}

// ListKeys calls yield for each item of a counter on the server, until yield returns an error.
// Keys of another form are left out; a key of another client may have the same form by chance.
// Each item that is there from the first to the last moment is listed once. Before version 1.6.9
// Memcached can only walk its LRU lists and misses items that move meanwhile: then the error is
// ErrKeysMissed after all that was found. A server that sends nothing for idle is an error.
//
// The server lists for one client at a time, and ends a list when the connection closes. yield must
// not wait: while a client does not read, versions before 1.6.19 hold the lock of some items, and
// later ones, before 1.6.44, buffer without bound. The caller closes the connection.
func ListKeys(ctx context.Context, conn net.Conn, idle time.Duration, yield func(Listed) error) error {
	timed := NewTimed(ctx, conn, idle)
	defer timed.stop()
	l := &keyList{conn: timed, answers: bufio.NewReaderSize(timed, 64<<10), yield: yield}
	err := l.walk("hash")
	if _, refused := errors.AsType[refusal](err); !refused || !errors.Is(err, ErrNoKeys) {
		return err
	}
	return cmp.Or(l.walk("all"), ErrKeysMissed)
}

// keyList is a list of keys that is asked for.
type keyList struct {
	conn    io.Writer
	answers *bufio.Reader
	yield   func(Listed) error
}

// walk lists the keys in the order of that walk of the server.
func (l *keyList) walk(order string) error {
	_, err := io.WriteString(l.conn, "lru_crawler metadump "+order+"\r\n")
	for begun, ended := false, false; ; {
		var line []byte
		if err == nil {
			line, err = l.answers.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nonsense(line)
		case err != nil && !begun && len(line) == 0 && hungUp(err):
			return fmt.Errorf("%w: it hangs up (%w)", ErrNoKeys, err)
		case err != nil:
			return fmt.Errorf("the list of keys has no end: %w", err)
		case bytes.HasPrefix(line, []byte("key=")) && !ended:
			if err = l.take(line); err != nil {
				return err
			}
			begun = true
			continue
		}
		switch text := strings.TrimRight(string(line), "\r\n"); {
		case text == "END" && !ended:
			// Versions 1.6.19 to 1.6.43 write an END over keys that a slow client has not read yet:
			// the rest of these then comes before the answer to another command.
			begun, ended = true, true
			_, err = io.WriteString(l.conn, "version\r\n")
		case strings.HasPrefix(text, "VERSION ") && ended:
			return nil
		case text == "OK" && !begun: // since version 1.6.43
		case strings.HasPrefix(text, "BUSY"), strings.HasPrefix(text, "ERROR locked"): // its hash table grows
			return fmt.Errorf("%w: %w", ErrKeysBusy, refusal(text))
		case text == unauthenticated:
			return errNoCredentials
		case !begun && (strings.HasPrefix(text, "ERROR") || strings.HasPrefix(text, "CLIENT_ERROR") || strings.HasPrefix(text, "BADCLASS")):
			return fmt.Errorf("%w: %w", ErrNoKeys, refusal(text))
		case isError(line):
			return refusal(text)
		default:
			return nonsense(line)
		}
	}
}

// take yields the item of a line, if a counter has it: key=... exp=... and more.
func (l *keyList) take(line []byte) error {
	key, rest, _ := bytes.Cut(line[len("key="):], []byte(" "))
	hash, item, ok := parseKey(key)
	if !ok {
		return nil
	}
	text, _, _ := bytes.Cut(bytes.TrimPrefix(rest, []byte("exp=")), []byte(" "))
	expires, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || expires < -1 {
		return nonsense(line)
	}
	return l.yield(Listed{hash, item, max(expires, 0)}) // -1: never
}
