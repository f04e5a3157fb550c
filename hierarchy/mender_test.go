package hierarchy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/store"
)

// memoryCopies is a store of two copies in memory, each a map by counter and bucket.
type memoryCopies struct {
	mu        sync.Mutex
	copies    [2]map[string]map[uint64]copyItem
	versions  uint64
	gaps      uint64
	differing []string
	fails     error
	alone     bool // one copy is down
	looked    map[string]int
	deleted   int
	onRaise   func(counter string)
	onLook    func(counter string)
}

func (s *memoryCopies) Capabilities() store.Capabilities { return store.Capabilities{Replicas: 2} }

func newMemoryCopies() *memoryCopies {
	return &memoryCopies{copies: [2]map[string]map[uint64]copyItem{{}, {}}, looked: map[string]int{}}
}

// put has a copy hold buckets of one event in that second.
func (s *memoryCopies) put(at int, counter events.Counter, second, value int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := counter.ID()
	if s.copies[at][id] == nil {
		s.copies[at][id] = map[uint64]copyItem{}
	}
	for bucket := range BucketsOf(counter, second) {
		s.versions++
		item := s.copies[at][id][bucket.ID()]
		s.copies[at][id][bucket.ID()] = copyItem{item.value + value, bucket.Expires(retention(counter), DefaultGrace), s.versions}
	}
}

func (s *memoryCopies) values(at int, counter events.Counter) map[uint64]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := map[uint64]int64{}
	for bucket, item := range s.copies[at][counter.ID()] {
		values[bucket] = item.value
	}
	return values
}

// change changes the store under its lock.
func (s *memoryCopies) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

func (s *memoryCopies) ServersUp(string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone {
		return []string{"0"}
	}
	return []string{"0", "1"}
}

func (s *memoryCopies) Do(_ context.Context, ops ...*store.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range ops {
		switch op.Err = nil; op.Kind() {
		case 0:
			op.Err = s.look(op)
		case store.Delete:
			s.delete(op)
		default:
			s.raise(op)
		}
	}
}

func (s *memoryCopies) look(op *store.Op) error {
	s.looked[op.Counter]++
	if s.onLook != nil {
		s.onLook(op.Counter)
	}
	for i := range op.Reads {
		item := s.copies[copyNamed(op.Server)][op.Counter][op.Reads[i].Item]
		op.Reads[i].Value, op.Reads[i].Version = item.value, item.version
	}
	return s.fails
}

func (s *memoryCopies) raise(op *store.Op) {
	items, w := s.copies[copyNamed(op.Server)], &op.Writes[0]
	if items[op.Counter][w.Item].version != w.Version {
		return
	}
	if items[op.Counter] == nil {
		items[op.Counter] = map[uint64]copyItem{}
	}
	s.versions++
	items[op.Counter][w.Item] = copyItem{w.By, w.Expires, s.versions}
	w.Result = 1
	if s.onRaise != nil {
		s.onRaise(op.Counter)
	}
}

func (s *memoryCopies) delete(op *store.Op) {
	for _, w := range op.Writes {
		s.deleted++
		delete(s.copies[0][op.Counter], w.Item)
		delete(s.copies[1][op.Counter], w.Item)
	}
}

func (s *memoryCopies) Gaps() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaps
}

func (s *memoryCopies) Differing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	differing := s.differing
	s.differing = nil
	return differing
}

func mendedCounter(user string) events.Counter {
	event := &events.Event{Name: "e"}
	counter, err := event.Counter(events.Features{"user": user})
	if err != nil {
		panic(err)
	}
	return counter
}

// withMender runs a test on a mender in fake time.
func withMender(t *testing.T, test func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		store, told := newMemoryCopies(), &menderTold{}
		m, err := NewRepairer(RepairerConfig{
			Store: store, MaxBytes: 1 << 19, OnError: told.report,
			OnRepaired: func(gaps uint64) { told.change(func() { told.mended = append(told.mended, gaps) }) },
			OnPassEnd:  func(walk RepairPass) { told.change(func() { told.walks = append(told.walks, walk) }) },
		})
		require.NoError(t, err)
		defer m.Close()
		test(t, store, m, told)
	})
}

// menderTold is what a mender has told.
type menderTold struct {
	mu     sync.Mutex
	mended []uint64
	walks  []RepairPass
	faults []error
}

func (told *menderTold) change(how func()) {
	told.mu.Lock()
	defer told.mu.Unlock()
	how()
}

func (told *menderTold) report(err error) {
	told.change(func() { told.faults = append(told.faults, err) })
}

