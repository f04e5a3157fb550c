package journal_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
)

const now = 1_800_000_000_000

// add appends hits of cost 1 at the times, in milliseconds from now, with the identities 1, 2, ...
func add(tb testing.TB, value []byte, kind journal.Kind, times ...int64) []byte {
	tb.Helper()
	for i, time := range times {
		var err error
		value, err = journal.AppendEntry(value, journal.Entry{Kind: kind, ID: journal.ID(i + 1), Time: now + time, Cost: 1, Count: 1})
		require.NoError(tb, err)
	}
	return value
}

func empty(tb testing.TB, limits ...journal.Limit) []byte {
	tb.Helper()
	value, err := journal.AppendNew(nil, journal.Head{Limits: limits, Revision: 7, TTL: 100, Floor: now - 10_000_000_000, Since: 5999}, now)
	require.NoError(tb, err)
	return value
}

func read(tb testing.TB, value []byte, q journal.Question) *journal.Log {
	tb.Helper()
	var log journal.Log
	require.NoError(tb, log.Read(value, q))
	return &log
}

// keys returns the identities 1 to n.
func keys(n int) (ids []journal.ID) {
	for i := range n {
		ids = append(ids, journal.ID(i+1))
	}
	return ids
}

func admitted(log *journal.Log, n int) (counts []int64) {
	for i := range n {
		counts = append(counts, log.Verdict(i).Admitted)
	}
	return counts
}

func ExampleLog() {
	limit := journal.Limit{Window: 60_000, Ceiling: 2}
	question := journal.Question{Limits: []journal.Limit{limit}, Keys: []journal.ID{journal.NewID(0xC0FFEE, 3)}}
	value, _ := journal.AppendNew(nil, journal.Head{Limits: question.Limits}, now)
	for i := range int64(3) {
		hit := journal.Entry{Kind: journal.Hit, ID: journal.NewID(0xC0FFEE, uint64(i+1)), Time: now + 1000*i, Cost: 1, Count: 1}
		value, _ = journal.AppendEntry(value, hit)
	}
	var log journal.Log
	if err := log.Read(value, question); err != nil {
		fmt.Println(err)
		return
	}
	at, _ := log.Frees(limit, 1, now+2000)
	fmt.Println(log.Verdict(0).Admitted, "admitted,", log.Ahead(0, 0).Count, "ahead of it, room in", (at-now-2000)/1000, "s")
	// Output: 0 admitted, 2 ahead of it, room in 58 s
}

func TestEqualHitsOfOneEntry(t *testing.T) {
	limit := journal.Limit{Window: 60_000, Ceiling: 10}
	value, err := journal.AppendEntry(empty(t, limit), journal.Entry{Kind: journal.Hit, ID: 1, Time: now, Cost: 3, Count: 5})
	require.NoError(t, err)
	log := read(t, value, journal.Question{Keys: keys(1)})
	assert.EqualValues(t, 3, log.Verdict(0).Admitted)
	assert.EqualValues(t, 9, log.Sum(now, now))
	value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Void, ID: 1, Time: now, Count: 1})
	require.NoError(t, err)
	assert.EqualValues(t, 3, read(t, append(value, value[len(value)-21:]...), journal.Question{}).Sum(now, now))
}

// pending appends a pending hit, or a void, of the identity.
func pending(tb testing.TB, value []byte, kind journal.Kind, id journal.ID, count int64) []byte {
	tb.Helper()
	value, err := journal.AppendEntry(value, journal.Entry{Kind: kind, Pending: kind == journal.Hit, ID: id, Time: now, Cost: 1, Count: count})
	require.NoError(tb, err)
	return value
}

// A process with older rules voids what they deny, and shadow limits only count.
func TestTheReadersLimitsAdmitNoMore(t *testing.T) {
	value := add(t, empty(t, journal.Limit{Window: 60_000, Ceiling: 5}), journal.Hit, 0, 1)
	own := []journal.Limit{{Window: 60_000, Ceiling: 1}, {Window: 60_000, Ceiling: 0, Shadow: true}}
	log := read(t, value, journal.Question{Keys: keys(2), Limits: own, Revision: 6})
	assert.Equal(t, journal.Verdict{Found: true, Counted: 1, Admitted: 1}, log.Verdict(0))
	assert.Equal(t, journal.Verdict{Found: true, Counted: 1, Admitted: 0}, log.Verdict(1))
	assert.EqualValues(t, 1, log.Ahead(1, 1).Count)
	assert.True(t, log.Head().Outdated(8))
	assert.False(t, log.Head().Outdated(7))
}

