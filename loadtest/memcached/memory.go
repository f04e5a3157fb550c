package memcached

import "strings"

// Memory is what the items of a Memcached server take, each figure more of it than the
// one before.
type Memory struct {
	Items int64 `json:"items"` // that there are
	// ItemBytes are the items' own: header, key and value (`bytes` of stats).
	ItemBytes int64 `json:"item_bytes"`
	// ChunkBytes are those of the chunks that they lie in (`used_chunks` by `chunk_size`
	// of stats slabs, over all classes).
	ChunkBytes int64 `json:"chunk_bytes"`
	// SlabBytes are those of the pages that the chunks lie in, taken of -m
	// (`total_malloced` of stats slabs).
	SlabBytes int64 `json:"slab_bytes"`
	// HashBytes are those of the table that finds items (`hash_bytes` of stats), beside -m.
	HashBytes int64 `json:"hash_bytes"`
}

// parseMemory reads the answers to stats and stats slabs.
func parseMemory(general, slabs figures) (Memory, error) {
	if err := general.need("curr_items", "bytes", "hash_bytes"); err != nil {
		return Memory{}, err
	}
	if err := slabs.need("total_malloced"); err != nil {
		return Memory{}, err
	}
	m := Memory{
		Items: general.whole("curr_items"), ItemBytes: general.whole("bytes"), HashBytes: general.whole("hash_bytes"),
		SlabBytes: slabs.whole("total_malloced"),
	}
	for name, used := range slabs {
		class, found := strings.CutSuffix(name, ":used_chunks")
		if !found {
			continue
		}
		if err := slabs.need(class + ":chunk_size"); err != nil {
			return Memory{}, err
		}
		m.ChunkBytes += int64(used) * slabs.whole(class+":chunk_size")
	}
	return m, nil
}
