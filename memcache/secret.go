package memcache

import (
	"bufio"
	"fmt"
	"io"
	"net"
)

// Processes with different secrets of keys count apart, and all seems well. So each that
// has one keeps an item on each server, as long as it is there: by its value it is seen
// whether the secret is the same. Who comes first puts it there, and those with the same
// secret keep it; others, and those without a secret, only say that they have seen it.
const (
	secretKey = "counterd:secret"
	// secretLasts is for how many seconds the item outlasts its last keeper.
	secretLasts = 60
)

// compareSecrets reads the item, and puts it there or keeps it.
func (s *server) compareSecrets(conn net.Conn) error {
	if s.fleet == nil {
		return nil
	}
	answers := bufio.NewReaderSize(conn, maxLine)
	if _, err := io.WriteString(conn, "get "+secretKey+"\r\n"); err != nil {
		return err
	}
	read, found, err := readItem(answers, secretKey)
	if err != nil {
		return err
	}
	own := s.fleet.keyer.mark
	switch {
	case !found || read == own:
		s.learnSecret("")
	case isMark(read):
		s.learnSecret(read)
	}
	verb := "set"
	switch {
	case own == "", found && read != own:
		return nil
	case !found:
		verb = "add"
	}
	if _, err := fmt.Fprintf(conn, "%s %s 0 %d %d\r\n%s\r\n", verb, secretKey, secretLasts, len(own), own); err != nil {
		return err
	}
	_, err = answers.ReadSlice('\n') // who lost the race for it reads it the next time
	return err
}

// learnSecret takes in the mark of another secret; empty: there is none.
func (s *server) learnSecret(other string) {
	m := &s.memory
	m.all.mu.Lock()
	news := other != "" && other != m.other
	m.other = other
	m.all.mu.Unlock()
	if news {
		s.changed(OtherSecret)
	}
}

// isMark reports whether the text may be a secret's mark: what else is there is
// somebody's joke.
func isMark(text string) bool {
	for _, letter := range []byte(text) {
		if (letter < '0' || letter > '9') && (letter < 'a' || letter > 'f') {
			return false
		}
	}
	return len(text) == 2*markBytes
}