func TestARewriteKeepsNewerRules(t *testing.T) {
	value := empty(t, journal.Limit{Window: 60_000, Ceiling: 5})
	for revision, ceiling := range map[uint64]int64{6: 5, 7: 5, 8: 9} {
		log := read(t, value, journal.Question{})
		next, err := log.AppendRewrite(nil, journal.Rewrite{Limits: []journal.Limit{{Window: 60_000, Ceiling: 9}}, Revision: revision, Now: now})
		require.NoError(t, err)
		assert.Equal(t, ceiling, read(t, next, journal.Question{}).Head().Limits[0].Ceiling)
	}
}

// The time to live is that of the newest rules; of rules as old the longest.
func TestTheTimeToLiveOfARewrite(t *testing.T) {
	log := read(t, empty(t, journal.Limit{Window: 60_000, Ceiling: 5}), journal.Question{})
	for _, test := range []struct {
		revision  uint64
		ttl, want int64
	}{{6, 90, 100}, {6, 110, 110}, {7, 90, 100}, {7, 110, 110}, {8, 90, 90}} {
		next, err := log.AppendRewrite(nil, journal.Rewrite{Revision: test.revision, TTL: test.ttl, Now: now})
		require.NoError(t, err)
		assert.Equal(t, test.want, read(t, next, journal.Question{}).Head().TTL, "%+v", test)
	}
}

// A log is undecided while a pending hit counts that is not the reader's, and not too old.
func TestUndecided(t *testing.T) {
	limit := journal.Limit{Window: 1000, Ceiling: 5}
	value := add(t, empty(t, limit), journal.Increment, 100, 3000)
	for id, time := range map[journal.ID]int64{8: 0, 9: 2900} {
		var err error
		value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, Pending: true, ID: id, Time: now + time, Cost: 2, Count: 1})
		require.NoError(t, err)
	}
	value, err := journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: 3, Time: now + 3000, Cost: 1, Count: 1})
	require.NoError(t, err)
	for after, undecided := range map[int64]bool{now - 1: true, now + 1: true, now + 2900: false} {
		log := read(t, value, journal.Question{Keys: []journal.ID{3}, Limits: []journal.Limit{limit}})
		assert.Equal(t, undecided, log.IsUndecided(after))
		own := read(t, value, journal.Question{Keys: []journal.ID{9}, Limits: []journal.Limit{limit}})
		assert.Equal(t, after < now, own.IsUndecided(after))
		assert.Equal(t, journal.Content{Count: 3}, log.Ahead(0, 0))
		assert.Equal(t, journal.Content{Count: 4}, log.Held(limit, now+3000))
		log.Clear()
		assert.Zero(t, log.Held(limit, now+3000))
		at, ok := log.Frees(limit, 1, now)
		assert.True(t, ok)
		assert.EqualValues(t, now, at)
	}
}

func TestDamagedValues(t *testing.T) {
	value := add(t, empty(t, journal.Limit{Window: 60_000, Ceiling: 5}), journal.Hit, 0, 1, 2)
	var log journal.Log
	version := append([]byte{value[0], 2}, value[2:]...)
	require.ErrorIs(t, log.Read(version, journal.Question{}), journal.ErrVersion)
	require.ErrorIs(t, log.Read(append(value, value...), journal.Question{}), journal.ErrCorrupt)
	require.ErrorIs(t, log.Read(append(value, 0), journal.Question{}), journal.ErrCorrupt)
	for cut := range value {
		if whole := (len(value)-cut)%15 == 0 && cut >= len(value)-45; !whole {
			require.ErrorIs(t, log.Read(value[:cut], journal.Question{}), journal.ErrCorrupt, "%d bytes", cut)
			require.Zero(t, log.Sum(0, 2*now))
		}
		damaged := bytes.Clone(value)
		damaged[cut] ^= 0x41
		require.Error(t, log.Read(damaged, journal.Question{}), "byte %d", cut)
	}
}

