package store

// MaxReplicas is the most replicas that a counter can have.
const MaxReplicas = 5

// Receipt says how many writes of an op each replica acknowledged, from the first write on.
// The zero Receipt says that none did. It means something to the store that issued it alone.
type Receipt struct {
	List         uint32              // the version of the list of servers that the replicas are of
	Acknowledged [MaxReplicas]uint32 // by the replica's place among those of the counter
}

// Acknowledged returns the receipt of a store with one server.
func Acknowledged(writes int) Receipt {
	return Receipt{Acknowledged: [MaxReplicas]uint32{uint32(writes)}}
}

// None reports whether no replica acknowledged a write.
func (r Receipt) None() bool { return r.Acknowledged == [MaxReplicas]uint32{} }

// On returns how many writes the i-th replica acknowledged.
func (r Receipt) On(i int) int { return int(r.Acknowledged[i]) }
