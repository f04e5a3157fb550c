package replication

import (
	"context"
	"fmt"

	"github.com/counterd/counterd/store"
)

// doData makes the round trip of an op with data to all replicas, and waits for all of them.
// Each may hold other bytes, so the op has what each made of it. Its own results are those of
// the first replica that has lost nothing, or else of the first. There are no hints: a caller
// finds what a replica missed by what that holds.
func (s *Set) doData(ctx context.Context, c Counter, op *store.Op) {
	op.Receipt = store.Receipt{}
	if op.Kind() == store.Swap {
		op.Err = fmt.Errorf("%w: a swap that names no replica: versions are a replica's own", store.ErrUnsupported)
		return
	}
	t := s.topology.Load()
	var list [MaxReplicas]Server
	servers := t.of(c.Hash, &list)
	op.Replicas = make([]store.Op, len(servers))
	fault := onEach(servers, func(i int, server Server) error {
		part := &op.Replicas[i]
		*part = store.Op{Counter: op.Counter, Server: server.Name(), Data: true}
		part.Writes = append(part.Writes, op.Writes...)
		for _, read := range op.Reads {
			part.Reads = append(part.Reads, store.Read{Item: read.Item, Expires: read.Expires})
		}
		server.Do(ctx, c, part)
		return part.Err
	})
	op.Receipt.List = t.version
	best, knowing, missed := -1, false, false
	for i := range op.Replicas {
		part, whole := &op.Replicas[i], servers[i].Memory().Whole()
		op.Receipt.Acknowledged[i] = part.Receipt.Acknowledged[0]
		switch {
		case part.Err != nil:
			missed = missed || whole && servers[i].Up()
		case best < 0 || whole && !knowing:
			best, knowing = i, whole
		}
	}
	if best < 0 || missed && !knowing {
		op.Err = fault
		return
	}
	op.Err = nil
	copy(op.Writes, op.Replicas[best].Writes)
	copy(op.Reads, op.Replicas[best].Reads)
}
