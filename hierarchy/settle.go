package hierarchy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// receiptLevel is the level of items that say what reservations were settled with.
const receiptLevel = store.OtherLevels + 1

// settleTries is how often a call creates the receipt, until each replica has answered.
const settleTries = 3

// errTaken is the error of a reservation whose item another one has, one in 2^35 of those on the counter, or another
// client. It is never settled: what was reserved stays.
var errTaken = fmt.Errorf("%w: another item is in the place of its receipt", engine.ErrEnded)

// settling is what settles one reservation.
type settling struct {
	of      *Counters
	counter events.Counter
	engine.Reserved
	cost int64
	call uint64 // tells the receipts of this call from those of others
}

// Settle settles a reservation at most once on each replica: the item with its receipt, which is created if
// it is not there, says that it was, and by which call. What was not used is subtracted after that, so that a
// call which is broken off leaves what was reserved, or a part of it. What was used besides is added before:
// such a call then leaves too much. A call whose answer is lost creates its receipt again, and finds its own.
// What was reserved before a reset stays as the reset left it. A settlement that is under way during a reset
// may take from what comes right after. See [engine.Counting].
func (c *Counters) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	now := c.now()
	if now.UnixMilli() >= r.Ends {
		return engine.ErrEnded
	}
	if r.Ahead > 0 {
		return &engine.AheadError{After: r.Ahead}
	}
	c.reserving.Store(true)
	s := settling{c, events.Counter{Retention: r.Retention, Precision: r.Precision}, r, cost, rand.Uint64()}
	defer func() {
		c.cache.forget(r.Counter)
		c.base.Changes.Of(r.Counter).Add(1)
	}()
	kept, decided, err := s.look(ctx)
	if err == nil && !decided.first {
		s.cost = decided.cost // that of a call under way, perhaps
		decided, err = s.decide(ctx, kept)
	}
	if err == nil && decided.cost != cost {
		err = fmt.Errorf("%w: %d", engine.ErrSettled, decided.cost)
	}
	return err
}

// decide creates the receipt, adds what was used besides, and takes it back if another call was faster. Where
// this call has created the receipt it subtracts what was not used, whichever call decides.
func (s *settling) decide(ctx context.Context, kept bool) (d decision, err error) {
	var added store.Receipt
	if s.cost > s.Cost {
		if added, err = s.of.addTo(ctx, s.cost-s.Cost, s.Time/1000, s.counter, s.Counter); err != nil {
			return d, err
		}
	}
	if d, err = s.create(ctx); err != nil {
		return d, err
	}
	if s.cost > s.Cost && !d.own {
		err = s.subtract(ctx, added, s.cost-s.Cost)
	}
	if by := s.Cost - d.cost; by > 0 && kept && !d.created.None() {
		err = errors.Join(err, s.subtract(ctx, d.created, by))
	}
	return d, err
}

// look returns whether what the hit has added is there yet, and what it was settled with before. A reset changes
// the epoch. After a loss the coarser buckets hold what came since, and the finest does not.
func (s *settling) look(ctx context.Context) (kept bool, before decision, err error) {
	finest := store.Op{Counter: s.Counter, Reads: []store.Read{{Item: s.adds()[0].Item}, {Item: epochItem}}}
	receipt := store.Op{Counter: s.Counter, Data: true, Reads: []store.Read{{Item: s.item()}}}
	s.of.store.Do(ctx, &finest, &receipt)
	if finest.Err != nil {
		return false, before, engine.StoreError(finest.Err)
	}
	before, err = s.decision(&receipt)
	kept = finest.Reads[0].Value >= s.Reserved.Cost && inEpoch(s.ID, finest.Reads[1].Value) == s.ID
	return kept, before, err
}

// Renew returns an error: a reservation in buckets is no lease.
func (c *Counters) Renew(_ context.Context, r engine.Reserved, _ time.Duration) (engine.Reserved, error) {
	return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
}

// decision is what a reservation was settled with, by the receipt on the first replica: to the others calls may
// come in another order.
type decision struct {
	cost    int64         // by the first receipt that there is; none: of the call
	first   bool          // it is on the first replica that answers
	own     bool          // this call has created it
	created store.Receipt // on which replicas this call has created one, as of the adds of the hit
}

// create creates the receipt where there is none. It does so again while an answer is missing, which may have
// been lost.
func (s *settling) create(ctx context.Context) (d decision, err error) {
	for range settleTries {
		op := store.Op{
			Counter: s.Counter, Data: true,
			Writes: []store.Write{
				{Kind: store.Create, Item: s.item(), Data: s.receipt(), Expires: s.Ends/1000 + 2*engine.CeilSeconds(s.of.grace) + 1},
				{Kind: store.Append, Item: openItem, Data: appendOpen(nil, s.Reserved, 0)},
			},
			Reads: []store.Read{{Item: s.item()}},
		}
		s.of.store.Do(ctx, &op)
		d, err = s.decision(&op)
		if err == nil && !slices.ContainsFunc(op.Replicas, func(part store.Op) bool { return part.Err != nil }) {
			break
		}
	}
	return d, err
}

// decision returns what the replicas say.
func (s *settling) decision(op *store.Op) (decision, error) {
	d := decision{cost: s.cost}
	if errors.Is(op.Err, store.ErrNoData) {
		return d, errTaken
	}
	if op.Err != nil {
		return d, engine.StoreError(op.Err)
	}
	d.created.List = op.Receipt.List
	want, found, missing := s.receipt(), false, false
	for i, part := range partsOf(op) {
		receipt := part.Reads[0].Data
		created := bytes.Equal(receipt, want)
		switch {
		case part.Err != nil:
			continue
		case len(receipt) == 0:
			missing = true
			continue
		case len(receipt) != receiptBytes || !bytes.Equal(receipt[:identityBytes], want[:identityBytes]):
			return d, errTaken
		case !found:
			found, d.first, d.own = true, !missing, created
			if d.cost = int64(binary.BigEndian.Uint64(receipt[identityBytes:])); d.cost < 0 || d.cost > engine.MaxBy {
				return d, errTaken
			}
		}
		if created {
			d.created.Acknowledged[i] = uint32(len(s.adds()))
		}
	}
	return d, nil
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
	receiptBytes  = identityBytes + 16
)

// receipt returns what the item holds: a version, the identity of the reservation, the cost, and the call.
func (s *settling) receipt() []byte {
	b := binary.BigEndian.AppendUint64(append(make([]byte, 0, receiptBytes), 1), s.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Time))
	b = binary.BigEndian.AppendUint64(b, uint64(s.cost))
	return binary.BigEndian.AppendUint64(b, s.call)
}

// epochItem is the item of a counter whose value is its epoch: each reset adds to it by chance. A hit that reserves
// reads it after its adds.
const (
	epochItem = uint64(store.OtherLevels+2) << store.NumberBits
	epochBits = 20
)

// inEpoch returns the ID with the epoch in its upper bits, which are no part of the number of its receipt.
func inEpoch(id uint64, epoch int64) uint64 {
	return id&(1<<(engine.IDBits-epochBits)-1) | uint64(epoch)<<(64-epochBits)>>(64-engine.IDBits)
}