func TestAnEmptyCopyIsMended(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		now := time.Now().Unix()
		for i := range 300 {
			c := mendedCounter(fmt.Sprint(i))
			m.Note(c)
			store.put(0, c, now-int64(i)*250, 3)
			store.put(0, c, now-int64(i), 4)
		}
		time.Sleep(time.Minute)
		require.Empty(t, told.walks, "there was no reason")
		store.change(func() { store.gaps = 7 })
		time.Sleep(time.Minute)
		for i := range 300 {
			c := mendedCounter(fmt.Sprint(i))
			require.Equal(t, store.values(0, c), store.values(1, c))
		}
		require.Equal(t, []uint64{7}, told.mended)
		require.Len(t, told.walks, 1)
		require.Equal(t, 300, told.walks[0].Counters)
		require.Equal(t, RepairState{Known: 300, Raised: int64(told.walks[0].Raised), Walked: 7}, m.State())
		require.Empty(t, told.faults)
		store.change(func() {
			for id, items := range store.copies[1] {
				for bucket, item := range items {
					require.Equal(t, store.copies[0][id][bucket].expires, item.expires, "it lives as long")
				}
			}
		})
	})
}

// Where each copy has missed other events the parents are made good from the children.
func TestCopiesThatMissedDifferentEvents(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		c, now := mendedCounter("a"), time.Now().Unix()
		m.Note(c)
		store.put(0, c, now-100, 3)
		store.put(1, c, now-7200, 5)
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		want := newMemoryCopies()
		want.put(0, c, now-100, 3)
		want.put(0, c, now-7200, 5)
		require.Equal(t, want.values(0, c), store.values(0, c))
		require.Equal(t, want.values(0, c), store.values(1, c))
		require.Equal(t, []uint64{1}, told.mended)
	})
}

// A parent that is quiet and equal on all copies is looked at again when a child that was
// not quiet has been raised.
func TestAParentWaitsForItsChildren(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		c, now := mendedCounter("a"), time.Now()
		m.Note(c)
		second := BucketAt(Minute, now.Unix()-3600).First()
		store.put(0, c, second, 3)
		store.put(1, c, second+1, 3)
		store.onLook = func(id string) {
			if time.Since(now) > 7*time.Second {
				return
			}
			for at := range store.copies {
				bucket := BucketAt(Second, second+int64(at)).ID()
				item := store.copies[at][id][bucket]
				store.versions++
				item.version = store.versions
				store.copies[at][id][bucket] = item
			}
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		want := newMemoryCopies()
		want.put(0, c, second, 3)
		want.put(0, c, second+1, 3)
		require.Equal(t, want.values(0, c), store.values(0, c))
		require.Equal(t, want.values(0, c), store.values(1, c))
	})
}

func TestACounterOfMinutes(t *testing.T) {
	for _, precision := range []events.Precision{events.Minute, events.Hour} {
		for _, retention := range []time.Duration{time.Hour, 24 * time.Hour, 30 * 24 * time.Hour} {
			withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
				c, now := mendedCounter("a"), time.Now().Unix()
				c.Precision, c.Retention = precision, retention
				m.Note(c)
				for back := int64(0); back < int64(retention/time.Second); back += int64(retention/time.Second) / 7 {
					store.put(0, c, now-back, 3)
				}
				store.change(func() { store.gaps++ })
				time.Sleep(time.Minute)
				require.Equal(t, store.values(0, c), store.values(1, c))
				require.Equal(t, []uint64{1}, told.mended)
			})
		}
	}
}

func TestACounterWithManyBuckets(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, _ *menderTold) {
		c, now := mendedCounter("a"), time.Now().Unix()
		c.Retention = 72 * time.Hour
		m.Note(c)
		for second := range int64(120_000) { // more than are mended at once
			store.put(0, c, now-second*2, 1)
		}
		store.change(func() { store.gaps++ })
		time.Sleep(10 * time.Minute)
		require.Equal(t, store.values(0, c), store.values(1, c))
		require.Equal(t, uint64(1), m.State().Walked)
	})
}

// However many counters have many buckets, only so many of these are held at a time.
func TestManyCountersWithManyBuckets(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, _ *menderTold) {
		const counters, seconds = 12, 50_000
		first, now := mendedCounter("0"), time.Now().Unix()
		for second := range int64(seconds) {
			store.put(0, first, now-second, 1)
		}
		for i := range counters {
			c := mendedCounter(fmt.Sprint(i))
			m.Note(c)
			store.copies[0][c.ID()] = maps.Clone(store.copies[0][first.ID()])
		}
		begun := 0
		store.onRaise = func(string) {
			if begun == 0 {
				begun = len(store.looked)
			}
		}
		store.change(func() { store.gaps++ })
		for raised := false; !raised; {
			time.Sleep(time.Second)
			store.change(func() { raised = begun > 0 })
		}
		require.LessOrEqual(t, begun, menderEntries/seconds+menderLooks)
	})
}

