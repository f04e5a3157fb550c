package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// conn is a client's connection with just enough of HTTP/1.1 to send prepared requests and
// to read their answers: client and server share the machine.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body bytes.Buffer // of the last answer
}

// dial opens a connection for exchanges until a deadline.
func dial(addr string, deadline time.Time) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	// A run closes thousands of connections, which must not linger.
	if err := errors.Join(c.(*net.TCPConn).SetLinger(0), c.SetDeadline(deadline)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// request returns the bytes of a request.
func request(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// exchange sends a request and reads the answer. The body is valid until the next exchange.
func (c *conn) exchange(request []byte) (status int, body []byte, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, nil, err
	}
	length := int64(-1)
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, fmt.Errorf("an answer ends early: %w", err)
		}
		line = bytes.TrimSuffix(line, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case first:
			code, found := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
			if status, err = strconv.Atoi(string(code[:min(len(code), 3)])); err != nil || !found {
				return 0, nil, fmt.Errorf("an answer begins %q", line)
			}
		case len(line) == 0 && length < 0:
			return 0, nil, errors.New("an answer does not state its length")
		case len(line) == 0:
			c.body.Reset()
			_, err = io.CopyN(&c.body, c.in, length)
			return status, c.body.Bytes(), err
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(value), 10, 32); err != nil {
				return 0, nil, fmt.Errorf("a body's length is %q", value)
			}
		case bytes.EqualFold(name, []byte("Connection")):
			return 0, nil, errors.New("the server does not keep the connection")
		}
	}
}
