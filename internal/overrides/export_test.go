package overrides

import "github.com/counterd/counterd/internal/store"

// ReadOp returns an op that reads what the store has.
func ReadOp() *store.Op {
	return &store.Op{Counter: counter, Data: true, Reads: []store.Read{{Item: item}}}
}
