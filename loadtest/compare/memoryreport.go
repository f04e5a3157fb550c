package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
)

// million users are what the figures are scaled to.
const million = 1_000_000

// MemoryReport is what the ways of limiting keep.
type MemoryReport struct {
	Users int         `json:"users"`
	Limit string      `json:"limit"`
	Rows  []MemoryRow `json:"rows"`
}

// MemoryRow is what one of them keeps of a user, but for the last.
type MemoryRow struct {
	Name string `json:"name"`
	// Heap is what a program takes that keeps it: the states, and what finds them by the
	// users' names, without these.
	Heap float64 `json:"heap_bytes"`
	// The others are a real Memcached's.
	Items      float64 `json:"items"`
	ItemBytes  float64 `json:"item_bytes"`  // header, key and value of its items
	ChunkBytes float64 `json:"chunk_bytes"` // of the chunks that its items lie in
	SlabBytes  float64 `json:"slab_bytes"`  // of the pages that these lie in, whole ones
	Million    float64 `json:"million_users_chunk_bytes"`
}

// WriteText writes the report as a table.
func (r *MemoryReport) WriteText(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s users who have used up %s, their hits spread over its window\n\n", columns.Grouped(int64(r.Users)), r.Limit)
	rows := [][]string{
		{"bytes a user", "in a program", "in Memcached:", "", "", "", "a million"},
		{"", "heap", "items", "their bytes", "chunks", "slabs", "users, chunks"},
	}
	for _, row := range r.Rows {
		rows = append(rows, []string{
			row.Name, columns.Grouped(int64(row.Heap + 0.5)), fmt.Sprintf("%.1f", row.Items), columns.Grouped(int64(row.ItemBytes + 0.5)),
			columns.Grouped(int64(row.ChunkBytes + 0.5)), columns.Grouped(int64(row.SlabBytes + 0.5)), decimal(row.Million),
		})
	}
	columns.Write(&text, 1, rows)
	scaled := "as measured"
	if r.Users != million {
		scaled = "scaled from " + columns.Grouped(int64(r.Users))
	}
	fmt.Fprintf(&text, `
heap         what a Go program takes: the states, and the map that finds them, without the names
items        a state is one item of 8 bytes a number; counterd's are its buckets
their bytes  header, key and value (bytes of Memcached's stats)
chunks       what they lie in (used_chunks of stats slabs); for a million users %s
slabs        the pages of 1 MiB that these lie in (total_malloced of stats slabs)
`, scaled)
	_, err := io.WriteString(out, text.String())
	return err
}

// decimal writes bytes in the unit that suits them, a thousand of each in the next.
func decimal(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if bytes < 1000 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g TB", bytes)
}
