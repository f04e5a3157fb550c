//go:build testall

package repair_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

const (
	// copyTimeout is longer than the moments for which a busy machine pauses: a server that does not answer in
	// time has missed something, and a second one then cannot be repaired by it.
	copyTimeout = survivorTimeout
	copyCold    = 60 // users that no running process has seen
)

var copyLayout = hierarchy.Layout{Grace: 2 * copyTimeout}

// arrivals are three servers with two replicas of each counter, at which new users arrive all the
// time, and an oracle of what was acknowledged. A counter is kept in buckets, a log and leases.
type arrivals struct {
	servers []*memcachedtest.Server
	config  memcache.Config
	event   *events.Event

	mu     sync.Mutex
	users  map[string]*user
	change []memcache.ServerHealth // of servers that were called whole
	stop   context.CancelFunc
	load   sync.WaitGroup
}

// user is what is known of the counter of a user.
type user struct {
	seconds map[int64]int64   // its count, by second
	logged  int64             // in its log; 0: it has none
	held    int64             // leases
	settled []engine.Reserved // with buckets
}

func newArrivals(t *testing.T, protocol memcache.Protocol) *arrivals {
	t.Helper()
	a := &arrivals{users: map[string]*user{}, stop: func() {}}
	a.config = memcache.Config{Replicas: 2, Protocol: protocol, Timeout: copyTimeout, OnServerChange: func(change memcache.Change, h memcache.ServerHealth) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if change == memcache.Repaired {
			a.change = append(a.change, h)
		}
	}}
	for range 3 {
		server := memcachedtest.Start(t)
		a.servers, a.config.Servers = append(a.servers, server), append(a.config.Servers, server.Addr)
	}
	a.event = testkit.Event(t, "[{per: user, rate: 1000000/d}, {per: user, rate: 30/h, algorithm: sliding-log}, {per: user, concurrent: 100, lease: 1h}]")
	for i := range a.event.Rules {
		a.event.Rules[i].Revision = 1
	}
	return a
}

func (a *arrivals) counter(name string) events.Counter {
	counter, err := a.event.Counter(events.Features{"user": name})
	if err != nil {
		panic(err)
	}
	return counter
}

// named returns the server of that name.
func (a *arrivals) named(name string) *memcachedtest.Server {
	return a.servers[slices.IndexFunc(a.servers, func(s *memcachedtest.Server) bool { return s.Addr == name })]
}

// process is one that counts, and may repair.
type process struct {
	fleet    *memcache.Fleet
	buckets  *hierarchy.Counters
	limiter  *limiter.Limiter
	counters *counting.Counters
	repairer atomic.Pointer[repair.Repairer]
	fails    func(*store.Op) error // of the repairer's round trips

	mu             sync.Mutex
	started, ended []repair.Copy
	faults         []error
}

func (a *arrivals) open(t *testing.T) *process {
	t.Helper()
	fleet, err := memcache.NewFleet(t.Context(), a.config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	fleet.Ping(t.Context()) // from here on it looks at the servers; a busy one may not answer
	p := &process{fleet: fleet}
	note := copyLayout.OnUse(func(id string, finest, coarsest uint8, retention time.Duration, now time.Time) {
		if r := p.repairer.Load(); r != nil {
			r.Note(id, finest, coarsest, retention, now)
		}
	})
	p.buckets = hierarchy.NewCounters(hierarchy.Config{Store: fleet, Grace: copyLayout.Grace, OnUse: note})
	logs, err := eventlog.New(p.buckets.Base())
	require.NoError(t, err)
	leases, err := eventlog.NewLeases(p.buckets.Base())
	require.NoError(t, err)
	p.limiter, err = limiter.New(limiter.Config{Timeout: copyTimeout}, p.buckets, logs, leases)
	require.NoError(t, err)
	p.counters = counting.New(counting.Config{}, p.buckets, logs, leases)
	return p
}

// watchedFleet calls before ahead of each round trip of a Repairer, and makes one at a time.
type watchedFleet struct {
	*memcache.Fleet
	before func(context.Context, *store.Op)
	fails  func(*store.Op) error // nil: none does
}

func (f watchedFleet) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		f.before(ctx, op)
		if f.fails != nil {
			if op.Err = f.fails(op); op.Err != nil {
				continue
			}
		}
		f.Fleet.Do(ctx, op)
	}
}

