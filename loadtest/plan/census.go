package plan

import (
	"time"

	"github.com/counterd/counterd/hierarchy"
)

// census counts the buckets of the counters of one kind that are there.
type census struct {
	counters counters
	config   Config
	known    map[string]int32
	each     []member
	read     []int64 // by counter and process: when it last read what it then remembers, in ns
	levels   [hierarchy.Levels]row
	live     row // counters by the coarsest bucket that they had last
	hits     int
	reads    int // hits that had to read what is remembered for a second
	days     int // of all features
	kept     demand
}

// member is one counter: its bucket of each level that came last.
type member struct {
	last   [hierarchy.Levels]int64
	beside [hierarchy.Levels]bool // the one before that was there
	day    int64                  // on which it was last hit
}

// never is no bucket.
const never = -1 << 62

func newCensus(c counters, config Config) *census {
	s := &census{counters: c, config: config, known: map[string]int32{}}
	for l := c.finest; l <= c.coarsest; l++ {
		s.levels[l].level = l
	}
	s.live.level = c.coarsest
	return s
}

// expire forgets the buckets that are gone at the second.
func (s *census) expire(second int64) {
	for l := s.counters.finest; l <= s.counters.coarsest; l++ {
		s.levels[l].expire(second, s)
	}
	s.live.expire(second, s)
}

// add counts an event.
func (s *census) add(id string, at time.Time, process int) {
	s.hits++
	index, known := s.known[id]
	if !known {
		index = int32(len(s.each))
		s.known[id] = index
		s.each = append(s.each, member{last: [hierarchy.Levels]int64{never, never, never, never}, day: never})
		for range s.config.Processes {
			s.read = append(s.read, never)
		}
	}
	m := &s.each[index]
	if day := hierarchy.BucketAt(hierarchy.Day, at.Unix()).Number; m.day != day {
		m.day = day
		s.days++
	}
	if read := &s.read[int(index)*s.config.Processes+process]; at.UnixNano()-*read >= int64(time.Second) || *read == never {
		*read = at.UnixNano()
		s.reads++
	}
	if !s.counters.shut {
		s.addTo(m, at.Unix())
	}
}

func (s *census) addTo(m *member, second int64) {
	for l := s.counters.finest; l <= s.counters.coarsest; l++ {
		bucket, row := hierarchy.BucketAt(l, second), &s.levels[l]
		if m.last[l] != bucket.Number {
			row.begin(bucket.Number)
			m.beside[l] = m.last[l] == bucket.Number-1
			if l == s.counters.coarsest {
				s.live.leave(m.last[l])
				s.live.begin(bucket.Number)
			}
			m.last[l] = bucket.Number
		}
		row.add()
		if m.beside[l] {
			row.beside++
		}
	}
}

// items returns how many there are.
func (s *census) items() (sum float64) {
	for _, row := range s.levels {
		sum += float64(row.items)
	}
	return sum
}

// keep keeps how many there are now, as the most.
func (s *census) keep() {
	for l := range s.levels {
		row := &s.levels[l]
		s.kept.levels[l].items = float64(row.items)
		if row.items > 0 {
			s.kept.levels[l].value = float64(row.events) / float64(row.items)
		}
	}
	s.kept.live = float64(s.live.items)
}

// demand returns what was counted in so many seconds.
func (s *census) demand(seconds float64) demand {
	d := s.kept
	d.hits = float64(s.hits) / seconds
	d.features = float64(s.days) / max(seconds/daySeconds, 1)
	d.again, d.peakAgain = 1, 1
	if s.hits == 0 {
		return d
	}
	d.again = float64(s.reads) / float64(s.hits)
	d.peakAgain = d.again
	for l := range s.levels {
		row := &s.levels[l]
		d.levels[l].made = float64(row.made) / float64(s.hits)
		d.levels[l].aDay = float64(row.made) / float64(s.days)
		d.levels[l].beside = float64(row.beside) / float64(s.hits)
	}
	return d
}

// row is the buckets of a level that are there, of all counters, the oldest first.
type row struct {
	level  hierarchy.Level
	tally  []tally
	items  int
	events int
	made   int // ever
	beside int // events whose counter had the bucket before, ever
}

// tally is the buckets of one number.
type tally struct {
	number        int64
	items, events int
}

// begin has one bucket more of that number, which is no lower than any before.
func (r *row) begin(number int64) {
	if n := len(r.tally); n == 0 || r.tally[n-1].number != number {
		r.tally = append(r.tally, tally{number: number})
	}
	r.tally[len(r.tally)-1].items++
	r.items++
	r.made++
}

// add adds an event to a bucket of the last number.
func (r *row) add() {
	r.tally[len(r.tally)-1].events++
	r.events++
}

// leave has one bucket less of that number, if it is there.
func (r *row) leave(number int64) {
	for i := len(r.tally) - 1; i >= 0; i-- {
		if r.tally[i].number == number {
			r.tally[i].items--
			r.items--
			return
		}
	}
}

// expire forgets those that are gone at the second.
func (r *row) expire(second int64, s *census) {
	for len(r.tally) > 0 {
		oldest := r.tally[0]
		if (hierarchy.Bucket{Level: r.level, Number: oldest.number}).Expires(s.counters.counter.Retention, s.config.Grace) > second {
			return
		}
		r.items -= oldest.items
		r.events -= oldest.events
		r.tally = r.tally[1:]
	}
}
