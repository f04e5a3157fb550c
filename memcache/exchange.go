package memcache

import (
	"errors"
	"strconv"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// add adds to one bucket and returns what it holds then. A bucket that is not
// there is created by Memcached's add, which one process wins; who loses
// increments what the winner made. It may expire in between: then again, until
// the trip's deadline ends it.
func add(client *gomemcache.Client, key string, by int64, expiration int32) (int64, error) {
	for {
		value, err := client.Increment(key, uint64(by))
		if err == nil && (value > maxCount || value < uint64(by)) { // Memcached wraps at 2^64
			return 0, errNoCount
		}
		if !errors.Is(err, gomemcache.ErrCacheMiss) {
			return int64(value), err
		}
		err = client.Add(&gomemcache.Item{
			Key: key, Value: strconv.AppendInt(nil, by, 10), Expiration: expiration,
		})
		if !errors.Is(err, gomemcache.ErrNotStored) {
			return by, err
		}
	}
}

// get reads buckets on the lane in one multi-get. A bucket that is not there is zero. Where
// versions is not nil it is set to those of the items.
func (e *exchange) get(l *lane, reads []uint64, values []int64, versions []uint64) error {
	if len(reads) == 0 {
		return nil
	}
	c := newCall()
	c.get(e.hash, reads, versions)
	if err := l.get(c); err != nil {
		return err
	}
	copy(values, c.values)
	fault := c.fault
	c.free()
	return fault
}
