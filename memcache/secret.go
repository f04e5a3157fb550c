package memcache

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
)

// Processes with different secrets of keys count apart, and all seems well. So each that
// has one keeps an item on each server, as long as it is there: by its value it is seen
// whether the secret is the same. Who comes first puts it there, and those with the same
// secret keep it. Others, and those without a secret, see it, and say so in a second item: that
// is how those who keep the first one learn of them.
const (
	secretKey      = "counterd:secret"
	otherSecretKey = "counterd:secret:other"
	// noSecret is what the second item holds of a process without a secret.
	noSecret = "none"
	// secretLasts is for how many seconds the items outlast the last who puts them there.
	secretLasts = 60
)

// compareSecrets reads the items, and puts there or keeps the one that is this process's. It
// returns how many there are then.
func (s *server) compareSecrets(conn net.Conn) (there int, err error) {
	if s.fleet == nil {
		return 0, nil
	}
	answers := bufio.NewReaderSize(conn, maxLine)
	if _, err := io.WriteString(conn, "get "+secretKey+" "+otherSecretKey+"\r\n"); err != nil {
		return 0, err
	}
	items, err := readItems(answers, secretKey, otherSecretKey)
	if err != nil {
		return 0, err
	}
	put := func(verb, key, mark string) (int, error) {
		items[key] = mark
		return len(items), putSecret(conn, answers, verb, key, mark)
	}
	own := s.fleet.keyer.mark
	kept, found := items[secretKey]
	switch {
	case found && kept != own && isMark(kept):
		s.learnSecret(kept)
		return put("set", otherSecretKey, cmp.Or(own, noSecret))
	case found && kept != own:
		return len(items), nil
	case own == "":
		s.learnSecret("")
		return len(items), nil
	}
	s.learnSecret(otherThan(own, items[otherSecretKey]))
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

// putSecret puts an item there. Who loses a race for it reads it the next time.
func putSecret(conn io.Writer, answers *bufio.Reader, verb, key, mark string) error {
	if _, err := fmt.Fprintf(conn, "%s %s 0 %d %d\r\n%s\r\n", verb, key, secretLasts, len(mark), mark); err != nil {
		return err
	}
	_, err := answers.ReadSlice('\n')
	return err
}

// learnSecret takes in that there is another secret, and which; empty: there is none.
func (s *server) learnSecret(other string) {
	m := &s.losses
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
