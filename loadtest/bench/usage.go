package bench

import (
	"os"
	"runtime"
	"time"

	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/process"
)

// usage is what some work took. As a reading it is what has been taken since the
// beginning of each process; what a slice took is the difference of two.
type usage struct {
	ops     int64
	elapsed time.Duration

	client, server time.Duration // CPU time of this process and of the server
	mallocs        int64         // of this process
	clientCalls    int64         // reads and writes of the system by this process
	serverCalls    int64         // and by the server
	trips          int64
	adds, reads    int64           // buckets, as the engine asked for them
	stats          memcached.Stats // Memcached's own
}

// plus returns the two together.
func (u usage) plus(v usage) usage {
	return usage{
		u.ops + v.ops, u.elapsed + v.elapsed, u.client + v.client, u.server + v.server, u.mallocs + v.mallocs,
		u.clientCalls + v.clientCalls, u.serverCalls + v.serverCalls, u.trips + v.trips, u.adds + v.adds,
		u.reads + v.reads, u.stats.Plus(v.stats),
	}
}

// minus returns what u has more than v.
func (u usage) minus(v usage) usage {
	return usage{
		u.ops - v.ops, u.elapsed - v.elapsed, u.client - v.client, u.server - v.server, u.mallocs - v.mallocs,
		u.clientCalls - v.clientCalls, u.serverCalls - v.serverCalls, u.trips - v.trips, u.adds - v.adds,
		u.reads - v.reads, u.stats.Minus(v.stats),
	}
}

// each returns a figure for each operation.
func (u usage) each(figure int64) float64 { return float64(figure) / float64(u.ops) }

// rate returns the operations of a second.
func (u usage) rate() float64 { return float64(u.ops) / u.elapsed.Seconds() }

// reader takes the readings of one subject.
type reader struct {
	subject *subject
	before  usage
}

// begin takes the reading ahead of a slice; end that behind it, and returns the
// difference. What costs this process least to read is read nearest to the slice.
func (r *reader) begin() (err error) {
	if r.before, err = r.subject.readOthers(); err != nil {
		return err
	}
	return r.readSelf(&r.before)
}

func (r *reader) end() (usage, error) {
	var after usage
	if err := r.readSelf(&after); err != nil {
		return after, err
	}
	others, err := r.subject.readOthers()
	if err != nil {
		return after, err
	}
	return after.plus(others).minus(r.before), nil
}

// readSelf adds what this process has taken to a reading.
func (r *reader) readSelf(to *usage) error {
	var err error
	if to.clientCalls, err = process.Calls(os.Getpid()); err != nil {
		return err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	to.mallocs = int64(memory.Mallocs)
	to.client, err = process.CPU(os.Getpid())
	return err
}

// readOthers returns what the other processes have taken, and what was counted.
func (s *subject) readOthers() (usage, error) {
	var u usage
	var err error
	if s.counted != nil {
		u.trips, u.adds, u.reads = s.counted.Trips.Load(), s.counted.Adds.Load(), s.counted.Reads.Load()
	}
	if s.memcached != nil {
		if u.stats, err = s.memcached.Stats(); err != nil {
			return u, err
		}
	}
	if s.server != nil {
		if u.serverCalls, err = process.Calls(s.server.PID()); err != nil {
			return u, err
		}
		if u.server, err = process.CPU(s.server.PID()); err != nil {
			return u, err
		}
	}
	return u, nil
}
