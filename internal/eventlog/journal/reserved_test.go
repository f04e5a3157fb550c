package journal_test

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/testkit"
)

// spent is a hit as an oracle remembers it: what it truly cost, or its estimate.
type spent struct {
	journal.Entry
	estimate int64
	settled  bool
}

func (s *spent) most() int64  { return max(s.Cost, s.estimate) }
func (s *spent) truly() int64 { return s.Cost }

// deficit returns what a token bucket lacks that has seen these hits at those costs, in parts of a token.
func deficit(l journal.Limit, list []*spent, cost func(*spent) int64, at int64) *big.Int {
	level, time := new(big.Int), int64(0)
	drain := func(to int64) {
		if to > time {
			level.Sub(level, big.NewInt((to-time)*l.Rate))
			if time = to; level.Sign() < 0 {
				level.SetInt64(0)
			}
		}
	}
	for _, s := range list {
		drain(s.Time)
		level.Add(level, big.NewInt(cost(s)*l.Window))
	}
	drain(at)
	return level
}

// A pending hit counts what is settled ahead of it, also if the settlement comes behind it.
func TestASettlementHasThePlaceOfItsHit(t *testing.T) {
	limits := []journal.Limit{{Window: 10_000, Ceiling: 5}}
	for _, before := range []int{0, 1} { // how many hits of the question are ahead of what is settled
		for cost := range int64(5) {
			value := empty(t, limits...)
			var keys []journal.ID
			appended := func(e journal.Entry) {
				t.Helper()
				var err error
				value, err = journal.AppendEntry(value, e)
				require.NoError(t, err)
			}
			other := func(id journal.ID) {
				keys = append(keys, id)
				appended(journal.Entry{Kind: journal.Hit, Pending: true, ID: id, Time: now + 2, Cost: 1, Count: 1})
			}
			if before > 0 {
				other(7)
			}
			hit := journal.Entry{Kind: journal.Hit, Pending: true, ID: 1, Time: now + 1, Ends: now + 60_000, Cost: 2, Count: 1}
			appended(hit)
			other(8)
			appended(journal.Entry{Kind: journal.Void, ID: hit.ID, Time: now + 3})
			other(9)
			appended(journal.Entry{Kind: journal.Increment, ID: hit.ID.Settlement(), Time: hit.Time, Appended: now + 3, Ends: hit.Ends, Cost: cost, Count: 1})
			other(10)
			var log journal.Log
			require.NoError(t, log.Read(value, journal.Question{Keys: keys, Limits: limits}))
			for i := range keys {
				want := int64(i) + cost
				if i < before {
					want = 0
				}
				require.Equal(t, want, log.Ahead(i, 0).Count, "a cost of %d, key %d", cost, keys[i])
			}
			require.Equal(t, cost+int64(len(keys)), log.Sum(now, now+9))
			next, err := log.AppendRewrite(nil, journal.Rewrite{Limits: limits, Now: now + 20, Young: 4000, Until: now + 60_000, Alone: true})
			require.NoError(t, err)
			require.NoError(t, log.Read(next, journal.Question{Keys: keys, Limits: limits}))
			for i := range keys {
				want := int64(i)
				if i >= before {
					want += cost
				}
				require.Equal(t, want, log.Ahead(i, 0).Count, "rewritten, a cost of %d, key %d", cost, keys[i])
			}
		}
	}
}