// repair starts a Repairer of the process. It knows no counters, as one that has just begun.
func (p *process) repair(t *testing.T, before func(context.Context, *store.Op)) {
	t.Helper()
	base := engine.Base{Store: p.fleet, Grace: copyLayout.Grace}
	logs, err := eventlog.New(base)
	require.NoError(t, err)
	leases, err := eventlog.NewLeases(base)
	require.NoError(t, err)
	repairer, err := repair.New(repair.Config{
		Store: watchedFleet{p.fleet, before, p.fails}, Layout: copyLayout, Grace: copyLayout.Grace, MaxBytes: 1 << 20, Timeout: copyTimeout,
		Retention: func() time.Duration { return 24 * time.Hour },
		RepairLog: func(ctx context.Context, id string, retention time.Duration) (int, error) {
			changed, err := logs.Repair(ctx, id, retention)
			more, fault := leases.Repair(ctx, id, retention)
			return changed + more, errors.Join(err, fault)
		},
		KindOf: backend.KindOf,
		OnCopyStart: func(to, from string) {
			p.note(func() { p.started = append(p.started, repair.Copy{To: to, From: from}) })
		},
		OnCopyEnd: func(c repair.Copy) {
			t.Logf("%+v", c)
			p.note(func() { p.ended = append(p.ended, c) })
		},
		OnError: func(err error) {
			t.Log(err)
			p.note(func() { p.faults = append(p.faults, err) })
		},
	})
	require.NoError(t, err)
	t.Cleanup(repairer.Close)
	p.repairer.Store(repairer)
}

func (p *process) note(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
}

// none watches nothing.
func none(context.Context, *store.Op) {}

// isRaise reports whether the op sets an item of a server.
func isRaise(op *store.Op) bool { return op.Kind() == store.Create || op.Kind() == store.Swap }

// isOf reports whether the op is of the counter, by its alias.
func (p *process) isOf(op *store.Op, counter events.Counter) bool {
	key, _ := store.KeyOf(p.fleet.Capabilities().Alias(counter.ID()))
	of, _ := store.KeyOf(op.Counter)
	return of == key
}

func (a *arrivals) note(name string, how func(*user)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.users[name]
	if u == nil {
		u = &user{seconds: map[int64]int64{}}
		a.users[name] = u
	}
	how(u)
}

// arrive counts a new user: a hit that takes a lease and reserves, and is settled in each second one,
// which releases the lease.
func (a *arrivals) arrive(ctx context.Context, p *process, name string, settles bool) error {
	d := p.limiter.Decide(ctx, limiter.Hit{Event: a.event, Features: events.Features{"user": name}, Cost: 1, Reserved: time.Hour}, limiter.CallHit)
	if d.Err != nil || d.Decision.Unavailable || len(d.Reserved) < len(a.event.Rules) {
		return d.Err // of unknown outcome
	}
	if settles && p.counters.Settle(ctx, d.Reserved, 3) != nil {
		return nil
	}
	a.note(name, func(u *user) {
		if u.held++; settles {
			u.held, u.settled = 0, d.Reserved[:1]
		}
		u.logged = 3 - 2*u.held
		u.seconds[d.Decision.At.Unix()] += u.logged
	})
	return nil
}

// seed counts what no process knows that repairs later, and returns the one that did.
func (a *arrivals) seed(t *testing.T) (p *process) {
	t.Helper()
	p = a.open(t)
	for i := range copyCold {
		name := fmt.Sprint("cold ", i)
		require.NoError(t, a.arrive(t.Context(), p, name, i%2 == 0))
		at := time.Now().Add(-time.Duration(i) * 4 * time.Minute)
		if second, err := p.buckets.Increment(t.Context(), 1, at, a.counter(name)); err == nil {
			a.note(name, func(u *user) { u.seconds[second.Unix()]++ })
		}
	}
	testkit.Await(t, time.Minute, "no hint is pending", func() bool { adds, _ := p.fleet.PendingHints(); return adds == 0 })
	missed := p.fleet.Missed() // it has no Repairer, which would repair these
	maps.DeleteFunc(a.users, func(name string, _ *user) bool { return slices.Contains(missed, a.counter(name).ID()) })
	return p
}

