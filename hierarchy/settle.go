package hierarchy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// receiptLevel is the level of items that say what reservations were settled with.
const receiptLevel = store.OtherLevels + 1

// errTaken is the error of a reservation whose item another one has. What was reserved stays.
var errTaken = fmt.Errorf("%w: the receipt of another reservation is in the way", engine.ErrStore)

// settling is what settles one reservation.
type settling struct {
	of      *Counters
	counter events.Counter
	engine.Reserved
	cost int64
}

// Settle settles a reservation at most once on each replica: the item with its receipt, which is created if
// it is not there, says that it was. What was not used is subtracted after that, so that a call which is
// broken off leaves what was reserved, or a part of it. What was used besides is added before: such a call
// then leaves too much. See [engine.Counting].
func (c *Counters) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	now := c.now()
	if now.UnixMilli() >= r.Ends {
		return engine.ErrEnded
	}
	s := settling{c, events.Counter{Retention: r.Retention, Precision: r.Precision}, r, cost}
	defer func() {
		c.cache.forget(r.Counter, now)
		c.base.Changes.Of(r.Counter).Add(1)
	}()
	if cost > r.Cost {
		return s.raise(ctx)
	}
	c.use(r.Counter, s.counter, now)
	kept, err := s.isKept(ctx)
	if err != nil {
		return err
	}
	created, err := s.create(ctx)
	if err != nil || cost == r.Cost || created.None() || !kept {
		return err
	}
	return s.subtract(ctx, created, r.Cost-cost)
}

// isKept reports whether what the hit has added is there yet. After a reset, or a loss, the coarser buckets
// hold what came since, and the finest does not.
func (s *settling) isKept(ctx context.Context) (bool, error) {
	finest, err := s.of.read(ctx, s.Counter, []Bucket{bucketOf(s.adds()[0].Item)})
	return err == nil && finest[0] >= s.Reserved.Cost, err
}

// Renew returns an error: a reservation in buckets is no lease.
func (c *Counters) Renew(_ context.Context, r engine.Reserved, _ time.Duration) (engine.Reserved, error) {
	return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
}

// raise adds what was used besides, unless there is a receipt already, and takes it back if another call was
// faster.
func (s *settling) raise(ctx context.Context) error {
	op := store.Op{Counter: s.Counter, Data: true, Reads: []store.Read{{Item: s.item()}}}
	s.of.store.Do(ctx, &op)
	if found, err := s.found(&op); found || err != nil {
		return err
	}
	added, err := s.of.addTo(ctx, s.cost-s.Cost, s.Time/1000, s.counter, s.Counter)
	if err != nil {
		return err
	}
	created, err := s.create(ctx)
	if err == nil && !created.None() {
		return nil
	}
	if err == nil || errors.Is(err, engine.ErrSettled) {
		if undo := s.subtract(ctx, added, s.cost-s.Cost); undo != nil {
			return undo
		}
	}
	return err
}

// create creates the receipt where there is none, and says on which replicas that was, as a receipt of the
// adds of the hit.
func (s *settling) create(ctx context.Context) (created store.Receipt, err error) {
	op := store.Op{
		Counter: s.Counter, Data: true,
		Writes: []store.Write{{Kind: store.Create, Item: s.item(), Data: s.receipt(), Expires: s.Ends/1000 + 2*engine.CeilSeconds(s.of.grace) + 1}},
		Reads:  []store.Read{{Item: s.item()}},
	}
	s.of.store.Do(ctx, &op)
	if _, err := s.found(&op); err != nil {
		return store.Receipt{}, err
	}
	created.List = op.Receipt.List
	for i, part := range partsOf(&op) {
		if part.Err == nil && part.Writes[0].Result == 1 {
			created.Acknowledged[i] = uint32(len(s.adds()))
		}
	}
	return created, nil
}

// found reports whether a replica has a receipt. It is an error if that is of another cost.
func (s *settling) found(op *store.Op) (bool, error) {
	if op.Err != nil {
		return false, engine.StoreError(op.Err)
	}
	found, want := false, s.receipt()
	for _, part := range partsOf(op) {
		receipt := part.Reads[0].Data
		switch {
		case part.Err != nil, len(receipt) == 0:
		case len(receipt) != receiptBytes || !bytes.Equal(receipt[:identityBytes], want[:identityBytes]):
			return false, errTaken
		case !bytes.Equal(receipt, want):
			return false, fmt.Errorf("%w: %d", engine.ErrSettled, binary.BigEndian.Uint64(receipt[identityBytes:]))
		default:
			found = true
		}
	}
	return found, nil
}

// partsOf returns what each replica made of the op.
func partsOf(op *store.Op) []store.Op {
	if len(op.Replicas) == 0 {
		return []store.Op{*op}
	}
	return op.Replicas
}

// subtract subtracts a part of what the hit has added, or a raise.
func (s *settling) subtract(ctx context.Context, receipt store.Receipt, by int64) error {
	var undo store.Op
	undo.RollBack(s.Counter, s.adds(), receipt, by)
	s.of.store.Do(context.WithoutCancel(ctx), &undo)
	if undo.Err != nil {
		return engine.StoreError(undo.Err)
	}
	return nil
}

func (s *settling) adds() []store.Write { return s.of.addsOf(nil, s.counter, s.Time/1000) }

// item returns the item of the receipt.
func (s *settling) item() uint64 { return store.Item(receiptLevel, int64(s.ID)) }

const (
	identityBytes = 17
	receiptBytes  = identityBytes + 8
)

// receipt returns what the item holds: a version, the identity of the reservation, and the cost.
func (s *settling) receipt() []byte {
	b := binary.BigEndian.AppendUint64(append(make([]byte, 0, receiptBytes), 1), s.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Time))
	return binary.BigEndian.AppendUint64(b, uint64(s.cost))
}
