package eventlog

import (
	"errors"
	"slices"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/store"
)

// replicas are the replicas of a log that answered the last read: one, or several that are merged. Each lacks other
// entries, and has versions of its own.
type replicas struct {
	item    uint64 // of the log
	list    []replica
	value   []byte // of all together; nil if no replica has a value
	fault   error  // why the values cannot be read, or nil
	isWhole bool   // all have answered, and none is damaged
	largest int    // size of a log, in bytes
	ops     []*store.Op
}

// A replica is a replica that has answered.
type replica struct {
	server  string // empty if the store keeps one replica
	version uint64
	lack    journal.Lack
}

func (r *replicas) clear() {
	clear(r.list)
	clear(r.ops)
	*r = replicas{list: r.list[:0], ops: r.ops[:0]}
}

// take takes in what was read, and returns what the replicas hold together. What was appended after the time until may
// be on its way to some.
func (r *replicas) take(op *store.Op, keys []journal.ID, until int64) []byte {
	r.clear()
	r.isWhole, r.item = true, op.Reads[0].Item
	if len(op.Replicas) == 0 {
		r.value = r.add(op)
		r.list[0].lack.Missing, r.largest = r.value == nil, len(r.value)
		return r.value
	}
	var values [][]byte
	for i := range op.Replicas {
		part := &op.Replicas[i]
		if part.Err == nil || isForeign(part) {
			values = append(values, r.add(part))
		} else {
			r.isWhole = false
		}
	}
	merged := journal.Merge(values, keys, until)
	for i, lack := range merged.Lacks {
		r.list[i].lack = lack
		switch {
		case lack.Err == nil:
			r.largest = max(r.largest, len(values[i]))
		case merged.Value != nil:
			r.isWhole = false
		case !errors.Is(r.fault, journal.ErrVersion):
			r.fault = lack.Err
		}
	}
	if op.Err != nil && r.fault == nil { // all are foreign
		r.setFault(journal.ErrCorrupt)
	}
	r.value, r.largest = merged.Value, max(r.largest, len(merged.Value))
	return r.value
}

// setFault notes that the value cannot be read, unless err is nil.
func (r *replicas) setFault(err error) {
	r.fault = err
	for i := range r.list {
		if lack := &r.list[i].lack; err != nil && !lack.Missing && lack.Err == nil {
			lack.Err = err
		}
	}
}

// isForeign reports whether the item of a replica is of another client, and can be replaced.
func isForeign(part *store.Op) bool {
	return errors.Is(part.Err, store.ErrNoData) && len(part.Reads) > 0 && part.Reads[0].Version != 0
}

// add adds a replica, and returns its value; nil if it has none. A foreign item is an empty value, which is damaged.
func (r *replicas) add(op *store.Op) []byte {
	read := &op.Reads[0]
	r.list = append(r.list, replica{server: op.Server, version: read.Version})
	switch {
	case op.Err != nil:
		return []byte{}
	case read.Version == 0:
		return nil
	case read.Data == nil:
		return []byte{}
	}
	return read.Data
}

// mayShrink reports whether a rewrite may make sums of entries: all replicas hold the same ones, or the log is large.
// A sum does not tell which entries, and voids, are in it.
func (r *replicas) mayShrink() bool {
	return r.isWhole && !r.lack() || r.largest > journal.MaxSize/2
}

// lack reports whether a replica lacks anything.
func (r *replicas) lack() bool {
	return len(r.list) > 1 && r.someLack(func(lack *journal.Lack) bool {
		return lack.Missing || len(lack.Entries) > 0 || isDamaged(lack)
	})
}

// isDamaged reports whether the log of a replica is to be replaced. One of a newer release is not.
func isDamaged(lack *journal.Lack) bool {
	return lack.Err != nil && !errors.Is(lack.Err, journal.ErrVersion)
}

// isReplaceable reports whether a damaged log has a version, by which it is replaced.
func (r *replicas) isReplaceable() bool {
	return slices.ContainsFunc(r.list, func(one replica) bool { return isDamaged(&one.lack) && one.version != 0 })
}

// lackKeys reports whether a replica lacks entries of the batch.
func (r *replicas) lackKeys() bool {
	return r.someLack(func(lack *journal.Lack) bool { return lack.Keys })
}