// begin has new users arrive, and one counter be counted all the time.
func (a *arrivals) begin(t *testing.T, p *process) {
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	a.load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			assert.NoError(t, a.arrive(context.Background(), p, fmt.Sprint("new ", i), i%2 == 0))
			rest(ctx, 50*time.Millisecond)
		}
	})
	for range 2 {
		a.load.Go(func() {
			for ctx.Err() == nil {
				second, err := p.buckets.Increment(context.Background(), 1, time.Time{}, a.counter("hot"))
				if err == nil {
					a.note("hot", func(u *user) { u.seconds[second.Unix()]++ })
				}
				rest(ctx, 10*time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		a.load.Wait()
	})
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// onServer is one of the servers by itself.
type onServer struct {
	*memcache.Fleet
	name string
}

func (s onServer) Capabilities() store.Capabilities {
	return store.Capabilities{Writes: s.Fleet.Capabilities().Writes}
}

func (s onServer) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		op.Server = s.name
	}
	s.Fleet.Do(ctx, ops...)
	for _, op := range ops { // engines use their ops again
		op.Server = ""
	}
}

// judge ends the load, and holds each replica of each counter against the oracle, but those on both of the lost
// servers.
func (a *arrivals) judge(t *testing.T, p *process, lost ...string) {
	t.Helper()
	a.stop()
	a.load.Wait()
	testkit.Await(t, time.Minute, "nothing is pending or failed", func() bool { adds, _ := p.fleet.PendingHints(); return adds+p.repairer.Load().State().Failed == 0 })
	var lacks []string
	judged, settled := 0, 0
	for name, u := range a.users {
		counter := a.counter(name)
		servers := p.fleet.Servers(counter.ID())
		if !slices.ContainsFunc(servers, func(s string) bool { return !slices.Contains(lost, s) }) {
			continue
		}
		judged++
		var receipts [][]byte
		for _, server := range servers {
			lacks = append(lacks, u.lacks(t, onServer{p.fleet, server}, counter)...)
			for _, r := range u.settled {
				item := store.Item(store.OtherLevels+1, int64(r.ID))
				require.True(t, hierarchy.IsReceipt(item))
				receipts = append(receipts, slices.Clone(ask(t, onServer{p.fleet, server}, store.Op{Counter: counter.ID(), Data: true, Reads: []store.Read{{Item: item}}}).Reads[0].Data))
			}
		}
		if len(receipts) > 0 {
			settled++
			if len(receipts[0]) == 0 || !bytes.Equal(receipts[0], receipts[1]) {
				lacks = append(lacks, fmt.Sprintf("%v have %q for one receipt", servers, receipts))
			}
		}
	}
	assert.Empty(t, lacks[:min(len(lacks), 20)], "%d in all", len(lacks))
	assert.Greater(t, judged, copyCold/2)
	assert.Greater(t, settled, copyCold/5)
	t.Logf("%d of %d users judged, %d of them settled", judged, len(a.users), settled)
}

// lacks returns what the server lacks of the counter.
func (u *user) lacks(t *testing.T, on onServer, counter events.Counter) (lacks []string) {
	want := map[uint64]int64{}
	for second, n := range u.seconds {
		for bucket := range hierarchy.BucketsOf(counter, second) {
			want[bucket.ID()] += n
		}
	}
	op := store.Op{Counter: counter.ID()}
	for item := range want {
		op.Reads = append(op.Reads, store.Read{Item: item})
	}
	for _, r := range ask(t, on, op).Reads {
		if r.Value < want[r.Item] {
			lacks = append(lacks, fmt.Sprintf("%s holds %d in bucket %x of %q, not %d", on.name, r.Value, r.Item, counter.ID(), want[r.Item]))
		}
	}
	if u.logged == 0 {
		return lacks
	}
	base := engine.Base{Store: on, Grace: copyLayout.Grace}
	for what, of := range map[string]struct {
		open func(engine.Base) (*eventlog.Engine, error)
		want int64
	}{"its log": {eventlog.New, u.logged}, "its leases": {eventlog.NewLeases, u.held}} {
		e, err := of.open(base)
		require.NoError(t, err)
		count := patiently(t, func() (engine.Count, error) { return e.Count(t.Context(), counter, time.Hour, time.Time{}) })
		if count.Count != of.want {
			lacks = append(lacks, fmt.Sprintf("%s holds %d in %s of %q, not %d", on.name, count.Count, what, counter.ID(), of.want))
		}
	}
	return lacks
}

// ask makes a round trip until it is answered: the machine may be busy.
func ask(t *testing.T, on onServer, op store.Op) store.Op {
	t.Helper()
	for range 60 {
		if on.Do(t.Context(), &op); op.Err == nil {
			break
		}
	}
	require.NoError(t, op.Err)
	return op
}

func (a *arrivals) loseOne(i int) {
	a.servers[i].Stop()
	time.Sleep(300 * time.Millisecond) // under load
	a.servers[i].Restart()
}

// A server comes back empty: all that no process knows, all that arrives meanwhile and a counter that is
// never quiet are copied to it, in a process that has just begun. Each of the first times that the server is
// asked for one of the counters, another process counts it between that and the other server.
func TestAllIsCopiedToAServerThatLostIt(t *testing.T) {
	leaktest.Parallel(t)
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			a := newArrivals(t, protocol)
			other := a.seed(t)
			p := a.open(t)
			name := a.onTheLost(p)
			a.begin(t, p)
			var times atomic.Int32
			p.repair(t, func(ctx context.Context, op *store.Op) {
				if op.Kind() != 0 || op.Data || op.Server != a.servers[0].Addr || !p.isOf(op, a.counter(name)) || times.Add(1) > 40 {
					return
				}
				second, err := other.buckets.Increment(context.WithoutCancel(ctx), 1, time.Time{}, a.counter(name))
				if err == nil {
					a.note(name, func(u *user) { u.seconds[second.Unix()]++ })
				}
			})
			a.loseOne(0)
			whole(t, p.fleet)
			a.judge(t, p)
		})
	}
}

