package memproto

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// What is read and written on a connection beside counters: items of counterd's own, and
// statistics.

const (
	markerKey = "counterd:memory"
	maxStats  = 1000 // lines
	maxText   = 64 << 10
)

// MarkerItem is the item of a server's marker.
type MarkerItem struct {
	conn    io.Writer
	answers *bufio.Reader
}

// NewMarkerItem returns the item on that connection, on which nothing else is under way.
func NewMarkerItem(conn net.Conn) MarkerItem {
	return MarkerItem{conn, bufio.NewReaderSize(conn, MaxLine)}
}

// Read returns the item's text and its version.
func (m MarkerItem) Read() (text string, version uint64, found bool, err error) {
	if _, err = io.WriteString(m.conn, "gets "+markerKey+"\r\n"); err == nil {
		text, version, found, err = readItem(m.answers, markerKey)
	}
	return text, version, found, m.explain("asked for", err)
}

// Add writes the item unless there is one.
func (m MarkerItem) Add(text string) (added bool, err error) {
	line, err := m.put("add", text, "")
	switch {
	case err != nil:
	case string(line) == "STORED\r\n":
		added = true
	case isError(line):
		err = store.ErrRefused
	case string(line) != "NOT_STORED\r\n":
		err = nonsense(line)
	}
	return added, m.explain("asked for", err)
}

// Swap writes the item if it still has that version. What a server refuses is not written.
func (m MarkerItem) Swap(text string, version uint64) (swapped bool, err error) {
	line, err := m.put("cas", text, fmt.Sprint(" ", version))
	switch answer := string(line); {
	case err != nil:
	case answer == "STORED\r\n":
		swapped = true
	case answer != "EXISTS\r\n" && answer != "NOT_FOUND\r\n" && !isError(line):
		err = nonsense(line)
	}
	return swapped, m.explain("replaced", err)
}

func (m MarkerItem) put(verb, text, version string) (line []byte, err error) {
	if _, err := fmt.Fprintf(m.conn, "%s %s 0 0 %d%s\r\n%s\r\n", verb, markerKey, len(text), version, text); err != nil {
		return nil, err
	}
	return m.answers.ReadSlice('\n')
}

// explain says of an error what was done. That more came than was asked for is one.
func (m MarkerItem) explain(did string, err error) error {
	if err == nil && m.answers.Buffered() > 0 {
		err = fmt.Errorf("%w: more than was asked for", errNonsense)
	}
	if err != nil {
		err = fmt.Errorf("%s the item %s: %w", did, markerKey, err)
	}
	return err
}

// readItem reads the answer to a gets of one of counterd's own items. A server that
// refuses, and something else in its place, are found too: an empty text, and any.
func readItem(answers *bufio.Reader, key string) (text string, version uint64, found bool, err error) {
	versions := map[string]uint64{}
	items, err := readItems(answers, versions, key)
	if errors.Is(err, store.ErrRefused) {
		return "", 0, true, nil
	}
	text, found = items[key]
	return text, versions[key], found, err
}

// ReadItems reads the answer to a get of some of counterd's own items, those of it that are
// there. One that is too long to be counterd's is empty. After store.ErrRefused the connection can still be used.
func ReadItems(answers *bufio.Reader, keys ...string) (map[string]string, error) {
	return readItems(answers, nil, keys...)
}

// readItems does the same, and takes in the versions where there are any.
func readItems(answers *bufio.Reader, versions map[string]uint64, keys ...string) (map[string]string, error) {
	items := map[string]string{}
	for {
		line, err := answers.ReadSlice('\n')
		switch {
		case err != nil:
			return nil, err
		case string(line) == "END\r\n":
			return items, nil
		case len(items) == 0 && strings.HasPrefix(string(line), unauthenticated):
			return nil, errNoCredentials
		case len(items) == 0 && isError(line):
			return nil, store.ErrRefused
		}
		fields := strings.Fields(string(line))
		if len(fields) < 4 || fields[0] != "VALUE" || !slices.Contains(keys, fields[1]) {
			return nil, nonsense(line)
		}
		if _, twice := items[fields[1]]; twice {
			return nil, nonsense(line)
		}
		if versions != nil && len(fields) > 4 {
			if versions[fields[1]], err = strconv.ParseUint(fields[4], 10, 64); err != nil {
				return nil, nonsense(line)
			}
		}
		if items[fields[1]], err = readText(answers, fields[3]); err != nil {
			return nil, err
		}
	}
}

// readText reads the text of an item of that size, and what ends it. One that is too long to
// be counterd's is left out.
func readText(answers *bufio.Reader, length string) (text string, err error) {
	size, err := strconv.Atoi(length)
	if err != nil || size < 0 {
		return "", nonsense([]byte(length))
	}
	if size > maxText {
		_, err = answers.Discard(size)
	} else {
		data := make([]byte, size)
		_, err = io.ReadFull(answers, data)
		text = string(data)
	}
	if err != nil {
		return "", err
	}
	line, err := answers.ReadSlice('\n')
	if err == nil && string(line) != "\r\n" {
		err = nonsense(line)
	}
	return text, err
}

// isError reports whether the line is an error in good form.
func isError(line []byte) bool {
	return strings.HasPrefix(string(line), "ERROR") || strings.HasPrefix(string(line), "SERVER_ERROR") || strings.HasPrefix(string(line), "CLIENT_ERROR")
}

// Stats is what a server says of itself, as far as it does.
type Stats struct {
	Uptime    time.Duration
	Time      int64 // Unix second, by its clock as it started
	Items     int64
	Bytes     int64
	MaxBytes  int64
	Evictions int64 // items dropped, since its start, that had not expired
	Flushes   int64 // flush_all, since its start
}

// FetchStats asks for the statistics of a server.
func FetchStats(conn io.ReadWriter) (Stats, error) {
	var stats Stats
	if _, err := io.WriteString(conn, "stats\r\n"); err != nil {
		return stats, err
	}
	answers, known := bufio.NewReaderSize(conn, MaxLine), false
	for range maxStats {
		line, err := answers.ReadSlice('\n')
		if err != nil {
			return stats, err
		}
		fields := strings.Fields(string(line))
		switch {
		case len(fields) == 1 && fields[0] == "END" && known:
			return stats, nil
		case len(fields) < 2 || fields[0] != "STAT":
			return stats, nonsense(line)
		case len(fields) == 3:
			known = stats.take(fields[1], fields[2]) || known
		}
	}
	return stats, fmt.Errorf("%w: statistics without an end", errNonsense)
}

// take reports whether the statistic is the one that is needed.
func (stats *Stats) take(name, value string) (needed bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	switch name {
	case "uptime":
		stats.Uptime = time.Duration(n) * time.Second
	case "time":
		stats.Time = n
	case "curr_items":
		stats.Items = n
	case "bytes":
		stats.Bytes = n
	case "limit_maxbytes":
		stats.MaxBytes = n
	case "cmd_flush":
		stats.Flushes = n
	case "evictions":
		stats.Evictions = n
		return true
	}
	return false
}
