package memcache

import (
	"context"
	"errors"
	"strconv"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/counterd/counterd/store"
)

// The classic path: one trip at a time on each connection. gomemcache makes the changes; a
// pooled connection reads by itself.

// classicOp makes the round trip on the pooled connection, write by write.
func (e *exchange) classicOp(l *pooledConn) error {
	e.landed = 0
	prefix := e.hash.prefix()
	for i := range e.writes {
		key := string(appendKey(make([]byte, 0, keyLetters), &prefix, e.writes[i].Item))
		if err := e.classicWrite(l.client, key, &e.writes[i]); err != nil {
			return err
		}
		e.landed++
	}
	return e.get(l)
}

func (e *exchange) classicWrite(client *gomemcache.Client, key string, w *store.Write) (err error) {
	switch w.Kind {
	case store.Add:
		w.Result, err = add(client, key, w.By, expiration(w.Expires, e.clock))
		return err
	case store.Subtract:
		_, err = client.Decrement(key, uint64(w.By))
	case store.Delete:
		err = client.Delete(key)
	default:
		return e.set(client, key, w)
	}
	if errors.Is(err, gomemcache.ErrCacheMiss) {
		return nil
	}
	return err
}

// set writes a count, if the item is not there or if it has the version.
func (e *exchange) set(client *gomemcache.Client, key string, w *store.Write) (err error) {
	item := &gomemcache.Item{
		Key: key, Value: strconv.AppendInt(nil, w.By, 10), Expiration: expiration(w.Expires, e.clock), CasID: w.Version,
	}
	if w.Kind == store.Create {
		err = client.Add(item)
	} else {
		err = client.CompareAndSwap(item)
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

// get makes the reads on the pooled connection in one multi-get. An item that is not there is zero. An item
// that holds no count leaves the others good.
func (e *exchange) get(l *pooledConn) error {
	if len(e.op.Reads) == 0 {
		return nil
	}
	c := newCall()
	c.get(e.hash, e.op.Reads, e.op.Versions)
	if err := l.get(c); err != nil {
		return err
	}
	c.takeResults(e.op.Reads)
	fault := c.fault
	c.free()
	return fault
}

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

// classic makes the round trip.
func (e *exchange) classic() error {
	e.over = 0 // of the meta path, which was tried before
	return e.server.do(e.ctx, epoch.Add(time.Duration(e.deadline)), e.timeout, e.classicOp)
}

// do makes one trip to the server on a connection of its own, within the deadline and,
// once it has the connection, the timeout.
func (s *server) do(ctx context.Context, deadline time.Time, timeout time.Duration, trip func(*pooledConn) error) error {
	l, err := s.pool.enter(ctx, deadline)
	if err == nil {
		if soon := time.Now().Add(timeout); soon.Before(deadline) {
			l.deadline = soon
		}
		err = l.run(trip)
		s.pool.leave(l)
	}
	return s.wrap(err)
}
