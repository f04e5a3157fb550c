package hierarchy

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// openItem is the item that lists the open reservations of a counter: the second until which the item lives, and a
// record of each reservation and of each settlement. A denied hit reads it, to report whether it may fit when
// reservations are given back. Records may be missing, so the list never decides an admission.
const openItem = uint64(store.OtherLevels+4) << store.NumberBits

const (
	openHead   = 9 // a byte of the format, and the second until which the item lives
	openRecord = 32
	// In bytes: of a longer item the rest is not read, a longer item is rewritten, and is then no longer than that.
	maxOpenRead    = 16 << 10
	maxOpenList    = 4 << 10
	maxOpenRewrite = 2 << 10
)

// appendOpen appends the record of a reservation. A cost of 0 makes it the record of the settlement.
func appendOpen(b []byte, r engine.Reserved, cost int64) []byte {
	b = binary.BigEndian.AppendUint64(b, r.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Time))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Ends))
	return binary.BigEndian.AppendUint64(b, uint64(cost))
}

func appendOpenHead(expires int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{1}, uint64(expires))
}

// openReservations are the reservations of a counter that have not ended, by their ID. A settled one stays as the zero
// value, so that no record that is read later opens it again.
type openReservations map[uint64]engine.Reserved

// read adds the records of an item, and returns the second until which the item lives. If the item is not of this
// format, or claims to live too long, read adds nothing and returns 0.
func (o openReservations) read(item []byte, now int64) (expires int64) {
	if len(item) < openHead || item[0] != 1 || (len(item)-openHead)%openRecord != 0 {
		return 0
	}
	expires = int64(binary.BigEndian.Uint64(item[1:]))
	if expires > now/1000+3*reservedSeconds {
		return 0
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
	return expires
}

// isOpen reports whether a decided hit has an open reservation. Reservations of rules with count: all are left out,
// since denied tries count there, too, and a client must not be told to try again.
func isOpen(h *engine.Hit) bool { return h.Stays && !h.Counts && h.Ends != 0 && h.Reserved.ID != 0 }

// cost returns the cost of the reservations that were made in the given second or later.
func (o openReservations) cost(first int64) (sum int64) {
	for _, r := range o {
		if r.Time/1000 >= first {
			sum += r.Cost
		}
	}
	return sum
}

// Later returns a function that adds the reservations of the admitted hits to the list, after they were decided. It
// returns nil if there are none, if the session is one of this process alone, or if the store cannot append.
func (s *session) Later() func(context.Context, store.Store) {
	var records []byte
	ends := int64(0)
	for i := range s.hits {
		if h := &s.hits[i]; isOpen(h) {
			records = appendOpen(records, h.Reserved, h.Cost)
			ends = max(ends, h.Ends/1000+1)
		}
	}
	if records == nil || s.moment.Alone || !s.counters.store.Capabilities().Writes.Has(store.Append) {
		return nil
	}
	counter, now := s.id, s.moment.Now.UnixMilli()
	return func(ctx context.Context, st store.Store) { recordOpen(ctx, st, counter, records, ends, now) }
}

// recordOpen appends the records to the counter's list. A list that expires before ends, or is long, is rewritten.
func recordOpen(ctx context.Context, st store.Store, counter string, records []byte, ends, now int64) {
	expires := ends + max(ends-now/1000, 1) // twice as long as the reservation lasts: so it is seldom rewritten
	op := store.Op{
		Counter: counter, Data: true, Versions: true,
		Writes: []store.Write{
			{Kind: store.Create, Item: openItem, Data: appendOpenHead(expires), Expires: expires},
			{Kind: store.Append, Item: openItem, Data: records},
		},
		Reads: []store.Read{{Item: openItem}},
	}
	st.Do(ctx, &op)
	for _, part := range partsOf(&op) {
		open, next := openReservations{}, store.Write{Kind: store.Swap, Item: openItem, Expires: expires}
		switch {
		case errors.Is(part.Err, store.ErrNoData): // another client wrote the item
			next.Kind = store.Put
		case part.Err != nil:
			continue
		default:
			item := part.Reads[0].Data
			lives := open.read(item, now)
			if lives >= ends && len(item) <= maxOpenList {
				continue
			}
			next.Expires, next.Version = max(expires, lives), part.Reads[0].Version
			if len(item) > maxOpenRead { // others append all the time: a swap would lose
				next.Kind = store.Put
			}
		}
		// The append may have failed, or the item is replaced: add these records.
		open.read(append(appendOpenHead(0), records...), now)
		next.Data = appendOpenHead(next.Expires)
		for _, r := range open {
			if r.Cost > 0 && len(next.Data) < maxOpenRewrite {
				next.Data = appendOpen(next.Data, r, r.Cost)
			}
		}
		st.Do(ctx, &store.Op{Counter: counter, Server: part.Server, Data: true, Writes: []store.Write{next}})
	}
}

// openRead is the read of a counter's list.
type openRead struct {
	op       store.Op
	prepared bool
}

// prepareOpenRead prepares the read of the list, once in a session, if this process has seen reservations. It reports
// whether the next round trip makes the read.
func (s *session) prepareOpenRead() bool {
	if s.open.prepared || s.step != searching || s.moment.Alone || !s.counters.reserving.Load() {
		return false
	}
	s.open.prepared = true
	s.open.op = store.Op{Counter: s.id, Data: true, Reads: append(s.open.op.Reads[:0], store.Read{Item: openItem})}
	return true
}

// MayFit reports whether the open reservations that are known cost at least what the hit of the search lacks. Missing
// records may make it false.
func (s *session) MayFit(search int) bool {
	open, now := openReservations{}, s.moment.Now.UnixMilli()
	if s.open.prepared {
		for _, part := range partsOf(&s.open.op) {
			if part.Err == nil {
				open.read(part.Reads[0].Data, now)
			}
		}
	}
	for i := range s.hits {
		if h := &s.hits[i]; isOpen(h) {
			open[h.Reserved.ID] = h.Reserved
		}
	}
	q := &s.searches[search]
	return open.cost(s.all[q.limit].span.edge.First) >= q.lacks
}
