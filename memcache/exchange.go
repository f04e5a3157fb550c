package memcache

import (
	"bytes"
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

// readInto reads the keys in one multi-get. A key that is not there is zero.
func readInto(values []int64, client *gomemcache.Client, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	items, err := client.GetMulti(keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		values[i] = 0
		if item := items[key]; item != nil {
			if values[i], err = parseValue(item.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseValue reads a counter's value. Memcached pads one that has become shorter
// with blanks.
func parseValue(b []byte) (int64, error) {
	value, err := strconv.ParseInt(string(bytes.TrimRight(b, " ")), 10, 64)
	if err != nil {
		return 0, errors.New("a bucket's item holds no number")
	}
	return value, nil
}
