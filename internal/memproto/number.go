package memproto

import (
	"sync/atomic"

	"github.com/counterd/counterd/internal/store"
)

// A server that was started again gives the versions of items anew, so a version names a
// connection: on the meta path the one on which it was read, on the classic path the last one of
// the pool that was opened before. A Swap goes on that connection, or on one of the pool that
// was opened before it. So the process that it reaches was there when the version was read.

// numberBits are enough that no version is in use for as long as it takes to open as many
// connections.
const numberBits = 64 - store.VersionBits

// opened counts the connections of this process, of all fleets and servers: a server that
// joins has none of a number that another one had.
var opened atomic.Uint32

// newNumber returns the number of a new connection; never 0.
func newNumber() uint32 {
	for {
		if n := opened.Add(1) & (1<<numberBits - 1); n != 0 {
			return n
		}
	}
}

// connOf returns the number of the connection that a version names.
func connOf(version uint64) uint32 { return uint32(version >> store.VersionBits) }

// reaches reports whether the connection reaches the server process that a version was read
// from: the one that it names is of the same pool, and was not opened before this one.
func (l *Conn) reaches(version uint64) bool {
	number := connOf(version)
	if _, open := l.pool.open.Load(number); !open || l.conn == nil {
		return false
	}
	return (number-l.number)&(1<<numberBits-1) < 1<<(numberBits-1)
}
