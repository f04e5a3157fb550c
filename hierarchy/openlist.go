package hierarchy

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// openItem lists the open reservations of a counter: the second until which the item lives, and a record of each
// reservation and of each settlement. Whoever checks the counter reads it, to report whether a denied hit may fit when
// reservations are given back. Records may be missing, so the list never decides an admission.
const openItem = uint64(store.OtherLevels+4) << store.NumberBits

const (
	openHead   = 9 // a byte of the format, and the second until which the item lives
	openRecord = 32
	// In bytes. The rest of a longer item is not read. A longer list is rewritten, and then no longer than that.
	maxOpenRead    = 16 << 10
	maxOpenList    = 4 << 10
	maxOpenRewrite = 2 << 10
)

// openList is the list of a counter in a batch: reservations that have not ended, by their ID. A settled one stays as
// the zero value, so that no record that is read later opens it again.
type openList map[uint64]engine.Reserved

// planList reads the list, once in a batch.
func (c *counter) planList() {
	if c.open != nil {
		return
	}
	c.open = openList{}
	if c.planned = c.engine.appends; c.planned {
		c.list = store.Op{Counter: c.tally.ID, Data: true, Reads: append(c.list.Reads[:0], store.Read{Item: openItem})}
	}
}

// cost returns the cost of the open reservations that were made in the given second or later.
func (o openList) cost(first int64) (cost int64) {
	for _, r := range o {
		if r.Time/1000 >= first {
			cost += r.Cost
		}
	}
	return cost
}

// isOpen reports whether a decided hit has an open reservation. Reservations of rules with count: all are left out,
// since denied tries count there, too, and a client must not be told to try again.
func isOpen(a *limiter.Addition) bool {
	return a.Kept && !a.Counts && a.Ends != 0 && a.Reserved.ID != 0
}

// listReservations adds the reservations of the kept hits to the list, in the background.
func (c *counter) listReservations() {
	var records []byte
	ends := int64(0)
	for i := range c.tally.Adds {
		if a := &c.tally.Adds[i]; isOpen(a) {
			records = appendOpen(records, a.Reserved, a.Cost)
			ends = max(ends, a.Ends/1000+1)
		}
	}
	if len(records) > 0 && c.added && c.engine.appends {
		counter, now := c.tally.ID, c.at.Time.UnixMilli()
		store.Later(c.engine.base.Store, func(ctx context.Context, s store.Store) { recordOpen(ctx, s, counter, records, ends, now) })
	}
}

// recordOpen appends the records to the counter's list. A list that expires before ends, or is long, is
// rewritten. Records that others append in between are lost.
func recordOpen(ctx context.Context, s store.Store, counter string, records []byte, ends, now int64) {
	expires := ends + max(ends-now/1000, 1) // twice as long as the reservation lasts: so it is seldom rewritten
	op := store.Op{
		Counter: counter, Data: true,
		Writes: []store.Write{
			{Kind: store.Create, Item: openItem, Data: appendOpenHead(expires), Expires: expires},
			{Kind: store.Append, Item: openItem, Data: records},
		},
		Reads: []store.Read{{Item: openItem}},
	}
	s.Do(ctx, &op)
	for _, part := range partsOf(&op) {
		open, lives := openList{}, int64(0)
		switch {
		case errors.Is(part.Err, store.ErrNoData): // another client wrote the item
		case part.Err != nil:
			continue
		default:
			item := part.Reads[0].Data
			lives, _ = openExpires(item, now)
			if lives >= ends && len(item) <= maxOpenList {
				continue
			}
			open.read(item, now)
		}
		open.read(append(appendOpenHead(0), records...), now) // the append may have failed
		next := store.Write{Kind: store.Put, Item: openItem, Expires: max(expires, lives)}
		next.Data = appendOpenHead(next.Expires)
		for _, r := range open {
			if r.Cost > 0 && len(next.Data) < maxOpenRewrite {
				next.Data = appendOpen(next.Data, r, r.Cost)
			}
		}
		s.Do(ctx, &store.Op{Counter: counter, Server: part.Server, Data: true, Writes: []store.Write{next}})
	}
}

// appendOpen appends the record of a reservation. A cost of 0 makes it the record of the settlement.
func appendOpen(b []byte, r engine.Reserved, cost int64) []byte {
	for _, word := range [...]uint64{r.ID, uint64(r.Time), uint64(r.Ends), uint64(cost)} {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	return b
}

func appendOpenHead(expires int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{1}, uint64(expires))
}

// openExpires returns the second until which the item lives. If the item is not of this format, or claims to live too
// long, ok is false.
func openExpires(item []byte, now int64) (expires int64, ok bool) {
	if len(item) < openHead || item[0] != 1 || (len(item)-openHead)%openRecord != 0 {
		return 0, false
	}
	expires = int64(binary.BigEndian.Uint64(item[1:]))
	if expires > now/1000+3*reservedSeconds {
		return 0, false
	}
	return expires, true
}

// read adds the records of an item, if openExpires accepts it.
func (o openList) read(item []byte, now int64) {
	if _, ok := openExpires(item, now); !ok {
		return
	}
	for b := item[openHead:min(len(item), maxOpenRead)]; len(b) >= openRecord; b = b[openRecord:] {
		word := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
		r := engine.Reserved{ID: uint64(word(0)), Time: word(1), Ends: word(2), Cost: word(3)}
		_, known := o[r.ID]
		switch {
		// No process writes such a record.
		case r.ID>>engine.IDBits != 0, r.Cost < 0, r.Cost > engine.MaxBy, r.Ends-r.Time > reservedSeconds*1000:
		case r.Cost == 0:
			o[r.ID] = engine.Reserved{}
		case !known && r.Ends > now:
			o[r.ID] = r
		}
	}
}