// A round trip that fails is made again, and none that did not: of each other server there is one copy, and all is copied.
func TestAFailedTripIsMadeAgain(t *testing.T) {
	leaktest.Parallel(t)
	a := newArrivals(t, memcache.Auto)
	a.seed(t)
	p := a.open(t)
	a.begin(t, p)
	var trips, failed atomic.Int32
	p.fails = func(op *store.Op) error {
		if trips.Add(1)%40 != 20 || failed.Load() == 10 {
			return nil
		}
		failed.Add(1)
		return errors.New("a trip that the test has fail")
	}
	p.repair(t, none)
	a.loseOne(0)
	whole(t, p.fleet)
	a.judge(t, p)
	require.EqualValues(t, 10, failed.Load())
	p.note(func() {
		for _, err := range p.faults { // counters that are in use are repaired later
			assert.NotContains(t, err.Error(), "copied to it later")
		}
		assert.Len(t, p.started, 2)
		assert.Len(t, p.ended, 2)
	})
}

// A process that ends in the middle of a copy leaves no claim: another one, to which there was nothing to do
// until then, copies all.
func TestAnotherProcessGoesOn(t *testing.T) {
	leaktest.Parallel(t)
	a := newArrivals(t, memcache.Auto)
	a.seed(t)
	first, second := a.open(t), a.open(t)
	a.begin(t, second)
	var mu sync.Mutex
	raises, middle := 0, make(chan struct{})
	first.repair(t, func(ctx context.Context, op *store.Op) {
		if !isRaise(op) {
			return
		}
		mu.Lock()
		raises++
		if raises == 3 {
			close(middle)
		}
		blocks := raises >= 3
		mu.Unlock()
		if blocks {
			<-ctx.Done()
		}
	})
	a.loseOne(0)
	await(t, middle)
	marker := func() string { return strings.Join(a.servers[0].Ask("gets counterd:memory"), "\n") }
	require.Contains(t, marker(), `"claim"`)
	second.repair(t, none)
	time.Sleep(2500 * time.Millisecond) // it has asked for a claim
	second.note(func() { require.Empty(t, second.started) })
	first.repairer.Load().Close()
	require.NotContains(t, marker(), `"claim"`)
	require.Empty(t, first.ended)
	whole(t, second.fleet)
	a.judge(t, second)
}

