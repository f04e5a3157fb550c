package eventlog

import (
	"errors"
	"slices"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/store"
)

// replicas are the replicas of a log that have answered the last read: one, or several that are
// merged. Each lacks something else, and each has versions of its own.
type replicas struct {
	list    []replica
	value   []byte // what they hold together; nil: nothing
	fault   error  // why they hold nothing that can be read
	whole   bool   // all have answered, and none is damaged
	largest int    // size of a log, in bytes

	item uint64     // of the log
	ops  []store.Op // to them
	sent []*store.Op
}

// replica is a replica that has answered.
type replica struct {
	server  string // empty: the store keeps one
	version uint64
	lack    journal.Lack
}

func (r *replicas) clear() {
	clear(r.list)
	clear(r.ops)
	r.list, r.value, r.fault, r.whole, r.largest, r.ops, r.sent = r.list[:0], nil, nil, true, 0, r.ops[:0], r.sent[:0]
}

// take takes in what was read, and returns what the replicas hold together. What was appended after
// until may be on its way to some.
func (r *replicas) take(t *trip, keys []journal.ID, until int64) []byte {
	r.clear()
	if len(t.op.Replicas) == 0 {
		r.value = r.add(&t.op)
		r.list[0].lack.Missing, r.largest = r.value == nil, len(r.value)
		return r.value
	}
	var values [][]byte
	for i := range t.op.Replicas {
		if part := &t.op.Replicas[i]; part.Err == nil {
			values = append(values, r.add(part))
		} else {
			r.whole = false
		}
	}
	merged := journal.Merge(values, keys, until)
	for i, lack := range merged.Lacks {
		r.list[i].lack = lack
		switch {
		case lack.Err == nil:
			r.largest = max(r.largest, len(values[i]))
		case merged.Value == nil && !errors.Is(r.fault, journal.ErrVersion):
			r.fault = lack.Err
		case merged.Value == nil:
		default:
			r.whole = false
		}
	}
	r.value, r.largest = merged.Value, max(r.largest, len(merged.Value))
	return r.value
}

// add adds a replica, and returns its log, or nil.
func (r *replicas) add(op *store.Op) []byte {
	read := &op.Reads[0]
	r.list = append(r.list, replica{server: op.Server, version: read.Version})
	if read.Version == 0 {
		return nil
	}
	if read.Data == nil {
		return []byte{}
	}
	return read.Data
}

// mayShrink reports whether a rewrite may make sums of entries: all replicas hold the same ones, or
// the log is too large. A sum does not tell which entries, and voids, are in it.
func (r *replicas) mayShrink() bool {
	return r.whole && !r.lack() || r.largest > journal.MaxSize/2
}

// lack reports whether a replica lacks anything.
func (r *replicas) lack() bool {
	return len(r.list) > 1 && r.someLack(func(lack *journal.Lack) bool {
		return lack.Missing || len(lack.Entries) > 0 || isDamaged(lack)
	})
}

// isDamaged reports whether the log of a replica is to be replaced. One that a newer release wrote is
// not.
func isDamaged(lack *journal.Lack) bool {
	return lack.Err != nil && !errors.Is(lack.Err, journal.ErrVersion)
}

// lackKeys reports whether a replica lacks entries of the session.
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

func (r *replicas) someLack(is func(*journal.Lack) bool) bool {
	for i := range r.list {
		if is(&r.list[i].lack) {
			return true
		}
	}
	return false
}

// rewrite returns what replaces each log by the next one, if it is still as it was read.
func (r *replicas) rewrite(counter string, next []byte, expires int64) []*store.Op {
	r.ops = r.ops[:0]
	for i := range r.list {
		switch replica := &r.list[i]; {
		case errors.Is(replica.lack.Err, journal.ErrVersion):
		case replica.lack.Missing:
			r.send(counter, replica, store.Write{Kind: store.Create, Data: next, Expires: expires})
		default:
			r.send(counter, replica, store.Write{Kind: store.Swap, Data: next, Version: replica.version, Expires: expires})
		}
	}
	return r.allSent()
}

// rewritten reports whether each log was replaced. If none was, it returns an error of a replica.
func (r *replicas) rewritten() (all bool, err error) {
	replaced := 0
	for i := range r.ops {
		switch op := &r.ops[i]; {
		case op.Err != nil:
			err = op.Err
		case op.Writes[0].Result == 1:
			replaced++
		}
	}
	if replaced > 0 {
		err = nil
	}
	return replaced == len(r.ops), err
}

// repair returns what gives each replica what it lacks. One that lacks the entries of the session
// gets the data; so does one that another session creates meanwhile.
func (r *replicas) repair(counter string, data []byte, expires int64) []*store.Op {
	r.ops = r.ops[:0]
	for i := range r.list {
		switch replica := &r.list[i]; {
		case isDamaged(&replica.lack):
			r.send(counter, replica, store.Write{Kind: store.Swap, Data: r.value, Version: replica.version, Expires: expires})
		case replica.lack.Missing:
			r.send(counter, replica, store.Write{Kind: store.Create, Data: r.value, Expires: expires}, store.Write{Kind: store.Append, Data: data})
		case replica.lack.Keys:
			r.send(counter, replica, store.Write{Kind: store.Append, Data: append(slices.Clone(data), replica.lack.Entries...)})
		case len(replica.lack.Entries) > 0:
			r.send(counter, replica, store.Write{Kind: store.Append, Data: replica.lack.Entries})
		}
	}
	return r.allSent()
}

func (r *replicas) send(counter string, replica *replica, writes ...store.Write) {
	for i := range writes {
		writes[i].Item = r.item
	}
	r.ops = append(r.ops, store.Op{Counter: counter, Server: replica.server, Data: true, Writes: writes})
}

func (r *replicas) allSent() []*store.Op {
	r.sent = r.sent[:0]
	for i := range r.ops {
		r.sent = append(r.sent, &r.ops[i])
	}
	return r.sent
}
