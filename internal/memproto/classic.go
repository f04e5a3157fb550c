package memproto

import (
	"errors"
	"strconv"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/counterd/counterd/internal/store"
)

// The classic path: one trip at a time on each connection. gomemcache makes the changes; a
// pooled connection reads by itself.

// Do makes a round trip, write by write. It returns how many writes the server acknowledged.
func (l *Conn) Do(hash store.Hash, op *store.Op, writes []store.Write, now time.Time) (landed int, err error) {
	for i := range writes {
		if err := l.write(keyOf(hash, writes[i].Item), op.Data, &writes[i], now); err != nil {
			return landed, err
		}
		landed++
	}
	if len(op.Reads) == 0 {
		return landed, nil
	}
	return landed, l.readAll(hash, op)
}

// Ping asks the server whether it is there.
func (l *Conn) Ping() error { return l.client.Ping() }

// write makes one write.
func (l *Conn) write(key string, data bool, w *store.Write, now time.Time) (err error) {
	switch w.Kind {
	case store.Add:
		w.Result, err = add(l.client, key, w.By, expiration(w.Expires, now))
		return err
	case store.Subtract:
		_, err = l.client.Decrement(key, uint64(w.By))
	case store.Delete:
		err = l.client.Delete(key)
	default:
		return l.set(key, data, w, now)
	}
	if errors.Is(err, gomemcache.ErrCacheMiss) {
		return nil
	}
	return err
}

// set writes a count or data, if the item is not there or if it has the version, or anyway; or
// appends to it.
func (l *Conn) set(key string, data bool, w *store.Write, now time.Time) (err error) {
	item := &gomemcache.Item{
		Key: key, Value: w.Data, Flags: dataFlags, Expiration: expiration(w.Expires, now), CasID: changeOf(w.Version),
	}
	if !data {
		item.Value, item.Flags = strconv.AppendInt(nil, w.By, 10), 0
	}
	switch {
	case w.Kind == store.Create:
		err = l.client.Add(item)
	case w.Kind == store.Append:
		err = l.client.Append(item)
	case w.Kind == store.Put:
		err = l.client.Set(item)
	case l.reaches(w.Version):
		err = l.client.CompareAndSwap(item)
	default:
		return ErrUnread
	}
	switch {
	case errors.Is(err, gomemcache.ErrNotStored), errors.Is(err, gomemcache.ErrCASConflict), errors.Is(err, gomemcache.ErrCacheMiss):
		w.Result = 0 // it has changed, or is there
		return nil
	case err == nil:
		w.Result = 1
	}
	return err
}

// readAll makes the reads in one multi-get. An item that is not there is zero. An item that
// holds no count leaves the others good.
func (l *Conn) readAll(hash store.Hash, op *store.Op) error {
	c := newCall(&calls)
	c.get(hash, op.Reads, op.Versions || op.Data)
	c.data = op.Data
	if err := l.get(c); err != nil {
		return err
	}
	c.takeResults(op.Reads)
	fault := c.fault
	c.free()
	return fault
}

// add adds to one bucket and returns what it holds then. Memcached's add creates a missing
// bucket, and one process wins; the losers increment what the winner made. It may expire in
// between: then again, until the trip's deadline ends it.
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