// A token bucket lacks what was truly used, to a part of a token, if hits are settled before the floor
// passes them. Otherwise it lacks no less, and no more than if each hit had cost its estimate, where none costs more.
func TestReservationsOnTokenBuckets(t *testing.T) {
	limits := []journal.Limit{{Window: 1000, Rate: 10, Ceiling: 20_000_000}, {Window: 60_000, Rate: 7, Ceiling: 300_000, Shadow: true}, {Window: 100_000, Ceiling: 1 << 40}}
	var exact, above, settlements int
	for seed := range testkit.Seeds(3000) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		value, at := empty(t, limits...), int64(now)
		var list, open []*spent
		id, forgets, within := journal.ID(0), rnd.IntN(3) > 0, rnd.IntN(2) == 0
		take := func(cost, length int64) {
			id++
			s := &spent{Entry: journal.Entry{Kind: journal.Hit, ID: id, Time: at, Cost: cost, Count: 1}, estimate: cost}
			if length > 0 {
				s.Ends = at + length
				open = append(open, s)
			}
			list, value = append(list, s), appendEntry(t, value, s.Entry)
		}
		if rnd.IntN(2) == 0 {
			take(100_000, 0)
		}
		check := func() {
			log := read(t, value, journal.Question{Limits: limits})
			for _, l := range limits[:2] {
				for _, later := range []int64{0, 77, 30_000} {
					want, got := deficit(l, list, (*spent).truly, at+later), big.NewInt(log.Held(l, at+later).Level)
					switch c := got.Cmp(want); {
					case c == 0:
						exact++
					case c < 0 || !forgets:
						require.Equal(t, want, got, "seed %d, %d hits, after %d", seed, len(list), later)
					case within:
						require.LessOrEqual(t, got.Cmp(deficit(l, list, (*spent).most, at+later)), 0, "seed %d, %d hits, after %d", seed, len(list), later)
						above++
					}
				}
			}
			sum := int64(0)
			for _, s := range list {
				sum += s.Cost
			}
			require.Equal(t, sum, log.Sum(0, maxTime), "seed %d", seed)
		}
		for range 60 {
			at += 1 + rnd.Int64N(testkit.Pick(rnd, int64(50), 700, 3000))
			open = slices.DeleteFunc(open, func(s *spent) bool { return s.Ends <= at })
			switch rnd.IntN(5) {
			case 0:
				take(1+rnd.Int64N(12), 0)
			case 1, 2:
				take(1+rnd.Int64N(30), 500+rnd.Int64N(20_000))
			case 3:
				if len(open) == 0 {
					continue
				}
				i := rnd.IntN(len(open))
				s := open[i]
				if rnd.IntN(3) > 0 || !s.settled {
					cost := s.Cost
					if !s.settled {
						cost = rnd.Int64N(map[bool]int64{true: s.Cost + 1, false: 40}[within])
					}
					value = appendEntry(t, value, journal.Entry{Kind: journal.Void, ID: s.ID, Time: at})
					value = appendEntry(t, value, journal.Entry{
						Kind: journal.Increment, ID: s.ID.Settlement(), Time: s.Time, Appended: at, Ends: s.Ends, Cost: cost + rnd.Int64N(2)*btoi(s.settled), Count: 1,
					})
					if !s.settled { // the first settlement counts
						s.Cost, s.settled = cost, true
						settlements++
					}
				}
			case 4:
				if forgets {
					young := testkit.Pick(rnd, int64(0), 100, 1000, 5000, at)
					next, err := read(t, value, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: at, Young: young, Retain: 10_000_000})
					require.NoError(t, err)
					value = next
				}
			}
			check()
		}
	}
	t.Logf("%d levels exact, %d above, %d settlements", exact, above, settlements)
	require.NotZero(t, min(exact, above, settlements))
}

// Once the floor has passed a hit, a busy token bucket gets back what was not used, less what of it the rate has
// returned up to the floor: what was used returns first.
func TestWhatIsLeftToGiveBack(t *testing.T) {
	limit := journal.Limit{Window: 1000, Rate: 1, Ceiling: 100}
	for floor, back := range map[int64]int64{3000: 15, 5000: 15, 8000: 12, 19_000: 1, 20_000: 0, 50_000: 0} {
		busy := journal.Entry{Kind: journal.Hit, ID: 2, Time: now, Cost: 80, Count: 1}
		value := appendEntry(t, appendEntry(t, empty(t, limit), reserved(1, 0, 20)), busy)
		value = settle(t, after(t, value, floor+1000, journal.Rewrite{}), reserved(1, 0, 20), now+floor+1500, 5)
		want := 100 - back - floor/1000
		require.Equal(t, want, read(t, value, journal.Question{}).Held(limit, now+floor).Count, "%d", floor)
		value = after(t, value, floor+3000, journal.Rewrite{})
		require.Equal(t, want-2, read(t, value, journal.Question{}).Held(limit, now+floor+2000).Count, "%d, rewritten", floor)
	}
}

// settle appends what settles a hit at a cost.
func settle(tb testing.TB, value []byte, h journal.Entry, at, cost int64) []byte {
	value = appendEntry(tb, value, journal.Entry{Kind: journal.Void, ID: h.ID, Time: at})
	return appendEntry(tb, value, journal.Entry{Kind: journal.Increment, ID: h.ID.Settlement(), Time: h.Time, Appended: at, Ends: h.Ends, Cost: cost, Count: 1})
}