func TestOutOfRange(t *testing.T) {
	good := journal.Entry{Kind: journal.Hit, ID: 1, Time: now, Cost: 1, Count: 1}
	for name, change := range map[string]func(*journal.Entry){
		"kind":     func(e *journal.Entry) { e.Kind = 4 },
		"identity": func(e *journal.Entry) { e.ID = 1 << 56 },
		"time":     func(e *journal.Entry) { e.Time = -1 },
		"no cost":  func(e *journal.Entry) { e.Cost = 0 },
		"cost":     func(e *journal.Entry) { e.Cost = 1 << 32 },
		"no hits":  func(e *journal.Entry) { e.Count = 0 },
		"appended": func(e *journal.Entry) { e.Kind, e.Appended = journal.Void, now },
		"ends":     func(e *journal.Entry) { e.Kind, e.Ends = journal.Void, now },
		"no end":   func(e *journal.Entry) { e.Ends = -1 },
		"free":     func(e *journal.Entry) { e.Ends, e.Cost = now, 0 },
		"hits":     func(e *journal.Entry) { e.Count = 1 << 14 },
	} {
		e := good
		change(&e)
		value, err := journal.AppendEntry([]byte("x"), e)
		require.ErrorIs(t, err, journal.ErrOutOfRange, name)
		require.Equal(t, "x", string(value))
	}
	_, err := journal.AppendNew(nil, journal.Head{Limits: []journal.Limit{{Window: 60_001, Ceiling: 1}}}, now)
	require.ErrorIs(t, err, journal.ErrOutOfRange)
	_, err = new(journal.Log).AppendRewrite(nil, journal.Rewrite{Now: -1})
	require.ErrorIs(t, err, journal.ErrOutOfRange)
}

// increments returns a log of one increment of the largest cost in each step until now.
func increments(tb testing.TB, number int, step int64, limits ...journal.Limit) []byte {
	tb.Helper()
	value := empty(tb, limits...)
	for i := range number {
		var err error
		value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Increment, ID: journal.ID(i), Time: now - int64(number-i)*step, Cost: 1<<32 - 1, Count: 1})
		require.NoError(tb, err)
	}
	return value
}

// Events of a coarse log leave their window at the end of their minute or hour, and never before
// their time. Finer ones need the longest window below a minute to have passed.
func TestCoarse(t *testing.T) {
	limit := journal.Limit{Window: 86_400_000}
	for step, unit := range map[int64]int64{7000: 60_000, 60_000: 3_600_000} {
		plain := read(t, increments(t, 2500, step, limit, journal.Limit{Window: 30_000}), journal.Question{})
		value, err := plain.AppendRewrite(nil, journal.Rewrite{Now: now, Young: 4000, Retain: 2500 * 60_000})
		require.NoError(t, err)
		require.LessOrEqual(t, len(value), journal.MaxSize*3/4)
		log := read(t, value, journal.Question{})
		coarse := log.Head().Coarse
		assert.Equal(t, int64(now-34_000)/unit*unit, coarse+1, "the last unit that the shorter window has left")
		assert.Equal(t, plain.Sum(0, maxTime), log.Sum(0, maxTime))
		for at := int64(now); at < now+limit.Window; at += 100_000 {
			held := log.Held(limit, at).Count
			require.GreaterOrEqual(t, held, plain.Held(limit, at).Count, "at %d", at)
			require.LessOrEqual(t, held, plain.Held(limit, at-unit).Count, "at %d", at)
		}
		assert.Equal(t, plain.Sum(coarse+1, maxTime), log.Sum(coarse+1, maxTime))

		for later, want := range map[int64]int64{now + 3_600_000: coarse, now + 2_000_000_000: 0} {
			value, err = log.AppendRewrite(nil, journal.Rewrite{Now: later, Young: 4000})
			require.NoError(t, err)
			assert.Equal(t, want, read(t, value, journal.Question{}).Head().Coarse, "until the last of them has left")
		}
	}
}

// Entries keep their identity while they are young: of too many of them no rewrite makes less.
func TestARewriteOfTooManyYoungEntries(t *testing.T) {
	const many = 2400
	log := read(t, increments(t, many, 1), journal.Question{})
	value, err := log.AppendRewrite([]byte("x"), journal.Rewrite{Now: now, Young: 4000})
	require.ErrorIs(t, err, journal.ErrTooLarge)
	assert.Equal(t, "x", string(value))
	assert.EqualValues(t, many*(1<<32-1), log.Sum(0, maxTime), "the log is as before")
	value, err = log.AppendRewrite(nil, journal.Rewrite{Now: now + 4000, Young: 4000, Retain: 60_000})
	require.NoError(t, err)
	assert.EqualValues(t, many*(1<<32-1), read(t, value, journal.Question{}).Sum(0, maxTime))
}

