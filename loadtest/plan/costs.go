package plan

import (
	"cmp"
	"time"
)

// Costs are CPU times.
type Costs struct {
	// Memcached's, of each trip, and of each add, each item that an add makes, and each
	// read in it.
	Trip, Add, New, Read time.Duration
	// counterd's, of each request, and of each trip that it makes.
	Request, Exchange time.Duration
	From              string // where they are from, in a sentence
	// Of a hit as a whole, on all counters and with all copies, in place of those; 0: those.
	MemcachedHit, CounterdHit time.Duration
}

// DefaultCosts are those of docs/performance.md, made by loadtest bench: of an open model
// at half of what the machine can do (B13: 15.6 and 64.2 µs a hit). Parts are told apart by
// other rows: A9 less A3 is 33 reads, B4 is adds that share all else, A8 less A3 is new
// items. A hit costs less the busier the processes are, since more share each call of the
// system: half of it at full load (B2).
func DefaultCosts() Costs {
	return Costs{
		From: "CPU times are those of docs/performance.md, of its machine at half load (loadtest bench, row B13): -calibrate measures them here, -memcached-cpu-per-hit and -counterd-cpu-per-hit set them.",
		Trip: 11400 * time.Nanosecond, Add: 800 * time.Nanosecond, New: 500 * time.Nanosecond, Read: 740 * time.Nanosecond,
		Request: 52 * time.Microsecond, Exchange: 12200 * time.Nanosecond,
	}
}

// times returns so many of the duration, in seconds.
func times(d time.Duration, n float64) float64 { return d.Seconds() * n }

// withDefaults returns the costs with those that are left out.
func (c Costs) withDefaults() Costs {
	if c.Trip != 0 {
		return c
	}
	standard := DefaultCosts()
	standard.MemcachedHit, standard.CounterdHit, standard.From = c.MemcachedHit, c.CounterdHit, cmp.Or(c.From, standard.From)
	return standard
}