// What cannot be mended is tried again, and not said to be mended before.
func TestWhatCannotBeMendedIsTriedAgain(t *testing.T) {
	for name, change := range map[string]func(s *memoryCopies, broken bool){
		"a store that fails": func(s *memoryCopies, broken bool) {
			s.fails = nil
			if broken {
				s.fails = errors.New("no")
			}
		},
		"a copy that is down": func(s *memoryCopies, broken bool) { s.alone = broken },
	} {
		t.Run(name, func(t *testing.T) {
			withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
				c := mendedCounter("a")
				m.Note(c)
				store.put(0, c, time.Now().Unix(), 3)
				store.change(func() { store.gaps++; change(store, true) })
				time.Sleep(30 * time.Second)
				require.Empty(t, told.mended)
				require.Equal(t, 1, m.State().Failed)
				require.ErrorIs(t, told.faults[0], ErrStore)
				require.Greater(t, len(told.faults), 1, "it was tried again")
				store.change(func() { change(store, false) })
				time.Sleep(2 * time.Minute)
				require.Equal(t, store.values(0, c), store.values(1, c))
				require.Equal(t, []uint64{1}, told.mended)
				require.Zero(t, m.State().Failed)
			})
		})
	}
}

// A counter that is noted for the first time while all are walked is no part of the walk, and
// is mended after it.
func TestACounterThatComesDuringTheWalk(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		a, b := mendedCounter("a"), mendedCounter("b")
		m.Note(a)
		store.put(0, a, time.Now().Unix(), 3)
		store.put(0, b, time.Now().Unix(), 3)
		store.onLook = func(string) {
			store.onLook = nil
			m.Note(b)
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		require.Equal(t, store.values(0, b), store.values(1, b))
		require.Equal(t, 1, told.walks[0].Counters)
		require.Equal(t, []uint64{1}, told.mended)
	})
}

// However many counters are used for the first time, all the time: a walk over those that
// were there before ends, also the first one of a process, and the next gap is seen.
func TestAStreamOfNewCounters(t *testing.T) {
	for name, every := range map[string]time.Duration{"one in 2.5 s": 2500 * time.Millisecond, "twenty a second": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
				ended := make(chan struct{})
				var stream sync.WaitGroup
				stream.Go(func() {
					for i := 0; ; i++ {
						c := mendedCounter(fmt.Sprint("new ", i))
						m.Note(c)
						store.put(i%2, c, time.Now().Unix(), 1) // the other copy differs: all the more to do
						store.change(func() { store.differing = append(store.differing, c.ID()) })
						select {
						case <-time.After(every):
						case <-ended:
							return
						}
					}
				})
				defer stream.Wait()
				defer close(ended)
				for i := range 50 {
					c := mendedCounter(fmt.Sprint(i))
					m.Note(c)
					store.put(0, c, time.Now().Unix()-int64(i), 3)
				}
				for gaps := uint64(1); gaps <= 3; gaps++ {
					store.change(func() { store.gaps++ })
					time.Sleep(30 * time.Second)
					told.change(func() {
						require.Len(t, told.mended, int(gaps))
						require.Equal(t, gaps, told.mended[gaps-1])
					})
				}
				for i := range 50 {
					c := mendedCounter(fmt.Sprint(i))
					require.Equal(t, store.values(0, c), store.values(1, c))
				}
			})
		})
	}
}

// A gap is not held up by counters that are mended on the side, and cannot be at once.
func TestAGapEndsWhatIsMendedOnTheSide(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		busy, other := mendedCounter("busy"), mendedCounter("other")
		busy.Precision = events.Minute // never quiet, and without finer buckets
		m.Note(busy)
		m.Note(other)
		store.put(0, busy, time.Now().Unix(), 3)
		store.put(0, other, time.Now().Unix(), 3)
		store.onLook = func(id string) {
			for bucket, item := range store.copies[0][busy.ID()] {
				store.versions++
				store.copies[0][busy.ID()][bucket] = copyItem{item.value, item.expires, store.versions}
			}
		}
		store.change(func() { store.differing = []string{busy.ID()} })
		time.Sleep(10 * time.Second) // it is being mended
		store.change(func() { store.gaps++ })
		time.Sleep(10 * time.Second)
		require.Equal(t, store.values(0, other), store.values(1, other))
	})
}

// Where more could not be mended than was written down all are walked again: once, also if
// a server has missed something meanwhile.
func TestAWalkForTwoReasons(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		m.Note(mendedCounter("a"))
		m.mu.Lock()
		m.again = true
		m.mu.Unlock()
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		told.change(func() {
			require.Len(t, told.walks, 1)
			require.Equal(t, []uint64{1}, told.mended)
		})
	})
}

