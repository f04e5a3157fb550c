package repair

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
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

func TestMain(m *testing.M) {
	leaktest.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// memoryReplicas is a store of two copies in memory, each a map by counter and bucket.
type memoryReplicas struct {
	mu        sync.Mutex
	copies    [2]map[string]map[uint64]replicaItem
	versions  uint64
	conns     uint32 // each look is on another connection
	gaps      uint64
	differing []string
	missed    []string
	settled   []string
	fails     error
	alone     bool // one copy is down
	looked    map[string]int
	deleted   int
	onRaise   func(counter string)
	onLook    func(counter string)
}

func (s *memoryReplicas) Capabilities() store.Capabilities { return store.Capabilities{Replicas: 2} }

func newMemoryReplicas() *memoryReplicas {
	return &memoryReplicas{copies: [2]map[string]map[uint64]replicaItem{{}, {}}, looked: map[string]int{}}
}

// put has a copy hold buckets of one event in that second.
func (s *memoryReplicas) put(at int, counter events.Counter, second, value int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := counter.ID()
	if s.copies[at][id] == nil {
		s.copies[at][id] = map[uint64]replicaItem{}
	}
	for bucket := range hierarchy.BucketsOf(counter, second) {
		s.versions++
		item := s.copies[at][id][bucket.ID()]
		s.copies[at][id][bucket.ID()] = replicaItem{item.value + value, layout.Expires(bucket.ID(), retention(counter)), s.versions}
	}
}

func (s *memoryReplicas) values(at int, counter events.Counter) map[uint64]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := map[uint64]int64{}
	for bucket, item := range s.copies[at][counter.ID()] {
		values[bucket] = item.value
	}
	return values
}

// change changes the store under its lock.
func (s *memoryReplicas) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

func (s *memoryReplicas) ServersUp(string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone {
		return []string{"0"}
	}
	return []string{"0", "1"}
}

func (s *memoryReplicas) Do(_ context.Context, ops ...*store.Op) {
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

func (s *memoryReplicas) look(op *store.Op) error {
	s.looked[op.Counter]++
	if s.onLook != nil {
		s.onLook(op.Counter)
	}
	s.conns++
	for i := range op.Reads {
		item := s.copies[replicaNamed(op.Server)][op.Counter][op.Reads[i].Item]
		op.Reads[i].Value, op.Reads[i].Version = item.value, 0
		if item.version != 0 {
			op.Reads[i].Version = store.Version(s.conns, item.version)
		}
	}
	return s.fails
}

func (s *memoryReplicas) raise(op *store.Op) {
	items, w := s.copies[replicaNamed(op.Server)], &op.Writes[0]
	if !store.SameVersion(items[op.Counter][w.Item].version, w.Version) {
		return
	}
	if items[op.Counter] == nil {
		items[op.Counter] = map[uint64]replicaItem{}
	}
	s.versions++
	items[op.Counter][w.Item] = replicaItem{w.By, w.Expires, s.versions}
	w.Result = 1
	if s.onRaise != nil {
		s.onRaise(op.Counter)
	}
}

func (s *memoryReplicas) delete(op *store.Op) {
	for _, w := range op.Writes {
		s.deleted++
		delete(s.copies[0][op.Counter], w.Item)
		delete(s.copies[1][op.Counter], w.Item)
	}
}

func (s *memoryReplicas) Gaps() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaps
}

// Unlisted: there are passes over the counters that the process has used.
func (s *memoryReplicas) Unlisted() bool { return true }

func (s *memoryReplicas) Claim(context.Context) (*replica.Copying, error) { return nil, nil }

func (s *memoryReplicas) Differing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	differing := s.differing
	s.differing = nil
	return differing
}

func (s *memoryReplicas) Missed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.missed
	s.missed = nil
	return missed
}

func (s *memoryReplicas) Settle(counter string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, counter)
}

func repairedCounter(user string) events.Counter {
	event := &events.Event{Name: "e"}
	counter, err := event.Counter(events.Features{"user": user})
	if err != nil {
		panic(err)
	}
	return counter
}

// noteUse has the Repairer know the counter.
func noteUse(m *Repairer, counter events.Counter) {
	layout.OnUse(m.Note)(counter.ID(), counter, time.Now())
}

// layout is that of the engine with which the tests count.
var layout = hierarchy.Layout{Grace: hierarchy.DefaultGrace}

// kept returns the counter as the Repairer knows it.
func kept(counter events.Counter) (k Counter) {
	layout.OnUse(func(id string, finest, coarsest uint8, retention time.Duration, _ time.Time) {
		k = Counter{id, finest, coarsest, retention}
	})(counter.ID(), counter, time.Now())
	return k
}

func retention(counter events.Counter) time.Duration { return kept(counter).Retention }

