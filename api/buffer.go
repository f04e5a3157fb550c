package api

import (
	"bytes"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
)

// buffer holds the text of a body while it is read or written, and that of another
// one afterwards.
type buffer struct{ text []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// maxKept bounds the buffers that are kept for the next: the text of a batch of a
// hundred hits fits, that of the largest does not.
const maxKept = 128 << 10

// newBuffer returns an empty buffer.
func newBuffer() *buffer { return buffers.Get().(*buffer) }

// free gives the buffer to the next one. Its text is not used from then on.
func (b *buffer) free() {
	if cap(b.text) <= maxKept {
		b.text = b.text[:0]
		buffers.Put(b)
	}
}

// appender is a body that appends itself, as json.Marshal would have it.
type appender interface {
	AppendTo([]byte) ([]byte, error)
}

// encode appends a body.
func (b *buffer) encode(body any) (err error) {
	if itself, ok := body.(appender); ok {
		b.text, err = itself.AppendTo(b.text)
		return err
	}
	text, err := json.Marshal(body)
	b.text = append(b.text, text...)
	return err
}

// readFrom reads the text, whole.
func (b *buffer) readFrom(r io.Reader) error {
	text := bytes.NewBuffer(b.text)
	_, err := text.ReadFrom(r)
	b.text = text.Bytes()
	return err
}
