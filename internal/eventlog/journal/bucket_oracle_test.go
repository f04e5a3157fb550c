package journal

import "math/big"

// admits returns how many of the hits a token bucket admits that has seen those entries in that order,
// by exact fractions: it is full at a theoretical arrival time, which a hit that is admitted moves on by
// its cost over the rate. A rewrite ends at its floor what has drained by then.
func admits(l Limit, entries []*counted, hit *counted) (count int64) {
	ms := func(tokens int64) *big.Rat { return big.NewRat(tokens*l.Window, l.Rate) }
	full := new(big.Rat)
	for _, c := range entries {
		if now := new(big.Rat).SetInt64(c.Time); (c.floor || c.left > 0) && full.Cmp(now) < 0 {
			full = now
		}
		full.Add(full, ms(c.left*c.Cost))
	}
	now := new(big.Rat).SetInt64(hit.Time)
	if full.Cmp(now) < 0 {
		full.Set(now)
	}
	for full.Sub(full, now); count < hit.Count && new(big.Rat).Add(full, ms((count+1)*hit.Cost)).Cmp(ms(l.Ceiling)) <= 0; count++ {
	}
	return count
}

// withoutVoids returns the value without its voids.
func withoutVoids(value []byte) []byte {
	var head Head
	entries, err := readHead(value, &head, new(timeline))
	if err != nil {
		return value
	}
	kept := withoutKept(value)
	var k keeper
	var e Entry
	k.begin(head.base)
	for c := (cursor{data: head.kept}); c.at < len(c.data); {
		if k.next(&c, &e); e.Kind != Void {
			kept = encode(kept, e)
		}
	}
	for len(entries) > 0 {
		size := decode(&e, entries, head.base)
		if e.Kind != Void {
			kept = append(kept, entries[:size]...)
		}
		entries = entries[size:]
		e = Entry{}
	}
	return kept
}

// withoutKept returns the header and the sums of a value, without the entries that a rewrite kept.
func withoutKept(value []byte) []byte {
	var head Head
	var sums timeline
	if _, err := readHead(value, &head, &sums); err != nil {
		return value
	}
	head.kept = nil
	return appendHead(nil, head, &sums, -1)
}
