package store

// An item's number has its level in the upper LevelBits of ItemBits, and what tells it from
// others of that level below them. Engines share the levels: those from OtherLevels on are for
// items that are no buckets, such as a counter's journal.
const (
	ItemBits    = 40
	LevelBits   = 5
	NumberBits  = ItemBits - LevelBits
	OtherLevels = 16
)

// Item returns the number of an item: its level, and its number within the level, of which
// the lower NumberBits count.
func Item(level uint8, number int64) uint64 {
	return uint64(level)<<NumberBits | uint64(number)&(1<<NumberBits-1)
}

// A version has in its lower VersionBits the number that the server gave to the change of the
// item. Above them it has what tells the server process, and the connection, from others: a
// server that was started again gives the same numbers to other changes.
const VersionBits = 44

// Version returns the version of that change, read on the connection of that number.
func Version(conn uint32, change uint64) uint64 {
	return uint64(conn)<<VersionBits | change&(1<<VersionBits-1)
}

// SameVersion reports whether the item has not changed between two reads from one server
// process: the connections of the reads do not matter.
func SameVersion(a, b uint64) bool { return (a^b)&(1<<VersionBits-1) == 0 }

// ItemLevel returns the level of an item. ItemNumber returns its number within the level.
func ItemLevel(item uint64) uint8  { return uint8(item >> NumberBits) }
func ItemNumber(item uint64) int64 { return int64(item & (1<<NumberBits - 1)) }