// A counter whose copies were seen to differ is mended; one that is not known is not,
// and one on which there was nothing to do is left alone for longer and longer.
func TestCountersThatDiffer(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		a, b := mendedCounter("a"), mendedCounter("b")
		m.Note(a)
		store.put(0, a, time.Now().Unix(), 3)
		store.put(0, b, time.Now().Unix(), 3)
		seen := func() { store.change(func() { store.differing = []string{a.ID(), b.ID()} }) }
		seen()
		time.Sleep(30 * time.Second)
		require.Equal(t, store.values(0, a), store.values(1, a))
		require.Empty(t, store.values(1, b))
		require.Empty(t, told.walks)
		looked := func() (n int) {
			store.change(func() { n = store.looked[a.ID()] })
			return n
		}
		before := looked()
		for range 600 {
			seen()
			time.Sleep(time.Second)
		}
		perMending := before // more than one takes that raises nothing
		require.Less(t, looked()-before, 8*perMending)
	})
}

// A reset that comes while a bucket is created is not undone.
func TestAResetMeetsTheMender(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		c := mendedCounter("a")
		m.Note(c)
		store.put(0, c, time.Now().Unix(), 3)
		store.onRaise = func(counter string) { // the reset has just deleted here
			clear(store.copies[0][counter])
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		require.Empty(t, store.values(1, c))
		require.Positive(t, store.deleted)
	})
}

// That the source has come back empty meanwhile is no reset.
func TestALostSourceIsNoReset(t *testing.T) {
	withMender(t, func(t *testing.T, store *memoryCopies, m *Repairer, told *menderTold) {
		c := mendedCounter("a")
		m.Note(c)
		store.put(0, c, time.Now().Unix(), 3)
		before := store.values(0, c)
		store.onRaise = func(counter string) {
			store.onRaise = nil
			clear(store.copies[0][counter])
			store.gaps++
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		require.Zero(t, store.deleted)
		require.NotEmpty(t, before)
		require.NotEmpty(t, store.values(1, c))
	})
}

func TestTheListOfCounters(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	list := newCensus(1<<19, func() time.Time { return now })
	note := func(user string, retention time.Duration, precision events.Precision) bool {
		c := mendedCounter(user)
		c.Retention, c.Precision = retention, precision
		return list.note(c.ID(), c, now)
	}
	require.True(t, note("a", time.Hour, events.Minute))
	require.False(t, note("a", time.Hour, events.Minute))
	require.False(t, note("a", 48*time.Hour, events.Second), "it is kept otherwise, but known")
	require.False(t, note("a", time.Minute, events.Second))
	k, found := list.find(mendedCounter("a").ID())
	require.True(t, found)
	require.Equal(t, known{mendedCounter("a").ID(), Second, Day, 48 * time.Hour}, k, "the most of what it may be")
	now = now.Add(48*time.Hour + 20*time.Hour)
	require.Equal(t, 1, list.len())
	require.False(t, note("a", time.Minute, events.Second), "used again")
	now = now.Add(48*time.Hour + 26*time.Hour)
	_, found = list.find(mendedCounter("a").ID())
	require.False(t, found, "nothing of it is left")
	require.False(t, list.overflowed())
	for i := range 20_000 {
		note(fmt.Sprint(i), time.Hour, events.Second)
	}
	require.True(t, list.overflowed())
	n := 0
	for range list.knownBefore() {
		n++
	}
	require.Less(t, n, 20_000)
	require.Greater(t, n, 1000)
}

func TestNotingAKnownCounterCostsLittle(t *testing.T) {
	list, c, now := newCensus(1<<19, time.Now), mendedCounter("a"), time.Now()
	id := c.ID()
	list.note(id, c, now)
	assert.Zero(t, testing.AllocsPerRun(100, func() { list.note(id, c, now) }))
	var none *Repairer
	none.Note(c)
	none.Close()
}

func TestMenderConfigs(t *testing.T) {
	for _, config := range []RepairerConfig{{}, {Store: newMemoryCopies(), Timeout: -1}, {Store: newMemoryCopies(), Rate: -1}, {Store: newMemoryCopies(), MaxBytes: -1}} {
		_, err := NewRepairer(config)
		require.Error(t, err)
	}
}

// What it costs a hit that a mender is told of its counter.
func BenchmarkNote(b *testing.B) {
	m, err := newMender(RepairerConfig{Store: newMemoryCopies()})
	require.NoError(b, err)
	counter, now := mendedCounter("a"), time.Now()
	id := counter.ID()
	b.ReportAllocs()
	for b.Loop() {
		m.note(id, counter, now)
	}
}
