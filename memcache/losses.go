package memcache

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A server that restarts, is flushed or is full forgets, and says nothing. So each has
// one item without expiry, its marker, put there by the first process that finds none.
// As long as it is the same the server has forgotten nothing (but what a full one
// evicts, which it counts itself). It is read whenever a connection of the meta path is
// opened, before that is used, and every few seconds.
const (
	markerKey = "counterd:memory"

	// lookEvery is the time between two looks at a server, give or take a quarter;
	// lookAgain the shortest, where there is reason for one.
	lookEvery = 5 * time.Second
	lookAgain = time.Second
	// noStatsFor is how long a server is not asked for statistics that had none.
	noStatsFor = time.Minute
	maxStats   = 1000 // lines

	// maxAhead is by how many seconds the clock of a marker's writer may be ahead. So much
	// younger than the oldest may the markers of a fleet be that was new.
	maxAhead = 5
	// A loss is of interest to nobody after the longest window, at the most longestWindow,
	// and a day.
	longestWindow = 30 * 24 * time.Hour
	day           = 24 * time.Hour
)

// marker is the item's content: when it was written, and what tells it from others.
type marker struct {
	second int64  // Unix, by the writer's clock
	random uint64 // below 1<<randomBits
	// afterLoss: the writer knew that the fleet had held counters before. So processes that
	// start later know of the loss even where every server has lost what it held.
	afterLoss bool
}

const (
	// randomBits are few enough for the item to fit Memcached's smallest chunk: a full
	// server keeps it and the counters in one order.
	randomBits = 36
	// lossMark begins a marker that was written after a loss. Versions that do not know it
	// read it as the sign of the second.
	lossMark = "+"
)

func (m marker) String() string {
	if m.afterLoss {
		return fmt.Sprintf("%s%d %09x", lossMark, m.second, m.random)
	}
	return fmt.Sprintf("%d %010x", m.second, m.random)
}

// marked returns the marker as one after a loss.
func (m marker) marked() marker {
	m.afterLoss = true
	return m
}

// parseMarker returns the zero marker for what is none.
func parseMarker(text string) marker {
	second, random, _ := strings.Cut(text, " ")
	var m marker
	var faults [2]error
	m.afterLoss = strings.HasPrefix(second, lossMark)
	m.second, faults[0] = strconv.ParseInt(second, 10, 64)
	m.random, faults[1] = strconv.ParseUint(random, 16, 64)
	if faults[0] != nil || faults[1] != nil || m.second <= 0 {
		return marker{}
	}
	return m
}

// lossDetectors detect the losses of the servers of a fleet.
type lossDetectors struct {
	since atomic.Int64 // the latest of the servers'; 0: none has lost anything

	retention func() time.Duration // or nil

	mu      sync.Mutex // of what follows, and of the servers' memories
	oldest  int64      // the second of the oldest marker seen; 0: none was
	held    bool       // a server that is no longer used held counters before this process
	servers map[*server]struct{}
}

// lossDetector detects the losses of one server.
type lossDetector struct {
	since atomic.Int64   // the Unix second since which it is whole; 0: always, as far as is known
	all   *lossDetectors // nil: nobody wants to know

	known       marker
	repaired    marker // what was lost before it was repaired, as far as it can be
	before      marker // the one before that: a process that reads it late reports no new loss
	from        int64  // the second of the known one, as far as it can be trusted
	seen        int64  // when it was read last
	lost        int64  // what was before is lost, and not repaired
	lostForGood int64  // what was before is lost on all replicas: too many servers lost it at once
	// wasEmpty: when this process began to use the server, it held no counter that the
	// process may not know: it was empty, or was added to the list.
	wasEmpty bool
	evicting bool // because the server is full
	counted  bool // its evictions were
	stats    ServerStats
	noStats  time.Time // until when it is not asked for them
	other    string    // which other secret there was when it was last looked for; empty: none
}

// ServerStats is what a server says of itself, as far as it does.
type ServerStats struct {
	Uptime    time.Duration
	Items     int64
	Bytes     int64
	MaxBytes  int64
	Evictions int64 // items dropped, since its start, that had not expired
}

// join has the server's memory be one of the fleet's.
func (m *lossDetector) join(all *lossDetectors, s *server, added bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.servers == nil {
		all.servers = map[*server]struct{}{}
	}
	m.all, m.wasEmpty = all, added
	all.servers[s] = struct{}{}
}