// A rewrite is due by what was appended since the last one, not by what that one kept.
func TestDue(t *testing.T) {
	for _, young := range []int64{1, 10_000_000} {
		value, err := read(t, history(t, 400, false), journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now, Young: young})
		require.NoError(t, err)
		for most := 256 + len(value)/4; most >= 15; most -= 15 {
			require.False(t, read(t, value, journal.Question{}).Due(), "%d bytes", len(value))
			value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: journal.ID(most), Time: now, Cost: 1, Count: 1})
			require.NoError(t, err)
		}
		log := read(t, value, journal.Question{})
		require.True(t, log.Due())
		value, err = log.AppendRewrite(nil, journal.Rewrite{Now: now, Young: 10_000_000})
		require.NoError(t, err)
		require.False(t, read(t, value, journal.Question{}).Due())
	}
}

const maxTime = 1<<47 - 1

// history returns a log of n hits in an hour that ends at now, rewritten or not.
func history(tb testing.TB, n int, settled bool) []byte {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	value := empty(tb, journal.Limit{Window: 3_600_000, Ceiling: int64(n)})
	for i := range n {
		var err error
		time := int64(now - 3_595_000 + 3_590_000*i/n)
		value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: journal.NewID(random.Uint32(), uint64(i)), Time: time, Cost: 1, Count: 1})
		require.NoError(tb, err)
		if settled && i%100 == 99 || settled && i == n-1 {
			log := read(tb, value, journal.Question{})
			value, err = log.AppendRewrite(nil, journal.Rewrite{Now: max(time, now*int64(i/(n-1))), Young: 4000})
			require.NoError(tb, err)
		}
	}
	return value
}

func TestReadDoesNotAllocate(t *testing.T) {
	for _, settled := range []bool{false, true} {
		value := add(t, history(t, 500, settled), journal.Hit, 1, 2, 3)
		question := journal.Question{Keys: keys(3), Limits: []journal.Limit{{Window: 3_600_000, Ceiling: 500}}, Revision: 7}
		var log journal.Log
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = log.Read(value, question) }))
	}
}

// FuzzRead decodes any bytes. What it accepts, a rewrite keeps.
func FuzzRead(f *testing.F) {
	f.Add(history(f, 20, true), int64(now), int64(4000))
	f.Add(history(f, 20, false), int64(now+5000), int64(4_000_000))
	f.Add(add(f, empty(f, bucket, journal.Limit{Window: 700, Rate: 3, Ceiling: 2, Shadow: true}), journal.Hit, 0, 1, 2), int64(now+9), int64(5))
	f.Add([]byte{0xEC, 1, 4, 0, 0, 0, 0}, int64(0), int64(0))
	f.Add(hits(f, reset(f, 0), 1), int64(now+5000), int64(4000))
	f.Fuzz(func(t *testing.T, value []byte, at, young int64) {
		var log, next journal.Log
		if err := log.Read(value, journal.Question{Keys: keys(2), Limits: []journal.Limit{{Window: 9000, Ceiling: 2}, bucket}}); err != nil {
			require.Zero(t, log.Sum(0, maxTime))
			return
		}
		log.Verdict(0)
		log.Frees(journal.Limit{Window: 9000, Ceiling: 2}, 1, now)
		log.Frees(bucket, 1, now)
		for _, limit := range log.Head().Limits {
			log.Frees(limit, 1, now)
		}
		log.Drained()
		total, history := log.Sum(0, maxTime), maps.Collect(log.History(1000))
		rewritten, err := log.AppendRewrite(nil, journal.Rewrite{Now: at, Young: young, Retain: maxTime})
		if err != nil {
			return
		}
		require.NoError(t, next.Read(rewritten, journal.Question{}))
		require.Equal(t, log.Head().Reset, next.Head().Reset)
		require.Equal(t, total, next.Sum(0, maxTime))
		require.Equal(t, total, log.Sum(0, maxTime), "a rewrite changes the log")
		if next.Head().Coarse == 0 {
			require.Equal(t, history, maps.Collect(next.History(1000)))
		}
	})
}

