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
	kept := append([]byte(nil), value[:len(value)-len(entries)]...)
	for len(entries) > 0 {
		var e Entry
		size := decode(&e, entries, head.base)
		if size == 0 {
			return value
		}
		if e.Kind != Void {
			kept = append(kept, entries[:size]...)
		}
		entries = entries[size:]
	}
	return kept
}
