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
	// what was acknowledged of the adds: 0 says nothing, any other number something
	// to the store alone, which wants it back in RollBack. With an error the values
	// are of no use; of the adds that were not acknowledged any may have taken place,
	// but none before the one ahead of it. No add is ever sent twice. An error that wraps
	// strconv.ErrSyntax says that a bucket of the counter holds no count: the store is well.
	//
	// Where a store keeps copies of a counter, a value is the largest that any copy
	// gave, and one copy that has made the whole trip is enough.
	Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (landed int, err error)

	// RollBack subtracts by from each bucket of the adds of a trip, wherever the trip's
	// landed says that the add was acknowledged and the bucket is still there, to zero
	// at the least; it creates none. It begins with the last of them: what is in one
	// bucket of the adds is in those before it, on the way out as on the way in. With
	// an error some may not have been subtracted from. No subtraction is ever sent
	// twice. Each bucket may take a round trip.
	RollBack(ctx context.Context, counter string, by int64, adds []uint64, landed int) error

	// Delete removes the buckets, in their order, each one gone before the next
	// is touched, every copy of them. Buckets that are not there are no error. With
	// an error some of them may be left. Each bucket may take a round trip.
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

// Copier is a Store that keeps copies of each counter on several servers.
type Copier interface {
	Store
	// Replicas returns how many copies it keeps, 1 or more, always the same.
	Replicas() int
	// Owe has those copies that did not acknowledge the adds of a trip get them later:
	// by, at the most what the trip added, is what stays of it. A copy may count it
	// twice then, never not at all while this process lives. It does not wait, and does
	// not keep the slices.
	Owe(counter string, by int64, adds []uint64, expires []int64, landed int)
}

// copierOf returns the store if it keeps several copies of each counter, else nil.
func copierOf(store Store) Copier {
	if copier, keepsCopies := store.(Copier); keepsCopies && copier.Replicas() > 1 {
		return copier
	}
	return nil
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

// Mendable is a Store whose copies of a counter can be compared and made good one by
// one, for a Repairer.
type Mendable interface {
	Copier
	// Copies returns the names of those servers that have the counter and are up.
	Copies(counter string) []string
	// Look reads buckets as one server has them, one after the other in their order, and
	// the version of each: a number that changes with each change of the bucket, 0 where
	// it is not there. The last two slices are as long as the first.
	Look(ctx context.Context, counter, server string, buckets []uint64, values []int64, versions []uint64) error
	// Raise sets a bucket on one server, to expire at the Unix second, if it still has
	// that version; where that is 0, if it is still not there. It reports whether it
	// did. With an error it may have. It is never sent twice.
	Raise(ctx context.Context, counter, server string, bucket, version uint64, value, expires int64) (bool, error)
	// Differing returns counters whose copies were seen to differ since the last call.
	Differing() []string
	// Gaps returns a number that grows whenever a server may have missed something.
	Gaps() uint64
}
