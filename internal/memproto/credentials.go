package memproto

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
)

// Credentials are the user and the password that a server demands that was started
// with -Y. However they are printed or logged, the password is not shown.
type Credentials struct {
	User     string // without blanks and colons
	Password string // without blanks
}

// ReadCredentials reads them from the first line of a file, user:password, as in
// Memcached's own.
func ReadCredentials(path string) (Credentials, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Credentials{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var c Credentials
	c.User, c.Password, _ = strings.Cut(strings.TrimSuffix(line, "\r"), ":")
	if err := c.check(); err != nil {
		return Credentials{}, fmt.Errorf("%s: the first line is not user:password: %w", path, err)
	}
	return c, nil
}

// check finds what cannot be sent to Memcached.
func (c Credentials) check() error {
	switch {
	case c.User == "" || strings.ContainsAny(c.User, " :\r\n\x00"):
		return errors.New("the user is empty, or has a blank, a colon or an end of a line in it")
	case c.Password == "" || strings.ContainsAny(c.Password, " \r\n\x00"):
		return errors.New("the password is empty, or has a blank or an end of a line in it")
	}
	return nil
}

// String names the user.
func (c Credentials) String() string { return c.User + ":(hidden)" }

// Format writes what String returns, whatever is asked for.
func (c Credentials) Format(to fmt.State, _ rune) { io.WriteString(to, c.String()) }

// LogValue is what String returns.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText returns what String does.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

var (
	errNoCredentials = errors.New("the server demands a user and a password")
	errRefused       = errors.New("the server refused the user and the password")
	errNoRefusal     = errors.New("asked to take the user and the password, the server answered something else")
)

// unauthenticated is the answer to every command that came before the credentials.
const unauthenticated = "CLIENT_ERROR unauthenticated"

// present tells the server the credentials: as the value of a set, of any key. A server
// that demands none takes it for one, so the item expires as it is stored. Nothing of
// the answer is repeated: there is no telling what is in it.
func (c Credentials) present(conn net.Conn) error {
	token := c.User + " " + c.Password
	if _, err := fmt.Fprintf(conn, "set counterd:user 0 -1 %d\r\n%s\r\n", len(token), token); err != nil {
		return unanswered(conn, err)
	}
	answer := bufio.NewReaderSize(conn, MaxLine)
	line, err := answer.ReadSlice('\n')
	switch {
	case err != nil && len(line) == 0:
		return unanswered(conn, err)
	case strings.HasPrefix(string(line), "CLIENT_ERROR"):
		return errRefused
	case string(line) != "STORED\r\n" || answer.Buffered() > 0:
		return errNoRefusal
	}
	return nil
}
