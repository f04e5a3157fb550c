package journal

import "math/big"

// admits returns how many of the hits a token bucket admits that has seen those entries in that order.
func admits(l Limit, entries []*counted, hit *counted) (count int64) {
	full, now := fullAgain(l, entries), new(big.Rat).SetInt64(hit.Time)
	if full.Cmp(now) < 0 {
		full.Set(now)
	}
	for full.Sub(full, now); count < hit.Count && new(big.Rat).Add(full, l.returns((count+1)*hit.Cost)).Cmp(l.returns(l.Ceiling)) <= 0; count++ {
	}
	return count
}

// returns returns in how many milliseconds so many tokens return, by exact fractions.
func (l Limit) returns(tokens int64) *big.Rat { return big.NewRat(tokens*l.Window, l.Rate) }

// fullAgain returns when the bucket is full after those entries in that order: a theoretical arrival time, which a hit
// moves on by its cost over the rate. A rewrite ends at its floor what has drained by then.
func fullAgain(l Limit, entries []*counted) *big.Rat {
	full := new(big.Rat)
	for _, c := range entries {
		if now := new(big.Rat).SetInt64(c.Time); (c.floor || c.left > 0) && full.Cmp(now) < 0 {
			full = now
		}
		if least := c.least[l.bucketKey()]; least != nil && full.Cmp(least) < 0 {
			full.Set(least)
		}
		full.Add(full, l.returns(c.left*c.Cost))
	}
	return full
}

// bucketKey returns what buckets of one level have in common.
func (l Limit) bucketKey() [2]int64 { return [2]int64{l.Rate, l.Window} }

// afterRewrite returns the entries in the order in which a rewrite leaves them. Its buckets are not full earlier than
// before.
func afterRewrite(floor int64, entries []*counted, limits []Limit) []*counted {
	passed, others := []*counted(nil), []*counted{{Entry: Entry{Time: floor}, floor: true, least: map[[2]int64]*big.Rat{}}}
	tokens := int64(0) // of the others
	for _, c := range entries {
		if c.floor || c.appended() <= floor {
			passed = append(passed, c)
		} else {
			others, tokens = append(others, c), tokens+c.left*c.Cost
		}
	}
	for _, l := range limits {
		if !l.isBucket() {
			continue
		}
		if full := fullAgain(l, entries); full.Cmp(fullAgain(l, others)) > 0 {
			others[0].least[l.bucketKey()] = full.Sub(full, l.returns(tokens))
		}
	}
	return append(passed, others...)
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
	return appendHead(nil, head, &sums)
}