// withRepairer runs a test on a Repairer in fake time.
func withRepairer(t *testing.T, test func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		store, told := newMemoryReplicas(), &repairerEvents{}
		m, err := New(Config{
			Store: store, Layout: layout, Grace: layout.Grace, MaxBytes: 1 << 19, OnError: told.report,
			OnPassEnd: func(walk Pass) { told.change(func() { told.passes = append(told.passes, walk) }) },
		})
		require.NoError(t, err)
		defer m.Close()
		test(t, store, m, told)
	})
}

// repairerEvents are the calls of a Repairer's functions.
type repairerEvents struct {
	mu     sync.Mutex
	passes []Pass
	faults []error
}

func (told *repairerEvents) change(how func()) {
	told.mu.Lock()
	defer told.mu.Unlock()
	how()
}

func (told *repairerEvents) report(err error) {
	told.change(func() { told.faults = append(told.faults, err) })
}

// A counter of which a replica has missed a write is repaired although nothing else happens, and again
// until that succeeds. A pass repairs the logs of all counters, and from the moment of its cause on
// the state says that it is due.
func TestLogsAreRepaired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replicas, fails := newMemoryReplicas(), 2
		var mu sync.Mutex
		repaired := map[string]int{}
		seen := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(repaired)
		}
		m, err := New(Config{
			Store: replicas, Layout: layout, Grace: layout.Grace, MaxBytes: 1 << 19,
			RepairLog: func(_ context.Context, counter string, retention time.Duration) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, 24*time.Hour, retention)
				if fails > 0 {
					fails--
					return 0, errors.New("a replica does not answer")
				}
				repaired[counter]++
				return 1, nil
			},
		})
		require.NoError(t, err)
		defer m.Close()
		for i := range 20 {
			noteUse(m, repairedCounter(fmt.Sprint(i)))
		}
		missed := repairedCounter("7").ID()
		replicas.change(func() { replicas.missed = []string{missed} })
		time.Sleep(time.Second)
		require.Equal(t, 1, m.State().Failed, "it is known at once")
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{missed: 1}, seen())
		replicas.change(func() { require.Equal(t, []string{missed}, replicas.settled) })
		require.Equal(t, State{Known: 20, Raised: 1}, m.State())
		replicas.change(func() { replicas.gaps++ })
		time.Sleep(time.Second)
		require.Equal(t, 20, m.State().ToWalk)
		time.Sleep(time.Minute)
		require.Len(t, seen(), 20)
		require.Equal(t, State{Known: 20, Raised: 21}, m.State())
	})
}

func TestAnEmptyReplicaIsRepaired(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		now := time.Now().Unix()
		for i := range 300 {
			c := repairedCounter(fmt.Sprint(i))
			noteUse(m, c)
			store.put(0, c, now-int64(i)*250, 3)
			store.put(0, c, now-int64(i), 4)
		}
		time.Sleep(time.Minute)
		require.Empty(t, told.passes, "there was no reason")
		store.change(func() { store.gaps = 7 })
		time.Sleep(time.Minute)
		for i := range 300 {
			c := repairedCounter(fmt.Sprint(i))
			require.Equal(t, store.values(0, c), store.values(1, c))
		}
		require.Len(t, told.passes, 1)
		require.Equal(t, 300, told.passes[0].Counters)
		require.Equal(t, State{Known: 300, Raised: int64(told.passes[0].Raised)}, m.State())
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
func TestReplicasThatMissedDifferentEvents(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		c, now := repairedCounter("a"), time.Now().Unix()
		noteUse(m, c)
		store.put(0, c, now-100, 3)
		store.put(1, c, now-7200, 5)
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		want := newMemoryReplicas()
		want.put(0, c, now-100, 3)
		want.put(0, c, now-7200, 5)
		require.Equal(t, want.values(0, c), store.values(0, c))
		require.Equal(t, want.values(0, c), store.values(1, c))
	})
}

// A parent that is quiet and equal on all copies is looked at again when a child that was
// not quiet has been raised.
func TestAParentWaitsForItsChildren(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		c, now := repairedCounter("a"), time.Now()
		noteUse(m, c)
		second := hierarchy.BucketAt(hierarchy.Minute, now.Unix()-3600).First()
		store.put(0, c, second, 3)
		store.put(1, c, second+1, 3)
		store.onLook = func(id string) {
			if time.Since(now) > 7*time.Second {
				return
			}
			for at := range store.copies {
				bucket := hierarchy.BucketAt(hierarchy.Second, second+int64(at)).ID()
				item := store.copies[at][id][bucket]
				store.versions++
				item.version = store.versions
				store.copies[at][id][bucket] = item
			}
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		want := newMemoryReplicas()
		want.put(0, c, second, 3)
		want.put(0, c, second+1, 3)
		require.Equal(t, want.values(0, c), store.values(0, c))
		require.Equal(t, want.values(0, c), store.values(1, c))
	})
}

