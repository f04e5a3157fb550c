package memcache

import (
	"fmt"

	"github.com/counterd/counterd/internal/store"
)

// This is what an Embedded store keeps of bytes.

const (
	// maxDataBytes is the size of the largest item of bytes, as it is Memcached's.
	maxDataBytes = 1 << 20
	// dataBytes is what an item of bytes is reckoned to take beside them.
	dataBytes = 128
)

// data is an item of bytes.
type data struct {
	value   []byte
	change  uint64 // its version
	expires int64  // Unix second
}

func (d *data) bytes() int64 { return dataBytes + int64(cap(d.value)) }

// keep makes the writes and reads of an op with data, as far as the first that fails.
func (e *Embedded) keep(c *counter, op *store.Op, now int64) error {
	for i := range op.Writes {
		if err := e.put(c, &op.Writes[i], now); err != nil {
			return err
		}
		op.Receipt = store.Acknowledged(i + 1)
	}
	for i := range op.Reads {
		if err := c.readData(&op.Reads[i], now); err != nil {
			return err
		}
	}
	return nil
}

// put makes a write of bytes.
func (e *Embedded) put(c *counter, w *store.Write, now int64) error {
	w.Result = 0
	d, err := c.dataOf(w.Item, now)
	switch {
	case err != nil && w.Kind != store.Put:
		return err
	case len(w.Data) > maxDataBytes:
		return fmt.Errorf("memcache: %d bytes are more than an item holds, %d", len(w.Data), maxDataBytes)
	case w.Kind == store.Append && (d == nil || len(d.value)+len(w.Data) > maxDataBytes),
		w.Kind == store.Create && d != nil,
		w.Kind == store.Swap && (d == nil || d.change != w.Version):
		return nil
	}
	w.Result = 1
	if w.Kind == store.Append {
		c.kept -= d.bytes()
		d.value = append(d.value, w.Data...)
	} else {
		c.drop(w.Item)
		delete(c.buckets, w.Item)
		d = &data{value: append([]byte(nil), w.Data...), expires: max(w.Expires, now+1)}
		if c.data == nil {
			c.data = map[uint64]*data{}
		}
		c.data[w.Item] = d
		c.expires = max(c.expires, d.expires)
	}
	d.change = e.change.Add(1)
	c.kept += d.bytes()
	return nil
}

// readData reads an item of bytes.
func (c *counter) readData(r *store.Read, now int64) error {
	d, err := c.dataOf(r.Item, now)
	r.Value, r.Version, r.Data = 0, 0, r.Data[:0]
	if d == nil {
		return err
	}
	r.Version, r.Data = store.Version(0, d.change), append(r.Data, d.value...)
	return nil
}

// dataOf returns an item of bytes; nil: it is not there.
func (c *counter) dataOf(id uint64, now int64) (*data, error) {
	if b := c.buckets[id]; b.expires > now {
		return nil, store.ErrNoData
	}
	if d := c.data[id]; d != nil && d.expires > now {
		return d, nil
	}
	return nil, nil
}

// isData reports whether one of the items of an op that counts is of bytes.
func (c *counter) isData(op *store.Op, now int64) bool {
	if len(c.data) == 0 {
		return false
	}
	for i := range op.Writes {
		if d := c.data[op.Writes[i].Item]; d != nil && d.expires > now {
			return true
		}
	}
	for i := range op.Reads {
		if d := c.data[op.Reads[i].Item]; d != nil && d.expires > now {
			return true
		}
	}
	return false
}

// drop removes an item of bytes.
func (c *counter) drop(id uint64) {
	if d := c.data[id]; d != nil {
		c.kept -= d.bytes()
		delete(c.data, id)
	}
}