// lackSums reports whether a replica lacks what only a rewrite gives it.
func (r *replicas) lackSums() bool {
	return r.someLack(func(lack *journal.Lack) bool { return lack.Sums || lack.Settlement })
}

// disagree reports whether a replica has another settlement of an entry first.
func (r *replicas) disagree() bool {
	return r.someLack(func(lack *journal.Lack) bool { return lack.Settlement })
}

func (r *replicas) someLack(does func(*journal.Lack) bool) bool {
	return slices.ContainsFunc(r.list, func(one replica) bool { return does(&one.lack) })
}

// swaps returns what replaces each log by the next one, if it is still as it was read.
func (r *replicas) swaps(counter string, next []byte, expires int64) []*store.Op {
	r.ops = r.ops[:0]
	for i := range r.list {
		switch one := &r.list[i]; {
		case errors.Is(one.lack.Err, journal.ErrVersion):
		case one.lack.Missing:
			r.send(counter, one, store.Write{Kind: store.Create, Data: next, Expires: expires})
		default:
			r.send(counter, one, store.Write{Kind: store.Swap, Data: next, Version: one.version, Expires: expires})
		}
	}
	return r.ops
}

// repairs returns what gives each replica what it lacks. A replica that lacks the entries of the batch gets the data;
// so does one that another process creates at the same time.
func (r *replicas) repairs(counter string, data []byte, expires int64) []*store.Op {
	r.ops = r.ops[:0]
	for i := range r.list {
		switch one := &r.list[i]; {
		case isDamaged(&one.lack):
			r.send(counter, one, store.Write{Kind: store.Swap, Data: r.value, Version: one.version, Expires: expires})
		case one.lack.Missing && len(data) > 0:
			r.send(counter, one, store.Write{Kind: store.Create, Data: r.value, Expires: expires}, store.Write{Kind: store.Append, Data: data})
		case one.lack.Missing:
			r.send(counter, one, store.Write{Kind: store.Create, Data: r.value, Expires: expires})
		case one.lack.Keys:
			r.send(counter, one, store.Write{Kind: store.Append, Data: slices.Concat(data, one.lack.Entries)})
		case len(one.lack.Entries) > 0:
			r.send(counter, one, store.Write{Kind: store.Append, Data: one.lack.Entries})
		}
	}
	return r.ops
}

func (r *replicas) send(counter string, to *replica, writes ...store.Write) {
	for i := range writes {
		writes[i].Item = r.item
	}
	r.ops = append(r.ops, &store.Op{Counter: counter, Server: to.server, Data: true, Writes: writes})
}

// resultOf returns how many of the round trips have written anything, and whether all have written all.
func resultOf(ops []*store.Op) (changed int, isWhole bool, err error) {
	isWhole = true
	for _, op := range ops {
		if op.Err != nil {
			isWhole, err = false, op.Err
			continue
		}
		if op.Writes[0].Result == 1 {
			changed++
		}
		for i := range op.Writes {
			isWhole = isWhole && op.Writes[i].Result == 1
		}
	}
	return changed, isWhole, err
}

// A trip is a round trip to a log.
type trip struct {
	item uint64 // the log
	op   store.Op
}

func (t *trip) begin(counter string, item uint64) {
	t.item, t.op.Counter, t.op.Data, t.op.Versions = item, counter, true, true
	t.clear()
}

func (t *trip) clear() {
	t.op.Writes, t.op.Reads, t.op.Replicas, t.op.Receipt, t.op.Err = t.op.Writes[:0], t.op.Reads[:0], nil, store.Receipt{}, nil
}

func (t *trip) write(w store.Write) {
	w.Item = t.item
	t.op.Writes = append(t.op.Writes, w)
}

// read reads the log into the memory of the read before.
func (t *trip) read() {
	t.op.Reads = slices.Grow(t.op.Reads, 1)[:1]
	t.op.Reads[0] = store.Read{Item: t.item, Data: t.op.Reads[0].Data}
}

// hasLanded reports whether the last write, an append, has found the log of any replica.
func (t *trip) hasLanded() bool {
	last := len(t.op.Writes) - 1
	landed := func(op store.Op) bool { return op.Receipt.On(0) == last+1 && op.Writes[last].Result == 1 }
	if len(t.op.Replicas) == 0 {
		return landed(t.op)
	}
	return slices.ContainsFunc(t.op.Replicas, landed)
}
