package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// conn is a client's connection with just enough of HTTP/1.1 to send prepared requests and
// to read their answers: client and server share the machine.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body bytes.Buffer // of the last answer
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	// A run closes thousands of connections, which must not linger.
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
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
	line, err := c.line()
	if err != nil {
		return 0, nil, err
	}
	code, found := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !found || len(code) < 3 {
		return 0, nil, fmt.Errorf("an answer begins %q", line)
	}
	if status, err = strconv.Atoi(string(code[:3])); err != nil {
		return 0, nil, err
	}
	length, err := c.headers()
	if err != nil {
		return 0, nil, err
	}
	c.body.Reset()
	if length == chunked {
		err = c.chunks()
	} else {
		_, err = io.CopyN(&c.body, c.in, int64(length))
	}
	return status, c.body.Bytes(), err
}

// line returns the next line, without its end.
func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return bytes.TrimSuffix(line, []byte("\r\n")), err
}

// Lengths of a body that its headers do not state.
const (
	chunked = -1
	unknown = -2
)

// headers reads the headers and returns the length of the body.
func (c *conn) headers() (int, error) {
	length := unknown
	for {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case len(line) == 0 && length == unknown:
			return 0, errors.New("an answer does not state its length")
		case len(line) == 0:
			return length, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, fmt.Errorf("a body's length is %q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = chunked
		case bytes.EqualFold(name, []byte("Connection")):
			return 0, errors.New("the server does not keep the connection")
		}
	}
}

// chunks reads a body in chunks.
func (c *conn) chunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(line), 16, 24)
		if err != nil {
			return fmt.Errorf("a chunk begins %q", line)
		}
		if _, err := io.CopyN(&c.body, c.in, int64(size)); err != nil {
			return err
		}
		if line, err = c.line(); err != nil || len(line) > 0 {
			return errors.Join(errors.New("a chunk is longer than its size"), err)
		}
		if size == 0 {
			return nil
		}
	}
}