func TestACounterOfMinutes(t *testing.T) {
	for _, precision := range []events.Precision{events.Minute, events.Hour} {
		for _, retention := range []time.Duration{time.Hour, 24 * time.Hour, 30 * 24 * time.Hour} {
			withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
				c, now := repairedCounter("a"), time.Now().Unix()
				c.Precision, c.Retention = precision, retention
				noteUse(m, c)
				for back := int64(0); back < int64(retention/time.Second); back += int64(retention/time.Second) / 7 {
					store.put(0, c, now-back, 3)
				}
				store.change(func() { store.gaps++ })
				time.Sleep(time.Minute)
				require.Equal(t, store.values(0, c), store.values(1, c))
			})
		}
	}
}

func TestACounterWithManyBuckets(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		c, now := repairedCounter("a"), time.Now().Unix()
		c.Retention = 72 * time.Hour
		noteUse(m, c)
		for second := range int64(120_000) { // more than are repaired at once
			store.put(0, c, now-second*2, 1)
		}
		store.change(func() { store.gaps++ })
		time.Sleep(10 * time.Minute)
		require.Equal(t, store.values(0, c), store.values(1, c))
		require.Len(t, told.passes, 1)
	})
}

// However many counters have many buckets, only so many of these are held at a time.
func TestManyCountersWithManyBuckets(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, _ *repairerEvents) {
		const counters, seconds = 12, 50_000
		first, now := repairedCounter("0"), time.Now().Unix()
		for second := range int64(seconds) {
			store.put(0, first, now-second, 1)
		}
		for i := range counters {
			c := repairedCounter(fmt.Sprint(i))
			noteUse(m, c)
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
		require.LessOrEqual(t, begun, heldEntries/seconds+atOnce)
	})
}

// A failed repair is tried again, and counted as such until it succeeds.
func TestAFailedRepairIsTriedAgain(t *testing.T) {
	for name, change := range map[string]func(s *memoryReplicas, broken bool){
		"a store that fails": func(s *memoryReplicas, broken bool) {
			s.fails = nil
			if broken {
				s.fails = errors.New("no")
			}
		},
		"a replica that is down": func(s *memoryReplicas, broken bool) { s.alone = broken },
	} {
		t.Run(name, func(t *testing.T) {
			withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
				c := repairedCounter("a")
				noteUse(m, c)
				store.put(0, c, time.Now().Unix(), 3)
				store.change(func() { store.gaps++; change(store, true) })
				time.Sleep(30 * time.Second)
				require.Equal(t, 1, m.State().Failed)
				require.ErrorContains(t, told.faults[0], "could not be repaired")
				require.Greater(t, len(told.faults), 1, "it was tried again")
				store.change(func() { change(store, false) })
				time.Sleep(2 * time.Minute)
				require.Equal(t, store.values(0, c), store.values(1, c))
				require.Zero(t, m.State().Failed)
			})
		})
	}
}

// A counter that is noted for the first time during a pass is no part of it, and is
// repaired after it.
func TestACounterThatComesDuringThePass(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		a, b := repairedCounter("a"), repairedCounter("b")
		noteUse(m, a)
		store.put(0, a, time.Now().Unix(), 3)
		store.put(0, b, time.Now().Unix(), 3)
		store.onLook = func(string) {
			store.onLook = nil
			noteUse(m, b)
		}
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		require.Equal(t, store.values(0, b), store.values(1, b))
		require.Equal(t, 1, told.passes[0].Counters)
	})
}

// However many counters are used for the first time, all the time: a pass over the older
// ones ends, also the first one of a process, and the next gap is seen.
func TestAStreamOfNewCounters(t *testing.T) {
	for name, every := range map[string]time.Duration{"one in 2.5 s": 2500 * time.Millisecond, "twenty a second": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
				ended := make(chan struct{})
				var stream sync.WaitGroup
				stream.Go(func() {
					for i := 0; ; i++ {
						c := repairedCounter(fmt.Sprint("new ", i))
						noteUse(m, c)
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
					c := repairedCounter(fmt.Sprint(i))
					noteUse(m, c)
					store.put(0, c, time.Now().Unix()-int64(i), 3)
				}
				for gaps := uint64(1); gaps <= 3; gaps++ {
					store.change(func() { store.gaps++ })
					time.Sleep(30 * time.Second)
					told.change(func() {
						require.Len(t, told.passes, int(gaps))
					})
				}
				for i := range 50 {
					c := repairedCounter(fmt.Sprint(i))
					require.Equal(t, store.values(0, c), store.values(1, c))
				}
			})
		})
	}
}

