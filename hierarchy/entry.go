package hierarchy

import (
	"encoding/binary"
	"hash/maphash"
)

// appendEntryKey appends the key of a counter in a table of freecache: a hash with this
// process's own seed, then the counter's ID. The table finds its places by a hash that is
// the same in every process. A caller that chooses features could choose some whose places are
// one, and the table grows with its fullest place, whatever it may hold: to sixty times
// its size and more.
func appendEntryKey(b []byte, seed maphash.Seed, id string) []byte {
	b = binary.LittleEndian.AppendUint64(b, maphash.String(seed, id))
	return append(b, id...)
}

// hashIn returns the hash in an entry's key.
func hashIn(key []byte) uint64 { return binary.LittleEndian.Uint64(key) }
