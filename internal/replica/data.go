package replica

import (
	"errors"
	"fmt"

	"github.com/counterd/counterd/internal/store"
)

// checkData returns an error for an op with data that not all replicas can get.
func checkData(op *store.Op) error {
	if kind := op.Kind(); kind == store.Swap || kind == store.Put {
		return fmt.Errorf("%w: a swap or put that names no replica", store.ErrUnsupported)
	}
	return store.Check(op)
}

// partOf returns the op of one replica. One of data has memory of its own, which its caller keeps.
func (p *part) partOf(op *store.Op, server Server) store.Op {
	if !op.Data {
		return store.Op{Counter: op.Counter, Writes: append(p.op.Writes[:0], op.Writes...), Reads: append(p.op.Reads[:0], op.Reads...)}
	}
	part := store.Op{Counter: op.Counter, Server: server.Name(), Data: true, Writes: append([]store.Write(nil), op.Writes...), Err: errDown}
	for _, read := range op.Reads {
		part.Reads = append(part.Reads, store.Read{Item: read.Item})
	}
	return part
}

// mergeData makes one outcome of those of the parts of an op with data. Each replica may hold
// other bytes, so the op has what each made of it. Its own results are those of the first replica
// that has lost nothing, or else of the first. There are no hints: a caller finds what a replica
// missed by what that holds.
func (t *trip) mergeData(op *store.Op) {
	op.Replicas, op.Receipt = make([]store.Op, len(t.replicas)), store.Receipt{List: t.topology.version}
	best, knowing, missed := -1, false, false
	var faults []error
	for i := range t.replicas {
		part, whole := &op.Replicas[i], t.isWhole(i)
		*part, t.parts[i].op = t.parts[i].op, store.Op{}
		op.Receipt.Acknowledged[i] = part.Receipt.Acknowledged[0]
		switch {
		case t.parts[i].exchange == nil:
		case part.Err != nil:
			faults, missed = append(faults, part.Err), missed || whole
		case best < 0 || whole && !knowing:
			best, knowing = i, whole
		}
	}
	switch {
	case best >= 0 && (knowing || !missed):
		op.Err = nil
	case len(faults) == 0:
		op.Err = errDown
		return
	default:
		op.Err = errors.Join(faults...)
		return
	}
	for i, server := range t.replicas {
		if op.Kind() != 0 {
			miss(t.set, t.counter, server, op.Replicas[i].Err)
		}
	}
	copy(op.Writes, op.Replicas[best].Writes)
	copy(op.Reads, op.Replicas[best].Reads)
}
