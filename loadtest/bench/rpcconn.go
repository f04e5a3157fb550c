package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// rpcConn is a client's connection with just enough of HTTP/2 and gRPC to have prepared requests under way on
// several streams, and to read what their answers must say: client and server share the machine.
type rpcConn struct {
	*conn
	framer  *http2.Framer
	out     *bufio.Writer // under the framer
	fields  []hpack.HeaderField
	encoder *hpack.Encoder
	headers bytes.Buffer // of a request, as encoded
	decoder *hpack.Decoder
	status  string // of gRPC, in the last headers
	calls   map[uint32]*rpcCall
	spare   []*rpcCall
	stream  uint32 // the next one
	credit  int64  // bytes of requests that the server still takes
	taken   int    // bytes of answers that the server does not know to be taken
}

// rpcCall is a request under way.
type rpcCall struct {
	request int
	answer  []byte
}

const (
	rpcCredit = 1<<16 - 1 // by which a connection begins
	rpcWindow = 1 << 20   // how many bytes of answers may be under way besides
)

// dialRPC opens a connection for calls until a deadline.
func dialRPC(addr string, deadline time.Time) (*rpcConn, error) {
	tcp, err := dial(addr, deadline)
	if err != nil {
		return nil, err
	}
	c := &rpcConn{conn: tcp, out: bufio.NewWriterSize(tcp, 16<<10), calls: map[uint32]*rpcCall{}, stream: 1, credit: rpcCredit}
	c.framer = http2.NewFramer(c.out, c.in)
	c.framer.SetReuseFrames()
	c.fields = []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}, {Name: ":authority", Value: addr},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	c.encoder = hpack.NewEncoder(&c.headers)
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			c.status = f.Value
		}
	})
	_, err = c.out.WriteString(http2.ClientPreface)
	err = cmp.Or(err, c.framer.WriteSettings(), c.framer.WriteWindowUpdate(0, rpcWindow))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// send writes a request to out.
func (c *rpcConn) send(request int, message []byte) error {
	if c.credit -= int64(len(message)); c.credit < 0 {
		return errors.New("the server does not take more bytes of requests, and has answered the others")
	}
	if c.stream <= 3 { // the first has the server learn the headers; all others are as the second
		c.headers.Reset()
		for _, field := range c.fields {
			if err := c.encoder.WriteField(field); err != nil {
				return err
			}
		}
	}
	call := new(rpcCall)
	if n := len(c.spare); n > 0 {
		call, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	call.request, call.answer = request, call.answer[:0]
	stream := c.stream
	c.calls[stream], c.stream = call, stream+2
	return cmp.Or(
		c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.headers.Bytes(), EndHeaders: true}),
		c.framer.WriteData(stream, true, message),
	)
}

// receive reads until a call has ended. Its answer is valid until the next send.
func (c *rpcConn) receive() (*rpcCall, error) {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return nil, fmt.Errorf("an answer ends early: %w", err)
		}
		over := false
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			over = f.StreamEnded()
			if !f.HeadersEnded() {
				return nil, errors.New("the headers of an answer have several frames")
			}
			if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil {
				return nil, err
			}
		case *http2.DataFrame:
			call := c.calls[f.StreamID]
			if call == nil || f.StreamEnded() {
				return nil, errors.New("an answer has no status, or there is no call")
			}
			call.answer = append(call.answer, f.Data()...)
			err = c.took(int(f.Length))
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = c.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = c.framer.WritePing(true, f.Data)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				c.credit += int64(f.Increment)
			}
		default:
			err = fmt.Errorf("the server sends %s", frame.Header())
		}
		if err != nil {
			return nil, err
		}
		if over {
			return c.ended(frame.Header().StreamID)
		}
	}
}

// took has the server learn, once in a while, that its bytes were taken.
func (c *rpcConn) took(bytes int) error {
	if c.taken += bytes; c.taken < rpcWindow/2 {
		return nil
	}
	defer func() { c.taken = 0 }()
	return c.framer.WriteWindowUpdate(0, uint32(c.taken))
}

// ended returns the call of a stream that has ended, or how it has failed.
func (c *rpcConn) ended(stream uint32) (*rpcCall, error) {
	call := c.calls[stream]
	switch {
	case call == nil:
		return nil, errors.New("an answer to no call")
	case c.status != "0":
		return nil, fmt.Errorf("a call ended with the status %q of gRPC", c.status)
	}
	delete(c.calls, stream)
	c.spare, c.status = append(c.spare, call), ""
	return call, nil
}

// grpcMessage returns a message as it is sent: uncompressed, behind its length.
func grpcMessage(message []byte) []byte {
	size := len(message)
	return append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, message...)
}

// Numbers of fields.
const (
	fieldOverallCode  = 1 // of RateLimitResponse
	fieldStatuses     = 2
	fieldCurrentLimit = 2 // of its DescriptorStatus
)

// checkAnswer returns an error unless the message is OK, by that many limits. A limit that the store did not
// answer for is not there.
func checkAnswer(message []byte, limits int) error {
	admitted, found := false, 0
	fault := eachField(message[min(5, len(message)):], func(number protowire.Number, value []byte) {
		switch number {
		case fieldOverallCode:
			admitted = string(value) == string(rune(rlsv3.RateLimitResponse_OK))
		case fieldStatuses:
			status, n := protowire.ConsumeBytes(value)
			fault := eachField(status, func(number protowire.Number, _ []byte) {
				if number == fieldCurrentLimit {
					found++
				}
			})
			if n < 0 || fault != nil {
				found = -1
			}
		}
	})
	if fault != nil || !admitted || found != limits {
		return fmt.Errorf("an answer is not OK by %d limits: %q", limits, message)
	}
	return nil
}

// eachField calls a function with the fields of a message, their values as encoded.
func eachField(message []byte, do func(number protowire.Number, value []byte)) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		do(number, message[tag:tag+size])
		message = message[tag+size:]
	}
	return nil
}
