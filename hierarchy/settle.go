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
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	// receiptLevel is the level of receipts: items that contain the cost with which a reservation was settled.
	receiptLevel = store.OtherLevels + 1
	receiptBytes = 33
	// epochItem counts the epoch of a counter: each reset adds to it by chance. A hit that reserves reads it after its
	// adds.
	epochItem = uint64(store.OtherLevels+2) << store.NumberBits
	epochBits = 20

	// settleTries is how often a call creates the receipt, until each replica has answered.
	settleTries = 3
)

// inEpoch returns the ID with the epoch in its upper bits, which are no part of the number of its receipt.
func inEpoch(id uint64, epoch int64) uint64 {
	return id&(1<<(engine.IDBits-epochBits)-1) | uint64(epoch)<<(64-epochBits)>>(64-engine.IDBits)
}

// errTaken is the error of a reservation in the place of whose receipt there is the one of another, one in 2^35 of those
// on the counter, or an item of another client. It is never settled: what was reserved is kept.
var errTaken = fmt.Errorf("%w: another item is in the place of its receipt", engine.ErrEnded)

// A settlement settles one reservation.
type settlement struct {
	engine  *Counters
	counter events.Counter
	adds    []store.Write // of the hit
	engine.Reserved
	cost int64
	call uint64 // tells the receipts of this call from those of others
}

// Settle settles a reservation at most once on each replica, by the call that creates the receipt there. That call
// subtracts what was not used after that, so that if it breaks off, all that was reserved is kept, or a part. It adds
// what was used beyond that before, so that if it breaks off, too much is kept. A call whose answer is lost creates its
// receipt again, and finds its own. What was reserved before a reset is left as the reset left it; a settlement under
// way during a reset may subtract from what comes right after. See [engine.Counting].
func (c *Counters) Settle(ctx context.Context, r engine.Reserved, cost int64) error {
	if c.base.Clock().UnixMilli() >= r.Ends {
		return engine.ErrEnded
	}
	if r.Ahead > 0 {
		return &engine.AheadError{After: r.Ahead}
	}
	counter := events.Counter{Retention: r.Retention, Precision: r.Precision}
	s := settlement{engine: c, counter: counter, adds: c.appendAdds(nil, counter, r.Time/1000, 0), Reserved: r, cost: cost, call: rand.Uint64()}
	defer c.changed(r.Counter)
	kept, verdict, err := s.look(ctx)
	if err == nil && !verdict.first {
		s.cost = verdict.cost // perhaps of a call under way
		verdict, err = s.decide(ctx, kept)
	}
	if err == nil && verdict.cost != cost {
		err = fmt.Errorf("%w: %d", engine.ErrSettled, verdict.cost)
	}
	return err
}

// Renew returns an error: a reservation in buckets is no lease.
func (c *Counters) Renew(_ context.Context, r engine.Reserved, _ time.Duration) (engine.Reserved, error) {
	return r, engine.OutOfRange(engine.ArgRenew, "it is no lease")
}

// look returns whether the counter still has what the hit has added, and the verdict of the receipts so far. A reset
// changes the epoch. After a loss the coarser buckets have what came since, and the finest has not.
func (s *settlement) look(ctx context.Context) (kept bool, before verdict, err error) {
	counts := store.Op{Counter: s.Counter, Reads: []store.Read{{Item: s.adds[0].Item}, {Item: epochItem}}}
	receipt := store.Op{Counter: s.Counter, Data: true, Reads: []store.Read{{Item: s.item()}}}
	s.engine.base.Store.Do(ctx, &counts, &receipt)
	if counts.Err != nil {
		return false, before, engine.StoreError(counts.Err)
	}
	before, err = s.verdict(&receipt)
	return counts.Reads[0].Value >= s.Reserved.Cost && inEpoch(s.ID, counts.Reads[1].Value) == s.ID, before, err
}

