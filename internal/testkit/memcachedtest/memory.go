package memcachedtest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Memory is a Memcached in this process, which a bubble of package synctest can run. It has the
// commands that counterd uses. The battery of package memcache compares it to a real one.
type Memory struct {
	Addr string

	local *local

	mu      sync.Mutex
	resumed sync.Cond // on mu, of paused
	paused  bool
	started time.Time
	items   map[string]memoryItem
	version uint64
	flushes int
}

type memoryItem struct {
	value   string
	flags   string
	expires int64 // Unix second; zero means never
	version uint64
}

// memoryItemSize is the size of the largest item.
const memoryItemSize = 1 << 20

// StartMemory runs a server until the test ends.
func StartMemory(tb testing.TB) *Memory {
	m := &Memory{}
	m.resumed.L = &m.mu
	m.begin()
	m.Addr, m.local = listen(tb, func(_ int, conn net.Conn) { m.serve(conn) })
	tb.Cleanup(m.Resume)
	return m
}

func (m *Memory) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started, m.items = time.Now(), map[string]memoryItem{}
	m.version, m.flushes = 0, 0
}

// Stop ends all connections, and refuses new ones.
func (m *Memory) Stop() { m.local.refuse() }

// Restart runs the server again, empty, after Stop.
func (m *Memory) Restart() {
	m.begin()
	m.local.accept()
}

// Pause makes the server answer nothing until Resume.
func (m *Memory) Pause() { m.pause(true) }

// Resume lets a paused server go on.
func (m *Memory) Resume() { m.pause(false) }

func (m *Memory) pause(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = paused
	m.resumed.Broadcast()
}

// Ask returns the lines of the answer to one command, without the END.
func (m *Memory) Ask(command string) (lines []string) {
	line, body, _ := strings.Cut(command, "\r\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	for line := range strings.Lines(m.answer(strings.Fields(line), body)) {
		lines = append(lines, strings.TrimSuffix(line, "\r\n"))
	}
	if n := len(lines); n > 0 && lines[n-1] == "END" {
		lines = lines[:n-1]
	}
	return lines
}

// Connections returns how many connections are open.
func (m *Memory) Connections() int {
	m.local.mu.Lock()
	defer m.local.mu.Unlock()
	return len(m.local.conns)
}

func (m *Memory) serve(conn net.Conn) {
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words, body := strings.Fields(line), ""
		if len(words) > 4 && slices.Contains([]string{"add", "set", "append", "cas"}, words[0]) {
			size, _ := strconv.Atoi(words[4])
			text := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, text); err != nil {
				return
			}
			body = string(text[:size])
		}
		m.mu.Lock()
		for m.paused {
			m.resumed.Wait()
		}
		answer := m.answer(words, body)
		m.mu.Unlock()
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// answer executes a command, with mu held.
func (m *Memory) answer(words []string, body string) string {
	if len(words) == 0 {
		return "ERROR\r\n"
	}
	switch name := words[0]; name {
	case "get", "gets":
		return m.get(words[1:], name == "gets")
	case "add", "set", "append", "cas":
		return m.store(words, body)
	case "incr", "decr":
		delta, _ := strconv.ParseUint(words[2], 10, 64)
		if _, found := m.find(words[1]); !found {
			return "NOT_FOUND\r\n"
		}
		value, ok := m.count(words[1], delta, name == "decr")
		if !ok {
			return notNumeric
		}
		return value + "\r\n"
	case "delete":
		if m.delete(words[1]) {
			return "DELETED\r\n"
		}
		return "NOT_FOUND\r\n"
	case "ma", "mg", "md":
		return m.meta(words)
	case "mn":
		return "MN\r\n"
	case "version":
		return "VERSION 1.6.38\r\n"
	case "flush_all":
		clear(m.items)
		m.flushes++
		return "OK\r\n"
	case "stats":
		return m.stats()
	case "lru_crawler":
		var list strings.Builder
		for _, key := range slices.Sorted(maps.Keys(m.items)) {
			if item, found := m.find(key); found {
				expires := item.expires
				if expires == 0 {
					expires = -1
				}
				fmt.Fprintf(&list, "key=%s exp=%d la=0 cas=%d fetch=no cls=1 size=100\r\n", key, expires, item.version)
			}
		}
		return list.String() + "END\r\n"
	}
	return "ERROR\r\n"
}

const notNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"

// find returns an item that has not expired.
func (m *Memory) find(key string) (memoryItem, bool) {
	item, found := m.items[key]
	return item, found && (item.expires == 0 || item.expires > time.Now().Unix())
}

func (m *Memory) set(key string, item memoryItem) {
	m.version++
	item.version = m.version
	m.items[key] = item
}

func (m *Memory) delete(key string) (found bool) {
	_, found = m.find(key)
	delete(m.items, key)
	return found
}

