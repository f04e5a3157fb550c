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

// conn is a connection of a client that knows as much of HTTP/1.1 as it takes to
// send requests which are ready as bytes and to read their answers: on a machine
// that client and server share, what the client takes the server does not get.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte // of the last answer
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	// Thousands of connections are closed in a run: none is to linger.
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// request returns the bytes of a request.
func request(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// exchange sends a request and reads the answer, whose body is good until the next
// exchange.
func (c *conn) exchange(request []byte) (status int, body []byte, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.line()
	if err != nil {
		return 0, nil, err
	}
	const version = "HTTP/1.1 "
	if !bytes.HasPrefix(line, []byte(version)) || len(line) < len(version)+3 {
		return 0, nil, fmt.Errorf("an answer begins %q", line)
	}
	if status, err = strconv.Atoi(string(line[len(version) : len(version)+3])); err != nil {
		return 0, nil, err
	}
	length, err := c.headers()
	if err != nil {
		return 0, nil, err
	}
	c.body = c.body[:0]
	if length >= 0 {
		err = c.read(length)
	} else {
		err = c.readChunks()
	}
	return status, c.body, err
}

// line returns the next line, without its end.
func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return bytes.TrimSuffix(line, []byte("\r\n")), err
}

// chunked is the length of a body that comes in chunks.
const chunked = -1

// headers reads the headers and returns the length of the body.
func (c *conn) headers() (length int, err error) {
	const unknown = -2
	length = unknown
	for {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
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
	if length == unknown {
		return 0, errors.New("an answer does not say how long it is")
	}
	return length, nil
}

// read adds so many bytes to the body.
func (c *conn) read(n int) error {
	have := len(c.body)
	if cap(c.body) < have+n {
		c.body = append(make([]byte, 0, 2*(have+n)), c.body...)
	}
	c.body = c.body[:have+n]
	_, err := io.ReadFull(c.in, c.body[have:])
	return err
}

// readChunks reads a body in chunks.
func (c *conn) readChunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(line), 16, 24)
		if err != nil {
			return fmt.Errorf("a chunk begins %q", line)
		}
		if err := c.read(int(size)); err != nil {
			return err
		}
		if line, err = c.line(); err != nil || len(line) > 0 {
			return errors.Join(errors.New("a chunk does not end where it says"), err)
		}
		if size == 0 {
			return nil
		}
	}
}