// decide creates the receipt, and adds or subtracts the difference.
func (s *settlement) decide(ctx context.Context, kept bool) (v verdict, err error) {
	beyond := s.cost - s.Cost
	var added store.Receipt
	if beyond > 0 {
		add, err := s.engine.add(ctx, beyond, s.Time/1000, &limiter.Tally{ID: s.Counter, Counter: s.counter})
		if err != nil {
			return v, err
		}
		added = add.counters[0].receipt
	}
	if v, err = s.create(ctx); err != nil {
		return v, err
	}
	ctx = context.WithoutCancel(ctx)
	if beyond > 0 && !v.own { // another call was faster
		err = s.engine.subtract(ctx, s.Counter, s.adds, added, beyond)
	}
	if unused := s.Cost - v.cost; unused > 0 && kept && !v.created.None() {
		err = errors.Join(err, s.engine.subtract(ctx, s.Counter, s.adds, v.created, unused))
	}
	return v, err
}

// create creates the receipt if there is none. It does so again while a replica has not answered, which may have done it.
func (s *settlement) create(ctx context.Context) (v verdict, err error) {
	for range settleTries {
		op := store.Op{
			Counter: s.Counter, Data: true,
			Writes: []store.Write{
				{Kind: store.Create, Item: s.item(), Data: s.receipt(), Expires: s.Ends/1000 + 2*engine.CeilSeconds(s.engine.base.Grace) + 1},
				{Kind: store.Append, Item: openItem, Data: appendOpen(nil, s.Reserved, 0)},
			},
			Reads: []store.Read{{Item: s.item()}},
		}
		s.engine.base.Store.Do(ctx, &op)
		v, err = s.verdict(&op)
		if err == nil && !slices.ContainsFunc(op.Replicas, func(part store.Op) bool { return part.Err != nil }) {
			break
		}
	}
	return v, err
}

// A verdict is what the receipts say. The one on the first replica that has one decides: calls may reach the other
// replicas in another order.
type verdict struct {
	cost    int64         // of the receipt that decides, or of this call
	own     bool          // this call has created it
	first   bool          // all replicas before it did not answer
	created store.Receipt // the replicas on which this call has created one, as if they had acknowledged the adds
}

// verdict returns the verdict of the receipts that the op has read.
func (s *settlement) verdict(op *store.Op) (verdict, error) {
	v := verdict{cost: s.cost, created: store.Receipt{List: op.Receipt.List}}
	if errors.Is(op.Err, store.ErrNoData) {
		return v, errTaken
	}
	if op.Err != nil {
		return v, engine.StoreError(op.Err)
	}
	own, found, missing := s.receipt(), false, false
	for i, part := range partsOf(op) {
		if part.Err != nil {
			continue
		}
		receipt := part.Reads[0].Data
		if len(receipt) == 0 {
			missing = true
			continue
		}
		if len(receipt) != receiptBytes || !bytes.Equal(receipt[:17], own[:17]) {
			return v, errTaken
		}
		created := bytes.Equal(receipt, own)
		if created {
			v.created.Acknowledged[i] = uint32(len(s.adds))
		}
		if found {
			continue
		}
		found, v.own, v.first = true, created, !missing
		if v.cost = int64(binary.BigEndian.Uint64(receipt[17:])); v.cost < 0 || v.cost > engine.MaxBy {
			return v, errTaken
		}
	}
	return v, nil
}

// partsOf returns the results of the op on each replica.
func partsOf(op *store.Op) []store.Op {
	if len(op.Replicas) == 0 {
		return []store.Op{*op}
	}
	return op.Replicas
}

// item returns the item of the receipt.
func (s *settlement) item() uint64 { return store.Item(receiptLevel, int64(s.ID)) }

// receipt returns the bytes of the receipt: a version, the ID and the time of the reservation, the cost, and the call.
func (s *settlement) receipt() []byte {
	b := binary.BigEndian.AppendUint64(append(make([]byte, 0, receiptBytes), 1), s.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Time))
	b = binary.BigEndian.AppendUint64(b, uint64(s.cost))
	return binary.BigEndian.AppendUint64(b, s.call)
}
