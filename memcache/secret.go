package memcache

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/store"
)

// Processes with different secrets of keys count apart, and all seems well. So each process
// with a secret keeps an item on each server, as long as it is there: its value shows
// whether the secret is the same. The first process puts it there, and processes with the
// same secret keep it. Processes with another secret, or none, see it, and put a second
// item there, from which the processes of the first one learn of them. Behind a blank each
// item has the host of the process that wrote it.
const (
	secretKey      = "counterd:secret"
	otherSecretKey = "counterd:secret:other"
	// noSecret is what the second item holds of a process without a secret.
	noSecret = "none"
	// secretLasts is for how many seconds the items outlast the last process that puts them
	// there.
	secretLasts = 60
)

// secrets compares this process's secret with those of other processes that use a server.
type secrets struct {
	own     string // the mark of this process's; empty: it has none
	changed func() // is called when there is another one

	mu    sync.Mutex
	other string // which there was when it was last looked for; empty: none
	host  string // of a process with it; empty if it is not known
}

// ownHost is the host of this process; empty if it is not known.
var ownHost = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || !isHost(host) {
		return ""
	}
	return host
})

// isHost reports whether the text may be the name of a host. Any client of the server may have written it.
func isHost(text string) bool {
	for _, c := range []byte(text) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !isLetter && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 253
}

// splitMark returns the mark of an item's value, and the host.
func splitMark(text string) (mark, host string) {
	mark, host, _ = strings.Cut(text, " ")
	if !isHost(host) {
		host = ""
	}
	return mark, host
}

// compare reads the items, and puts there or keeps the one that is this process's. It
// returns how many there are then.
func (s *secrets) compare(conn net.Conn) (there int, err error) {
	answers := bufio.NewReaderSize(conn, memproto.MaxLine)
	if _, err := io.WriteString(conn, "get "+secretKey+" "+otherSecretKey+"\r\n"); err != nil {
		return 0, err
	}
	items, err := memproto.ReadItems(answers, secretKey, otherSecretKey)
	if errors.Is(err, store.ErrRefused) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	put := func(verb, key, mark string) (int, error) {
		items[key] = strings.TrimSuffix(mark+" "+ownHost(), " ")
		return len(items), putSecret(conn, answers, verb, key, items[key])
	}
	own := s.own
	text, found := items[secretKey]
	kept, host := splitMark(text)
	switch {
	case found && kept != own && isMark(kept):
		s.learn(kept, host)
		return put("set", otherSecretKey, cmp.Or(own, noSecret))
	case own == "":
		s.learn("", "")
		return len(items), nil
	}
	said, host := splitMark(items[otherSecretKey])
	s.learn(otherThan(own, said), host)
	verb := "set"
	if !found {
		verb = "add"
	}
	return put(verb, secretKey, own)
}

// otherThan returns what the second item tells of processes without the secret of that mark;
// empty: nothing. Those of several marks replace each other's: which it is does not matter.
func otherThan(own, said string) string {
	if said == own || said != noSecret && !isMark(said) {
		return ""
	}
	return noSecret
}

// putSecret puts an item there. The loser of a race for it reads it the next time.
func putSecret(conn io.Writer, answers *bufio.Reader, verb, key, text string) error {
	if _, err := fmt.Fprintf(conn, "%s %s 0 %d %d\r\n%s\r\n", verb, key, secretLasts, len(text), text); err != nil {
		return err
	}
	_, err := answers.ReadSlice('\n')
	return err
}

// learn takes in that there is another secret, which, and the host of a process with it. If other is empty, there is
// none.
func (s *secrets) learn(other, host string) {
	if other == "" {
		host = ""
	}
	s.mu.Lock()
	news := other != "" && other != s.other
	s.other, s.host = other, host
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// found reports whether there was another secret at the last look, and returns the host of a process with it.
func (s *secrets) found() (found bool, host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.other != "", s.host
}

// isMark reports whether the text may be a secret's mark: any other text is not counterd's.
func isMark(text string) bool {
	for _, letter := range []byte(text) {
		if (letter < '0' || letter > '9') && (letter < 'a' || letter > 'f') {
			return false
		}
	}
	return len(text) == 2*markBytes
}
