package compare

const (
	// itemHeader is what Memcached has in front of an item's key, with the number that
	// tells its versions apart; keyBytes is a key as long as counterd's, with its end, and
	// valueEnd the end of a value.
	itemHeader = 48 + 8
	keyBytes   = 28 + 1
	valueEnd   = 2

	smallestChunk = 96
	largestChunk  = 512 << 10
)

// chunkOf returns the bytes of the chunk that a value of so many bytes takes in Memcached,
// as it is by default (-f 1.25 -n 48): the sizes of chunks grow by a quarter, in multiples
// of eight. Beyond the largest an item takes several.
func chunkOf(value int) int64 {
	item := int64(itemHeader + keyBytes + value + valueEnd)
	for size := int64(smallestChunk); size*5 < largestChunk*4; size = (size*5/4 + 7) &^ 7 {
		if item <= size {
			return size
		}
	}
	return (item + largestChunk - 1) / largestChunk * largestChunk
}

// bytesOf returns what so many items with such values take.
func bytesOf(n, value int) int64 { return int64(n) * chunkOf(value) }