func (m *Memory) get(keys []string, versions bool) string {
	var answer strings.Builder
	for _, key := range keys {
		item, found := m.find(key)
		if !found {
			continue
		}
		version := ""
		if versions {
			version = fmt.Sprint(" ", item.version)
		}
		fmt.Fprintf(&answer, "VALUE %s %s %d%s\r\n%s\r\n", key, item.flags, len(item.value), version, item.value)
	}
	return answer.String() + "END\r\n"
}

func (m *Memory) store(words []string, body string) string {
	key := words[1]
	before, found := m.find(key)
	after := memoryItem{value: body, flags: words[2], expires: expiry(words[3])}
	switch {
	case len(body) > memoryItemSize-200:
		return "SERVER_ERROR object too large for cache\r\n"
	case words[0] == "add" && found, words[0] == "append" && !found:
		return "NOT_STORED\r\n"
	case words[0] == "cas" && !found:
		return "NOT_FOUND\r\n"
	case words[0] == "cas" && words[5] != fmt.Sprint(before.version):
		return "EXISTS\r\n"
	case words[0] == "append" && len(before.value)+len(body) > memoryItemSize-200:
		return "NOT_STORED\r\n"
	case words[0] == "append":
		after = before
		after.value += body
	}
	m.set(key, after)
	return "STORED\r\n"
}

// expiry returns the Unix second of an argument.
func expiry(text string) int64 {
	const longest = 30 * 24 * 60 * 60
	seconds, _ := strconv.ParseInt(text, 10, 64)
	switch {
	case seconds == 0 || seconds > longest:
		return seconds
	case seconds < 0:
		return 1
	}
	return time.Now().Unix() + seconds
}

// count adds to an item, or subtracts, and returns its value.
func (m *Memory) count(key string, delta uint64, subtracts bool) (value string, ok bool) {
	item := m.items[key]
	n, err := strconv.ParseUint(strings.TrimRight(item.value, " "), 10, 64)
	if err != nil {
		return "", false
	}
	if subtracts {
		delta = -min(delta, n)
	}
	value = fmt.Sprint(n + delta)
	item.value = fmt.Sprintf("%-*s", len(item.value), value) // an item does not become shorter
	m.set(key, item)
	return value, true
}

// meta executes ma, mg or md.
func (m *Memory) meta(words []string) string {
	flags, tag := map[byte]string{}, ""
	for _, flag := range words[2:] {
		flags[flag[0]] = flag[1:]
		if flag[0] == 'O' {
			tag = " " + flag
		}
	}
	key := words[1]
	item, found := m.find(key)
	create, creates := flags['N']
	switch {
	case words[0] == "md" && found:
		m.delete(key)
		return "HD" + tag + "\r\n"
	case words[0] == "mg" && !found:
		return "EN\r\n"
	case words[0] == "mg":
		return metaItem(item, words[2:])
	case !found && !creates: // and md
		return "NF" + tag + "\r\n"
	case !found:
		item = memoryItem{value: flags['J'], flags: "0", expires: expiry(create)}
		m.set(key, item)
	default:
		delta, _ := strconv.ParseUint(flags['D'], 10, 64)
		value, ok := m.count(key, delta, flags['M'] == "D")
		if !ok {
			return notNumeric
		}
		item.value = value
	}
	if _, wanted := flags['v']; wanted {
		return fmt.Sprintf("VA %d%s\r\n%s\r\n", len(item.value), tag, item.value)
	}
	return "HD" + tag + "\r\n"
}

// metaItem returns the answer to an mg.
func metaItem(item memoryItem, flags []string) string {
	head, body := "HD", ""
	if slices.Contains(flags, "v") {
		head, body = fmt.Sprint("VA ", len(item.value)), item.value+"\r\n"
	}
	for _, flag := range flags {
		switch flag[0] {
		case 'c':
			head += fmt.Sprint(" c", item.version)
		case 'f':
			head += " f" + item.flags
		case 't':
			ttl := int64(-1)
			if item.expires != 0 {
				ttl = item.expires - time.Now().Unix()
			}
			head += fmt.Sprint(" t", ttl)
		case 'O':
			head += " " + flag
		}
	}
	return head + "\r\n" + body
}

func (m *Memory) stats() string {
	var stats strings.Builder
	bytes := 0
	for key, item := range m.items {
		bytes += len(key) + len(item.value)
	}
	for _, stat := range []struct {
		name  string
		value int64
	}{
		{"uptime", int64(time.Since(m.started) / time.Second)},
		{"time", time.Now().Unix()},
		{"curr_items", int64(len(m.items))},
		{"bytes", int64(bytes)},
		{"limit_maxbytes", 64 << 20},
		{"cmd_flush", int64(m.flushes)},
		{"evictions", 0},
	} {
		fmt.Fprintf(&stats, "STAT %s %d\r\n", stat.name, stat.value)
	}
	return stats.String() + "END\r\n"
}
