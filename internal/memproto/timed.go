package memproto

import (
	"context"
	"net"
	"time"
)

// Timed is a connection each read and write of which ends within a time, and with the context.
type Timed struct {
	net.Conn
	ctx  context.Context
	each time.Duration
	stop func() bool
}

// NewTimed returns one on the connection, which it closes.
func NewTimed(ctx context.Context, conn net.Conn, each time.Duration) *Timed {
	return &Timed{conn, ctx, each, context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })}
}

func (t *Timed) Read(b []byte) (int, error)  { return t.try(t.Conn.Read, b) }
func (t *Timed) Write(b []byte) (int, error) { return t.try(t.Conn.Write, b) }

func (t *Timed) try(transfer func([]byte) (int, error), b []byte) (n int, err error) {
	if err = t.SetDeadline(time.Now().Add(t.each)); err == nil && t.ctx.Err() == nil {
		n, err = transfer(b)
	}
	if ended := t.ctx.Err(); ended != nil { // maybe before the deadline was set
		err = ended
	}
	return n, err
}

// Close closes the connection.
func (t *Timed) Close() error {
	t.stop()
	return t.Conn.Close()
}