// A gap does not wait for repairs of single counters that cannot end at once.
func TestAGapEndsTheRepairOfSingleCounters(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		busy, other := repairedCounter("busy"), repairedCounter("other")
		busy.Precision = events.Minute // never quiet, and without finer buckets
		noteUse(m, busy)
		noteUse(m, other)
		store.put(0, busy, time.Now().Unix(), 3)
		store.put(0, other, time.Now().Unix(), 3)
		store.onLook = func(id string) {
			for bucket, item := range store.copies[0][busy.ID()] {
				store.versions++
				store.copies[0][busy.ID()][bucket] = replicaItem{item.value, item.expires, store.versions}
			}
		}
		store.change(func() { store.differing = []string{busy.ID()} })
		time.Sleep(10 * time.Second) // its repair is under way
		store.change(func() { store.gaps++ })
		time.Sleep(10 * time.Second)
		require.Equal(t, store.values(0, other), store.values(1, other))
	})
}

// Where more repairs failed than were written down a new pass begins: one, also if a server
// has missed something meanwhile.
func TestAPassForTwoReasons(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		noteUse(m, repairedCounter("a"))
		m.backlog.mu.Lock()
		m.backlog.again = true
		m.backlog.mu.Unlock()
		store.change(func() { store.gaps++ })
		time.Sleep(time.Minute)
		told.change(func() {
			require.Len(t, told.passes, 1)
		})
	})
}

// A counter whose replicas were seen to differ is repaired; an unknown one is not, and one
// without a difference has a longer and longer cooldown.
func TestCountersThatDiffer(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		a, b := repairedCounter("a"), repairedCounter("b")
		noteUse(m, a)
		store.put(0, a, time.Now().Unix(), 3)
		store.put(0, b, time.Now().Unix(), 3)
		seen := func() { store.change(func() { store.differing = []string{a.ID(), b.ID()} }) }
		seen()
		time.Sleep(30 * time.Second)
		require.Equal(t, store.values(0, a), store.values(1, a))
		require.Empty(t, store.values(1, b))
		require.Empty(t, told.passes)
		looked := func() (n int) {
			store.change(func() { n = store.looked[a.ID()] })
			return n
		}
		before := looked()
		for range 600 {
			seen()
			time.Sleep(time.Second)
		}
		perRepair := before // more than one takes that raises nothing
		require.Less(t, looked()-before, 8*perRepair)
	})
}

// A reset that comes while a bucket is created is not undone.
func TestAResetMeetsTheRepairer(t *testing.T) {
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		c := repairedCounter("a")
		noteUse(m, c)
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
	withRepairer(t, func(t *testing.T, store *memoryReplicas, m *Repairer, told *repairerEvents) {
		c := repairedCounter("a")
		noteUse(m, c)
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
		c := repairedCounter(user)
		c.Retention, c.Precision = retention, precision
		return list.note(kept(c), now)
	}
	require.True(t, note("a", time.Hour, events.Minute))
	require.False(t, note("a", time.Hour, events.Minute))
	require.False(t, note("a", 48*time.Hour, events.Second), "it is kept otherwise, but known")
	require.False(t, note("a", time.Minute, events.Second))
	k, found := list.find(repairedCounter("a").ID())
	require.True(t, found)
	require.Equal(t, Counter{repairedCounter("a").ID(), uint8(hierarchy.Second), uint8(hierarchy.Day), 48 * time.Hour}, k, "the most of what it may be")
	now = now.Add(48*time.Hour + 20*time.Hour)
	require.Equal(t, 1, list.len())
	require.False(t, note("a", time.Minute, events.Second), "used again")
	now = now.Add(48*time.Hour + 26*time.Hour)
	_, found = list.find(repairedCounter("a").ID())
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
	list, c, now := newCensus(1<<19, time.Now), kept(repairedCounter("a")), time.Now()
	list.note(c, now)
	assert.Zero(t, testing.AllocsPerRun(100, func() { list.note(c, now) }))
	var none *Repairer
	none.Close()
}

func TestConfigs(t *testing.T) {
	for _, config := range []Config{
		{}, {Store: newMemoryReplicas(), Grace: 1}, {Layout: layout, Grace: 1}, {Store: newMemoryReplicas(), Layout: layout},
		{Store: newMemoryReplicas(), Layout: layout, Grace: 1, Timeout: -1}, {Store: newMemoryReplicas(), Layout: layout, Grace: 1, Rate: -1},
		{Store: newMemoryReplicas(), Layout: layout, Grace: 1, MaxBytes: -1},
	} {
		_, err := New(config)
		require.Error(t, err)
	}
}

// What Note costs a hit.
func BenchmarkNote(b *testing.B) {
	m, err := newRepairer(Config{Store: newMemoryReplicas(), Layout: layout, Grace: layout.Grace})
	require.NoError(b, err)
	counter, now := repairedCounter("a"), time.Now()
	id, note := counter.ID(), layout.OnUse(m.Note)
	b.ReportAllocs()
	for b.Loop() {
		note(id, counter, now)
	}
}