// FuzzRewrite makes logs of any entries, and rewrites them anywhere. The verdicts of entries that
// are still found, and what any later hit finds ahead of itself, are those without a rewrite.
func FuzzRewrite(f *testing.F) {
	f.Add(uint64(1), uint64(5), uint8(20), uint8(10), uint8(1))
	f.Add(uint64(2), uint64(300), uint8(200), uint8(100), uint8(3))
	f.Add(uint64(3), uint64(1), uint8(80), uint8(79), uint8(0))
	f.Add(uint64(4), uint64(40), uint8(255), uint8(7), uint8(9))
	f.Add(uint64(6), uint64(40), uint8(255), uint8(7), uint8(9))
	f.Add(uint64(70), uint64(390), uint8(120), uint8(69), uint8(214))
	f.Fuzz(func(t *testing.T, seed, ceiling uint64, entries, when, pace uint8) {
		random := rand.New(rand.NewPCG(seed, 0))
		ceiling %= 1000
		limits := []journal.Limit{{Window: 2000, Ceiling: int64(ceiling)}, {Window: 60_000, Ceiling: 2 * int64(ceiling)}}
		if seed%3 == 0 {
			limits = append(limits, journal.Limit{Window: 3_600_000, Ceiling: int64(ceiling)}, journal.Limit{Window: 5000, Ceiling: int64(ceiling)})
		}
		plain, rewritten := empty(t, limits...), empty(t, limits...)
		ids := keys(int(entries) + 1)
		step := 1 + 100*int64(pace%10)
		question := journal.Question{Keys: ids, Limits: limits, Revision: 7}
		for i := range int(entries) + 1 {
			// An identity is named again while it is among the last 15.
			id := ids[max(0, i-random.IntN(15))]
			e := journal.Entry{Kind: journal.Kind(1 + random.IntN(3)), ID: id, Cost: 1 + random.Int64N(40), Count: 1 + random.Int64N(3), Pending: random.IntN(2) == 0}
			e.Time = now + int64(i)*step + random.Int64N(300)
			if e.Kind != journal.Void && seed%2 == 0 && random.IntN(2) == 0 {
				e.Ends = e.Time + random.Int64N(60*step+5000)
			}
			var err error
			plain, err = journal.AppendEntry(plain, e)
			require.NoError(t, err)
			rewritten, err = journal.AppendEntry(rewritten, e)
			require.NoError(t, err)
			if i%(int(when)+1) == int(when) {
				log := read(t, rewritten, question)
				rewritten, err = log.AppendRewrite(nil, journal.Rewrite{Now: e.Time, Young: 20*step + 1000})
				require.NoError(t, err)
			}
		}
		a, b := read(t, plain, question), read(t, rewritten, question)
		for i := range ids {
			switch found := b.Verdict(i).Found; {
			case found && cmp.Or(b.Entry(i).Appended, b.Entry(i).Time) > b.Head().Floor: // by when it was appended first
				require.Equal(t, a.Verdict(i), b.Verdict(i), "%d", i)
			case found: // no writer asks any more what is ahead of it
				require.Equal(t, a.Verdict(i).Counted, b.Verdict(i).Counted, "%d", i)
			}
			if int64(i)*step+now > b.Head().Floor {
				require.Equal(t, a.Verdict(i).Found, b.Verdict(i).Found, "%d", i)
			}
		}
		for _, limit := range limits {
			for at := max(now, b.Head().Floor+1); at < now+256*step+65_000; at += 137 {
				require.Equal(t, a.Held(limit, at), b.Held(limit, at), "%+v at %d", limit, at)
			}
		}
		since := func(log *journal.Log) map[int64]int64 {
			history := maps.Collect(log.History(1000))
			maps.DeleteFunc(history, func(start, _ int64) bool { return start <= b.Head().Since })
			return history
		}
		require.Equal(t, since(a), since(b))
	})
}

func BenchmarkRead(b *testing.B) {
	for name, value := range map[string][]byte{"settled": history(b, 500, true), "young": history(b, 500, false)} {
		value = add(b, value, journal.Hit, 1)
		question := journal.Question{Keys: keys(1), Limits: []journal.Limit{{Window: 3_600_000, Ceiling: 500}}, Revision: 7}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var log journal.Log
			for b.Loop() {
				if err := log.Read(value, question); err != nil || !log.Verdict(0).Found {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendEntry(b *testing.B) {
	b.ReportAllocs()
	value := make([]byte, 0, 64)
	for b.Loop() {
		if _, err := journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: 1, Time: now, Cost: 1, Count: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
