package hierarchy

import "context"

// Store keeps the buckets of counters. Package memcache has two: a fleet of
// Memcached servers, and one in process.
//
// A counter is named by a string of arbitrary bytes, a bucket by a number below
// 1<<40 that means something only together with its counter. A bucket that is
// not there counts zero. Every method is safe for concurrent use. It ends by the
// deadline of its context and puts a bound of its own on the time it takes; a
// context that is canceled keeps it from beginning, but does not cut it short.
type Store interface {
	// Trip makes one exchange with the server that holds the counter. It adds by
	// to each of the buckets in adds, in their order, each one in place before
	// the next is touched, and then, all adds in place, reads those in reads. A
	// bucket that is not there is created to expire at the Unix second in
	// expires, which is as long as adds; one that is there keeps its own.
	//
	// Trip sets values, which is as long as adds and reads together, to what
	// each add made of its bucket and then to what each read found. It returns
	// how many adds, from the first on, were acknowledged. With an error, the
	// values of those are good and all others are not; of the adds behind
	// them any may have taken place, but none before the one ahead of it. No add
	// is ever sent twice.
	Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error)

	// TakeBack subtracts by from each of the buckets that is there, to zero at the
	// least; it creates none. With an error some may not have been subtracted
	// from. No subtraction is ever sent twice. Each bucket may take a round trip.
	TakeBack(ctx context.Context, counter string, by int64, buckets []uint64) error

	// Delete removes the buckets, in their order, each one gone before the next
	// is touched. Buckets that are not there are no error. With an error some of
	// them may be left. Each bucket may take a round trip.
	Delete(ctx context.Context, counter string, buckets []uint64) error
}

// Starter is a Store that can have many trips of one caller under way without a
// goroutine for each. A Limiter makes use of it for hits on several counters.
type Starter interface {
	Store
	// Start begins what Trip makes, and returns without waiting for it. The function
	// wait does, and returns what Trip would have; it has to be called, once. Until it
	// has returned the slices are the trip's.
	Start(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (wait func() (landed int, err error))
}

// Rememberer is a Store that may lose what it has kept, and knows when it has. A Limiter
// makes use of it to say which limits were decided on less than a whole window.
type Rememberer interface {
	Store
	// Since returns the Unix second since which nothing of the counter was lost; 0: as
	// far as is known nothing ever was. It is asked for every decision, after its trips,
	// and asks nobody.
	Since(counter string) int64
}