// If the source of a copy is lost meanwhile, what it had is not taken to be copied: neither server is called
// whole, and all is copied that the third one has.
func TestTheSourceIsLost(t *testing.T) {
	leaktest.Parallel(t)
	a := newArrivals(t, memcache.Auto)
	a.seed(t)
	p := a.open(t)
	a.begin(t, p)
	middle, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.repair(t, func(ctx context.Context, op *store.Op) {
		if !isRaise(op) {
			return
		}
		once.Do(func() { close(middle) })
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	})
	a.loseOne(0)
	await(t, middle)
	testkit.Await(t, time.Minute, "a repair begins", func() (begun bool) { // a counter may be repaired by itself before
		p.note(func() { begun = len(p.started) > 0 })
		return begun
	})
	var lost []string
	p.note(func() { lost = []string{p.started[0].To, p.started[0].From} })
	require.Equal(t, a.servers[0].Addr, lost[0])
	a.named(lost[1]).Stop()
	a.named(lost[1]).Restart()
	close(goOn)
	eventually(t, p.fleet, func(h memcache.ServerHealth) bool {
		return slices.Contains(lost, h.Name) == (h.Left && h.Since != 0)
	})
	a.judge(t, p, lost...)
	p.note(func() { require.NotEmpty(t, p.faults) })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.change {
		assert.NotContains(t, lost, h.Name, "it was called whole")
	}
}

// onTheLost returns the name of a user that a server which is lost has.
func (a *arrivals) onTheLost(p *process) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("cold ", i)
		if a.users[name] != nil && slices.Contains(p.fleet.Servers(a.counter(name).ID()), a.servers[0].Addr) {
			return name
		}
	}
}

// A reset that comes while a counter is copied is not undone, and may be one of several.
func TestAResetMeetsTheCopy(t *testing.T) {
	leaktest.Parallel(t)
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("another one %t", again), func(t *testing.T) {
			t.Parallel()
			a := newArrivals(t, memcache.Auto)
			a.seed(t)
			p := a.open(t)
			name := a.onTheLost(p)
			counter, gone := a.counter(name), a.users[name]
			a.begin(t, p)
			if again {
				require.NoError(t, p.counters.Reset(t.Context(), counter))
				require.NoError(t, a.arrive(t.Context(), p, name, true))
			}
			a.mu.Lock()
			delete(a.users, name)
			a.mu.Unlock()
			resets := 0
			var mu sync.Mutex
			p.repair(t, func(ctx context.Context, op *store.Op) {
				if !isRaise(op) || op.Data || !p.isOf(op, counter) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if resets++; resets > 1 && !again {
					return
				}
				assert.NoError(t, p.counters.Reset(context.WithoutCancel(ctx), counter))
			})
			a.loseOne(0)
			whole(t, p.fleet)
			require.Positive(t, resets)
			for _, server := range p.fleet.Servers(counter.ID()) {
				op := store.Op{Counter: counter.ID()}
				for second := range gone.seconds {
					for bucket := range hierarchy.BucketsOf(counter, second) {
						op.Reads = append(op.Reads, store.Read{Item: bucket.ID()})
					}
				}
				for _, r := range ask(t, onServer{p.fleet, server}, op).Reads {
					assert.Zero(t, r.Value, "bucket %x on %s, after %d resets", r.Item, server, resets)
				}
			}
			a.judge(t, p)
		})
	}
}

// Items that another client has overwritten keep no other ones from being copied.
func TestItemsThatAreNoCounts(t *testing.T) {
	leaktest.Parallel(t)
	a := newArrivals(t, memcache.Auto)
	a.seed(t)
	p := a.open(t)
	var counter events.Counter
	for i := 0; counter.Event == ""; i++ {
		c := a.counter(fmt.Sprint("odd ", i))
		if servers := p.fleet.Servers(c.ID()); slices.Contains(servers, a.servers[0].Addr) && slices.Contains(servers, a.servers[1].Addr) {
			counter = c
		}
	}
	before := a.servers[1].Ask("lru_crawler metadump all")
	_, err := p.buckets.Increment(t.Context(), 1, time.Now().Add(-time.Hour), counter)
	require.NoError(t, err)
	overwritten := 0
	for _, line := range a.servers[1].Ask("lru_crawler metadump all") {
		if key := strings.Fields(line)[0]; !slices.ContainsFunc(before, func(other string) bool { return strings.HasPrefix(other, key+" ") }) {
			require.Equal(t, []string{"STORED"}, a.servers[1].Ask("set "+strings.TrimPrefix(key, "key=")+" 0 3600 3\r\nabc"))
			overwritten++
		}
	}
	require.Positive(t, overwritten)
	a.begin(t, p)
	p.repair(t, none)
	a.loseOne(0)
	whole(t, p.fleet)
	a.judge(t, p)
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		require.Fail(t, "it does not come")
	}
}