// after returns the value as a rewrite leaves it that far from now, whose floor is a second before.
func after(tb testing.TB, value []byte, at int64, r journal.Rewrite, keys ...journal.ID) []byte {
	r.Now, r.Young, r.Retain = now+at, max(r.Young, 1000), 10_000_000
	next, err := read(tb, value, journal.Question{Keys: keys}).AppendRewrite(nil, r)
	require.NoError(tb, err)
	return next
}

var slow = journal.Limit{Window: 60_000, Rate: 1, Ceiling: 100}

func reserved(id journal.ID, at, cost int64) journal.Entry {
	return journal.Entry{Kind: journal.Hit, ID: id, Time: now + at, Ends: now + 100_000, Cost: cost, Count: 1}
}

// What a hit cost whose log was lost or reset since is known from its settlement.
func TestASettlementCountsWithoutItsHit(t *testing.T) {
	h := reserved(1, 0, 9)
	value := settle(t, empty(t, slow), h, now+10, 5)
	for _, v := range [][]byte{value, after(t, value, 3000, journal.Rewrite{}), after(t, value, 3000, journal.Rewrite{Young: now + 3000})} {
		for _, replicas := range [][][]byte{{v}, {v, empty(t, slow)}, {appendEntry(t, empty(t, slow), h), v}} {
			log := read(t, journal.Merge(replicas, nil, maxTime).Value, journal.Question{})
			require.GreaterOrEqual(t, log.Sum(0, maxTime), int64(5))
			require.GreaterOrEqual(t, log.Held(slow, now+3000).Count, int64(5))
		}
	}
}

// A token bucket that newer rules add lacks what settled hits truly cost, also where a replica has brought
// back a hit that the others forgot.
func TestANewTokenBucketLacksWhatIsSettled(t *testing.T) {
	window := journal.Limit{Window: 600_000, Ceiling: 100}
	value := settle(t, appendEntry(t, empty(t, window), reserved(1, 0, 9)), reserved(1, 0, 9), now+10, 15)
	all, few := after(t, value, 100, journal.Rewrite{Young: now + 100}), after(t, value, 3000, journal.Rewrite{})
	for _, v := range [][]byte{value, all, few, appendEntry(t, few, reserved(1, 0, 9))} {
		log := read(t, after(t, v, 3000, journal.Rewrite{Limits: []journal.Limit{window, slow}, Revision: 1000}), journal.Question{})
		require.Equal(t, log.Sum(0, maxTime), log.Held(slow, now+3000).Count)
	}
}

// A settlement of nothing that came too late for a reset is no damage once a rewrite keeps it.
func TestASettlementOfNothingFromBeforeAReset(t *testing.T) {
	value, err := journal.AppendNew(nil, journal.Head{TTL: 100, Floor: now + 50, Since: 1, Reset: now + 50}, now+50)
	require.NoError(t, err)
	value = after(t, settle(t, value, reserved(1, 0, 9), now+10, 0), 3000, journal.Rewrite{Young: now + 3000})
	require.Zero(t, read(t, value, journal.Question{}).Sum(0, maxTime))
}