func (m *lossDetector) leave(s *server) {
	if m.all == nil {
		return
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	delete(m.all.servers, s)
	m.all.held = m.all.held || !m.wasEmpty
	m.all.weigh(s.clock().Unix())
}

// since returns the Unix second since which the server has forgotten nothing; 0: as far
// as is known it never has.
func (s *server) since() int64 { return s.losses.since.Load() }

// newMarker returns the marker for a server that has none.
func (s *server) newMarker() marker {
	m, now := &s.losses, s.clock().Unix()
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	afterLoss := m.known != marker{} || m.all.oldest != 0 && now > m.all.oldest+maxAhead
	return marker{now, rand.Uint64N(1 << randomBits), afterLoss}
}

// learnMarker takes in a marker that was read, or put there where there was none, and what
// it says of the others. It reports whether the marker has to be marked as one after a loss:
// a process that did not know of the loss was the first to write it.
func (s *server) learnMarker(read marker, own bool) (mark bool) {
	m, now := &s.losses, s.clock().Unix()
	m.all.mu.Lock()
	if m.known != (marker{}) && read != m.known && read != m.before && !read.afterLoss {
		read, mark = read.marked(), true // also where an earlier try did not arrive
	}
	if read == m.known {
		m.seen = now
	}
	if read == m.known || read == m.before {
		m.all.mu.Unlock()
		return mark
	}
	s.gap() // what is being mended now is not mended for this
	m.from = read.second
	if read.second > now+maxAhead {
		m.from = now
	}
	if m.known != (marker{}) {
		m.lost, m.evicting = max(m.from, m.seen), false
		if other := m.known; !other.afterLoss && read == other.marked() {
			m.wasEmpty = false // there were counters before this process began
		}
	} else {
		m.wasEmpty = m.wasEmpty || own
	}
	m.before, m.known, m.seen = m.known, read, now
	if m.all.oldest == 0 || m.from < m.all.oldest {
		m.all.oldest = m.from
	}
	news := m.all.weigh(now)
	m.all.mu.Unlock()
	tell(news)
	return mark
}

// weigh finds since when each server's memory is whole, with mu held. It returns those
// that have lost more than was known.
func (all *lossDetectors) weigh(now int64) (news []*server) {
	latest := int64(0)
	for s := range all.servers {
		m := &s.losses
		since := max(m.unrepaired(), m.lostForGood)
		if since < now-all.lossLasts() {
			since = 0
		}
		if since > m.since.Swap(since) {
			news = append(news, s)
		}
		latest = max(latest, since)
	}
	all.since.Store(latest)
	return news
}

// unrepaired returns the Unix second of the latest loss that was not repaired; 0: there is
// none. The fleet's memories are locked.
func (m *lossDetector) unrepaired() int64 {
	// The server came back empty before this process began to look; or it was added, and
	// others had its counters.
	if m.known != m.repaired && (m.known.afterLoss || m.from > m.all.oldest+maxAhead) {
		return max(m.lost, m.from)
	}
	return m.lost
}

// settle ends a loss that a repair has followed. What was not there to be repaired stays
// lost. The fleet's memories are locked.
func (m *lossDetector) settle(repaired bool) {
	if !repaired {
		m.lostForGood = max(m.lostForGood, m.unrepaired())
	}
	m.repaired, m.lost = m.known, 0
}

// remembers returns for how long any counter is remembered.
func (all *lossDetectors) longestRetention() time.Duration {
	if all.retention != nil {
		return all.retention()
	}
	return longestWindow
}

// lossLasts returns for how many seconds a loss can affect a window.
func (all *lossDetectors) lossLasts() int64 {
	return int64((all.longestRetention() + day) / time.Second)
}

func tell(news []*server) {
	for _, s := range news {
		if s.health().Evicting {
			s.changed(Evicting)
		} else {
			s.changed(Emptied)
		}
	}
}

// note takes in the statistics, and how many of the items are none of a counter's.
func (s *server) note(stats ServerStats, others int64) {
	m, now := &s.losses, s.clock().Unix()
	m.all.mu.Lock()
	grown := stats.Evictions - m.stats.Evictions
	if grown < 0 {
		grown = stats.Evictions // it began again
	}
	if m.counted && grown > 0 && now > m.lost {
		m.lost, m.evicting = now, true
	}
	if !m.counted && m.before == (marker{}) { // it has lost nothing before the first look
		m.wasEmpty = stats.Evictions == 0 && (m.wasEmpty || stats.Items <= others)
	}
	m.counted, m.stats = true, stats
	s.fleet.set.Forget(now - m.all.lossLasts())
	news := m.all.weigh(now)
	m.all.mu.Unlock()
	tell(news)
}

// watch looks at the server every now and then, until the context ends: so an outage is
// noticed where there is no traffic, a flush where no connection breaks, and that a full
// server evicts.
func (s *server) watch(ctx context.Context) {
	// Not at once: the first connections are for those who wait.
	for pause := min(lookAgain, s.pace); s.rest(ctx, pause); pause = s.pace*3/4 + rand.N(s.pace/2) {
		if s.up() {
			s.inspect(ctx)
		}
	}
}

// rest waits for the pause, or for less where there is reason to look. It reports
// whether the context goes on.
func (s *server) rest(ctx context.Context, pause time.Duration) bool {
	began, timer := time.Now(), time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.pokes:
		timer.Reset(min(lookAgain, s.pace) - time.Since(began))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}

// poke has watch look at the server soon.
func (s *server) poke() {
	select {
	case s.pokes <- struct{}{}:
	default:
	}
}

// inspect looks at the server, and again where it does not answer, until it counts as
// down.
func (s *server) inspect(ctx context.Context) {
	for range maxFailures {
		err := s.look(ctx, time.Now().Add(s.pipeline.timeout), nil)
		if err == nil || !isOutage(err) || ctx.Err() != nil || !s.up() {
			return
		}
		s.failed(err)
	}
}

// look reads the marker, the mark of secrets and the statistics on a connection of its
// own. first is nil where it is not the first look at the whole fleet.
func (s *server) look(ctx context.Context, deadline time.Time, first *participant) error {
	conn, err := s.dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := s.checkMarker(conn, first); err != nil {
		return err
	}
	if secrets, err := s.compareSecrets(conn); err == nil { // else the connection is of no more use
		s.lookAtStats(conn, int64(secrets)+1)
	}
	return nil
}

// barrier makes the first looks at the servers of a fleet read all markers before one of
// them writes a marker. If another server has an old marker, a server without one has lost
// its own.
type barrier struct {
	missing atomic.Int64  // participants that have not arrived
	arrived chan struct{} // closed when all have
	maxWait time.Duration
}

func newBarrier(n int, maxWait time.Duration) *barrier {
	b := &barrier{arrived: make(chan struct{}), maxWait: maxWait}
	b.missing.Store(int64(n))
	return b
}

func (b *barrier) participant() *participant {
	return &participant{barrier: b, arrive: sync.OnceFunc(func() {
		if b.missing.Add(-1) == 0 {
			close(b.arrived)
		}
	})}
}

// participant is one look at a server. It arrives when it has read the marker, or cannot.
type participant struct {
	*barrier
	arrive func()
}

// wait arrives, and waits for the other participants, at most for maxWait.
func (p *participant) wait() {
	p.arrive()
	timer := time.NewTimer(p.maxWait)
	defer timer.Stop()
	select {
	case <-p.arrived:
	case <-timer.C:
	}
}

// checkMarker reads the marker, and writes one where there is none. What makes it an error
// is a connection that is of no use.
func (s *server) checkMarker(conn net.Conn, first *participant) error {
	if s.losses.all == nil || s.pace < 0 {
		return nil
	}
	answers := bufio.NewReaderSize(conn, maxLine)
	m, own, err := s.fetchMarker(conn, answers, first)
	switch {
	case err != nil:
		return fmt.Errorf("asked for the item %s: %w", markerKey, err)
	case answers.Buffered() > 0:
		return fmt.Errorf("asked for the item %s: %w: more than was asked for", markerKey, errNonsense)
	case m != marker{}:
		if s.learnMarker(m, own) {
			if err := s.markLoss(conn, answers, m.marked()); err != nil {
				return err
			}
		}
	}
	if first != nil {
		first.arrive()
	}
	return nil
}

// markLoss replaces the marker that was read by the same one, marked. All who knew an older
// marker write the same.
func (s *server) markLoss(conn io.Writer, answers *bufio.Reader, m marker) error {
	if _, err := fmt.Fprintf(conn, "replace %s 0 0 %d\r\n%s\r\n", markerKey, len(m.String()), m); err != nil {
		return fmt.Errorf("replaced the item %s: %w", markerKey, err)
	}
	line, err := answers.ReadSlice('\n')
	switch {
	case err != nil:
		return fmt.Errorf("replaced the item %s: %w", markerKey, err)
	case answers.Buffered() > 0:
		return fmt.Errorf("replaced the item %s: %w: more than was asked for", markerKey, errNonsense)
	case string(line) != "STORED\r\n" && string(line) != "NOT_STORED\r\n" && !isError(line):
		return fmt.Errorf("replaced the item %s: %w", markerKey, nonsense(line))
	}
	return nil // what was not stored is tried again with the next look
}

// fetchMarker returns the marker, and whether it is this process's own: the server had
// none. It returns the zero marker where the server takes none, or has something else in its
// place.
func (s *server) fetchMarker(conn io.Writer, answers *bufio.Reader, first *participant) (read marker, own bool, err error) {
	for range 3 { // somebody else may be putting one there at the same time
		if _, err := io.WriteString(conn, "get "+markerKey+"\r\n"); err != nil {
			return marker{}, false, err
		}
		text, found, err := readItem(answers, markerKey)
		if found || err != nil {
			return parseMarker(text), false, err
		}
		if first != nil {
			first.wait()
		}
		anew := s.newMarker()
		if _, err := fmt.Fprintf(conn, "add %s 0 0 %d\r\n%s\r\n", markerKey, len(anew.String()), anew); err != nil {
			return marker{}, false, err
		}
		line, err := answers.ReadSlice('\n')
		switch {
		case err != nil:
			return marker{}, false, err
		case string(line) == "STORED\r\n":
			return anew, true, nil
		case isError(line):
			return marker{}, false, nil
		case string(line) != "NOT_STORED\r\n":
			return marker{}, false, nonsense(line)
		}
	}
	return marker{}, false, nil
}

// readItem reads the answer to a get of one of counterd's own items. A server that
// refuses, and something else in its place, are found too: an empty text, and any.
func readItem(answers *bufio.Reader, key string) (text string, found bool, err error) {
	items, err := readItems(answers, key)
	text, found = items[key]
	return text, found, err
}

// readItems reads the answer to a get of some of counterd's own items, those of it that are
// there. Of a server that refuses all are, and are empty.
func readItems(answers *bufio.Reader, keys ...string) (map[string]string, error) {
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
			for _, key := range keys {
				items[key] = ""
			}
			return items, nil
		}
		fields := strings.Fields(string(line))
		if len(fields) < 4 || fields[0] != "VALUE" || !slices.Contains(keys, fields[1]) {
			return nil, nonsense(line)
		}
		if _, twice := items[fields[1]]; twice {
			return nil, nonsense(line)
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
	if size > maxLine/2 {
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

// lookAtStats takes in the statistics of a server that has any. Many proxies have none,
// and some hang up: that says nothing of the server. So many of its items are none of a
// counter's.
func (s *server) lookAtStats(conn net.Conn, others int64) {
	s.losses.all.mu.Lock()
	rest := time.Now().Before(s.losses.noStats)
	s.losses.all.mu.Unlock()
	if rest {
		return
	}
	stats, err := fetchStats(conn)
	if err != nil {
		s.losses.all.mu.Lock()
		s.losses.noStats = time.Now().Add(noStatsFor)
		s.losses.all.mu.Unlock()
		return
	}
	s.note(stats, others)
}

func fetchStats(conn io.ReadWriter) (ServerStats, error) {
	var stats ServerStats
	if _, err := io.WriteString(conn, "stats\r\n"); err != nil {
		return stats, err
	}
	answers, known := bufio.NewReaderSize(conn, maxLine), false
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
func (stats *ServerStats) take(name, value string) (needed bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	switch name {
	case "uptime":
		stats.Uptime = time.Duration(n) * time.Second
	case "curr_items":
		stats.Items = n
	case "bytes":
		stats.Bytes = n
	case "limit_maxbytes":
		stats.MaxBytes = n
	case "evictions":
		stats.Evictions = n
		return true
	}
	return false
}