// Whatever a reader asks, it finds the same in the log: of what a rewrite kept, too.
func TestLevelsDoNotDependOnTheQuestion(t *testing.T) {
	value := appendEntry(t, appendEntry(t, empty(t, slow), reserved(1, 0, 1)), reserved(2, 0, 9))
	value = appendEntry(t, settle(t, value, reserved(2, 0, 9), now+10, 5), reserved(3, 20, 50))
	value = after(t, value, 1100, journal.Rewrite{})
	for i, cost := range []int64{47, 43} { // there is room for one of them
		value = appendEntry(t, value, journal.Entry{Kind: journal.Hit, ID: journal.ID(7 + i), Time: now + 1200, Cost: cost, Count: 1})
	}
	plain := read(t, value, journal.Question{})
	for _, id := range []journal.ID{1, 2, 3, 7, 8, journal.ID(2).Settlement()} {
		log := read(t, value, journal.Question{Keys: []journal.ID{id}})
		require.Equal(t, plain.Sum(0, maxTime), log.Sum(0, maxTime), "%x", id)
		require.Equal(t, plain.Held(slow, now+1200), log.Held(slow, now+1200), "%x", id)
		require.Equal(t, after(t, value, 1300, journal.Rewrite{}), after(t, value, 1300, journal.Rewrite{}, id), "%x", id)
	}
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A replica gets the void of what is settled not without the settlement, which may be on its way: it would count
// neither.
func TestMergeSendsNoVoidAheadOfItsSettlement(t *testing.T) {
	begin := appendEntry(t, young(t, -1000), reserved(1, 0, 9))
	settled := settle(t, begin, reserved(1, 0, 9), now+20, 5)
	for until, want := range map[int64]int64{now + 10: 9, now + 20: 5} {
		merged := journal.Merge([][]byte{settled, begin}, nil, until)
		require.EqualValues(t, 5, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
		lacking := append(bytes.Clone(begin), merged.Lacks[1].Entries...)
		require.Equal(t, want, read(t, lacking, journal.Question{}).Sum(0, maxTime), "%d", until)
	}
}

// Of two settlements that replicas have in different orders the larger counts, and the replica that has the other
// one first is to get it.
func TestMergeOfDifferentSettlements(t *testing.T) {
	h := reserved(1, 0, 9)
	begin := appendEntry(t, young(t, -1000), h)
	five, two := settle(t, begin, h, now+10, 5), settle(t, begin, h, now+10, 2)
	for _, later := range [][][]byte{{two, five}, {settle(t, two, h, now+20, 5), settle(t, five, h, now+20, 2)}} {
		merged := journal.Merge(later, nil, maxTime)
		require.EqualValues(t, 5, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
		require.True(t, merged.Lacks[0].Settlement)
		require.False(t, merged.Lacks[1].Settlement)
	}
}

// A settlement that came too late for a reset does not hide another one.
func TestASettlementComesAgain(t *testing.T) {
	value, err := journal.AppendNew(nil, journal.Head{TTL: 100, Floor: now + 50, Since: 1, Reset: now + 50}, now+50)
	require.NoError(t, err)
	value = settle(t, settle(t, value, reserved(1, 0, 9), now+10, 5), reserved(1, 0, 9), now+60, 5)
	log := read(t, value, journal.Question{Keys: []journal.ID{journal.ID(1).Settlement()}})
	require.EqualValues(t, 1, log.Verdict(0).Admitted)
	require.EqualValues(t, 5, log.Sum(0, maxTime))
}

// A token bucket lacks what a hit truly cost that had no end of its own: it only waited for its turn.
func TestATurnIsSettledWithACost(t *testing.T) {
	h := journal.Entry{Kind: journal.Hit, ID: 1, Time: now, Cost: 9, Count: 1}
	value := settle(t, appendEntry(t, empty(t, slow), h), reserved(1, 0, 9), now+10, 5)
	alone := journal.Rewrite{Young: 5000, Alone: true}
	for _, v := range [][]byte{value, after(t, value, 100, alone), after(t, value, 100, journal.Rewrite{Young: 5000}), after(t, value, 3000, alone)} {
		require.EqualValues(t, 5, read(t, v, journal.Question{}).Held(slow, now+100).Count)
	}
}

// An entry that a rewrite kept finds ahead of itself what a token bucket lacks of hits that are to be settled,
// also of one that came later by an older clock.
func TestAllReservationsAreAheadOfWhatIsKept(t *testing.T) {
	key := journal.Entry{Kind: journal.Increment, ID: 1, Time: now + 200, Cost: 1, Count: 1}
	value := after(t, appendEntry(t, appendEntry(t, empty(t, slow), key), reserved(2, 0, 9)), 1100, journal.Rewrite{})
	log := read(t, value, journal.Question{Keys: keys(2)[:1], Limits: []journal.Limit{slow}})
	require.True(t, log.Verdict(0).Found)
	require.EqualValues(t, 9, log.Ahead(0, 0).Count)
}

// A token bucket that has forgotten what increments took, beyond its most, has no token, whatever settlements give
// back.
func TestAFullBucketStaysFullWhateverSettlementsGiveBack(t *testing.T) {
	limit := journal.Limit{Window: 86_400_000, Rate: 1, Ceiling: 30} // it fills in the longest time
	value := appendEntry(t, empty(t, limit), reserved(1, 0, 30))
	require.EqualValues(t, 1, read(t, value, journal.Question{Keys: keys(1)}).Verdict(0).Admitted)
	value = appendEntry(t, value, journal.Entry{Kind: journal.Increment, ID: 2, Time: now, Cost: 1 << 20, Count: 1})
	value = settle(t, after(t, value, 1100, journal.Rewrite{}), reserved(1, 0, 30), now+1200, 0)
	require.EqualValues(t, 30, read(t, value, journal.Question{}).Held(limit, now+1200).Count)
}
