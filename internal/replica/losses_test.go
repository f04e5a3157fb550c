package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/simulate"
)

// fakeMarker is the item of a marker.
type fakeMarker struct {
	mu      sync.Mutex
	text    string // empty: there is none
	version uint64
	refuses bool
	busy    bool // others change it all the time
}

func (f *fakeMarker) Read() (text string, version uint64, found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text, f.version, f.text != "", nil
}

func (f *fakeMarker) Add(text string) (added bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses {
		return false, store.ErrRefused
	}
	if f.text != "" {
		return false, nil
	}
	f.text = text
	f.version++
	return true, nil
}

func (f *fakeMarker) Swap(text string, version uint64) (swapped bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == "" || version != f.version || f.busy {
		return false, nil
	}
	f.text = text
	f.version++
	return true, nil
}

// world is servers that several processes use, in fake time.
type world struct {
	t        *testing.T
	replicas int
	servers  map[string]*worldServer
	list     []string // in use
	all      []*worldProcess
	hits     map[int][]int64 // the seconds of the hits on each counter, which were acknowledged
}

// worldServer holds the seconds of the hits on each counter.
type worldServer struct {
	name   string
	down   bool
	marker *fakeMarker
	holds  map[store.Hash]map[int64]bool
	lists  bool
}

// worldProcess is one process. What it cannot reach is cut off.
type worldProcess struct {
	*world
	set  *Set
	cut  map[string]bool
	told []Loss
	of   map[string]*reached
	was  map[string]bool // what was up
	// hints are what it has counted while it could not reach a server; kept: it keeps them.
	hints map[string][]missedHit
	kept  bool
}

// missedHit is a hit that a server has missed.
type missedHit struct {
	hash   store.Hash
	second int64
}

// reached is a server as a process sees it.
type reached struct {
	*worldServer
	by     *worldProcess
	memory *Memory
}

func (s *reached) Name() string    { return s.name }
func (s *reached) Up() bool        { return !s.down && !s.by.cut[s.name] }
func (s *reached) Memory() *Memory { return s.memory }
func (s *reached) Lists() bool     { return s.lists }

func (s *reached) Look(ctx context.Context) error { return s.Marker(ctx, s.memory.Check) }

func (s *reached) Marker(_ context.Context, use func(MarkerItem) error) error {
	if !s.Up() {
		return errFake
	}
	return use(s.marker)
}

func (s *reached) Keys(_ context.Context, yield func(Key) error) error {
	for hash := range s.holds {
		if err := yield(Key{Hash: hash}); err != nil {
			return err
		}
	}
	return nil
}

func (s *reached) Start(context.Context, time.Time, Counter, *store.Op, int, chan<- int, Acknowledger) Exchange {
	panic("there are no trips")
}

func (s *reached) Do(context.Context, Counter, *store.Op) { panic("there are no trips") }

const worldRetention = time.Hour

func newWorld(t *testing.T, replicas, servers int) *world {
	w := &world{t: t, replicas: replicas, servers: map[string]*worldServer{}, hits: map[int][]int64{}}
	for i := range servers {
		w.list = append(w.list, w.addServer(i))
	}
	return w
}

func (w *world) addServer(i int) string {
	s := &worldServer{name: fmt.Sprintf("10.0.0.%d:11211", i), marker: &fakeMarker{}, holds: map[store.Hash]map[int64]bool{}, lists: true}
	w.servers[s.name] = s
	return s.name
}

// start starts a process.
func (w *world) start() *worldProcess {
	p := &worldProcess{world: w, cut: map[string]bool{}, of: map[string]*reached{}, was: map[string]bool{}, hints: map[string][]missedHit{}}
	p.set = New(Config{
		Replicas: w.replicas, Timeout: time.Second, Hash: hashOfName, Retention: func() time.Duration { return worldRetention },
	})
	p.set.pending = func(server Server) bool { return len(p.hints[server.Name()]) > 0 }
	w.t.Cleanup(p.set.Close)
	w.all = append(w.all, p)
	p.use()
	p.look()
	return p
}

// use has the process use the list of servers.
func (p *worldProcess) use() {
	var servers []Server
	added := len(p.of) > 0
	for _, name := range p.list {
		s := p.of[name]
		if s == nil {
			s = &reached{worldServer: p.servers[name], by: p}
			s.memory = p.set.Join(name, added, func(loss Loss) { p.told = append(p.told, loss) })
			p.of[name] = s
			p.was[name] = true
		}
		servers = append(servers, s)
	}
	p.set.Use(servers)
	for name, s := range p.of {
		if !slices.Contains(p.list, name) {
			s.memory.Leave()
			delete(p.of, name)
		}
	}
}

// notice has the process find out which servers are down.
func (p *worldProcess) notice() {
	for name, s := range p.of {
		if p.was[name] && !s.Up() {
			s.memory.Away()
		}
		p.was[name] = s.Up()
	}
}

// look has the process look at all servers that it reaches.
func (p *worldProcess) look() {
	p.notice()
	for _, name := range slices.Sorted(maps.Keys(p.of)) {
		if s := p.of[name]; s.Up() {
			for _, missed := range p.hints[name] {
				s.count(missed.hash, missed.second)
			}
			delete(p.hints, name)
			require.NoError(p.t, s.Look(context.Background()))
		}
	}
}

func (s *worldServer) count(h store.Hash, second int64) {
	if s.holds[h] == nil {
		s.holds[h] = map[int64]bool{}
	}
	s.holds[h][second] = true
}

// settle has all processes look, until what one has to say is known to all.
func (w *world) settle() {
	for range 3 {
		for _, p := range w.all {
			p.look()
		}
	}
}

// lose has a server lose what it held.
func (w *world) lose(name string) {
	s := w.servers[name]
	s.marker.text, s.holds = "", map[store.Hash]map[int64]bool{}
}

// hit counts a hit, by a process, on all replicas that it reaches. It is acknowledged if there is one.
func (p *worldProcess) hit(i int) {
	p.notice()
	now, c, landed := time.Now().Unix(), counter(i), false
	for _, server := range p.set.Of(c.Hash) {
		s := server.(*reached)
		switch {
		case s.Up():
			s.count(c.Hash, now)
			landed = true
		case p.kept:
			p.hints[s.name] = append(p.hints[s.name], missedHit{c.Hash, now})
		default:
			s.memory.Missed()
		}
	}
	if landed {
		p.hits[i] = append(p.hits[i], now)
	}
}

// copyOne copies from one server to another, as far as there is something to copy. between is
// called before that is said to be done.
func (p *worldProcess) copyOne(between func()) (copied bool) {
	ctx := context.Background()
	c, err := p.set.Claim(ctx)
	require.NoError(p.t, err)
	if c == nil {
		return false
	}
	defer func() { _ = c.Release(ctx) }() // the server may have gone
	source, err := c.Next(ctx)
	require.NoError(p.t, err)
	if source == nil {
		return false
	}
	from, to := p.servers[source.Name()], p.servers[c.Target()]
	require.NoError(p.t, c.Keys(ctx, source, 0, 1, func(key Key) error {
		hash := key.Hash
		for second := range from.holds[hash] {
			to.count(hash, second)
		}
		return nil
	}))
	between()
	switch err := c.Done(ctx, source); {
	case errors.Is(err, ErrOvertaken), errors.Is(err, errFake):
		return false
	default:
		require.NoError(p.t, err)
		return true
	}
}

// repair copies until there is nothing to copy.
func (w *world) repair() {
	w.settle()
	for p := w.all[0]; p.copyOne(func() {}); w.settle() {
	}
}

// check fails where a process says that it has all of a counter, and a hit is missing on the replica
// that holds most.
func (w *world) check() {
	w.t.Helper()
	for n, p := range w.all {
		for i, seconds := range w.hits {
			c := counter(i)
			since, best, up := p.set.Since(c.Name), 0, false
			for _, server := range p.set.Of(c.Hash) {
				s := server.(*reached)
				up = up || s.Up()
				found := 0
				for _, second := range seconds {
					if s.holds[c.Hash][second] {
						found++
					}
				}
				if !s.Up() {
					continue
				}
				missing := len(seconds) - found
				for _, second := range seconds {
					if second <= since && !s.holds[c.Hash][second] {
						missing--
					}
				}
				if missing == 0 {
					best = 1
				}
			}
			if up && best == 0 {
				for _, server := range p.set.Of(c.Hash) {
					s := server.(*reached)
					w.t.Logf("%s up %v since %d holds %v of %v now %d: %s", s.name, s.Up(), s.memory.sinceOf(c.Hash, p.set.Of(c.Hash)), slices.Sorted(maps.Keys(s.holds[c.Hash])), seconds, time.Now().Unix(), s.marker.text)
				}
				w.t.Fatalf("process %d says that counter %d is whole since %d, and no replica has all", n, i, since)
			}
		}
	}
}

// states returns since when each server is whole for the process.
func (p *worldProcess) states() (since []int64) {
	for _, name := range p.list {
		since = append(since, p.of[name].memory.Since())
	}
	return since
}

func (w *world) hitAll() {
	for i := range 60 {
		w.all[i%len(w.all)].hit(i)
	}
	time.Sleep(2 * time.Second)
}

func inWorld(t *testing.T, replicas, servers int, test func(w *world, p *worldProcess)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, replicas, servers)
		p := w.start()
		time.Sleep(2 * foundingFor)
		w.settle()
		w.hitAll()
		require.Equal(t, make([]int64, servers), p.states(), "a new fleet has lost nothing")
		test(w, p)
		w.check()
		for _, p := range w.all {
			p.set.Close()
		}
	})
}

func TestALossIsDetectedAndRepaired(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		other := w.start()
		w.lose(w.list[1])
		w.settle()
		now := time.Now().Unix()
		for _, p := range []*worldProcess{p, other, w.start()} {
			assert.Equal(t, []int64{0, now, 0}, p.states(), "with each process")
		}
		assert.Equal(t, []Loss{Emptied}, p.told)
		for i := range 50 {
			assert.Zero(t, p.set.Since(counter(i).Name), "the other replica has it all")
		}
		w.check()
		w.repair()
		for _, p := range []*worldProcess{p, other, w.start()} {
			assert.Equal(t, []int64{0, 0, 0}, p.states(), "with each process")
		}
		assert.Equal(t, []Loss{Emptied, Repaired}, p.told)
		w.lose(w.list[2])
		w.repair()
		assert.Equal(t, []int64{0, 0, 0}, w.start().states(), "one after the other")
	})
}

// Where two of three servers lose what they hold, the counters whose replicas were there have
// lost it.
func TestTwoLossesAtATimeStay(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		w.lose(w.list[0])
		w.settle()
		time.Sleep(10 * time.Second)
		w.lose(w.list[1])
		w.repair()
		lost := 0
		for i := range 60 {
			if p.set.Since(counter(i).Name) != 0 {
				lost++
			}
		}
		assert.Positive(t, lost)
		assert.Less(t, lost, 40)
		assert.Equal(t, Lost{Since: p.states()[0], Percent: 100, Left: true}, p.of[w.list[0]].memory.Lost())
		time.Sleep(worldRetention + 25*time.Hour)
		w.settle()
		clear(w.hits)
		assert.Equal(t, []int64{0, 0, 0}, p.states(), "no window reaches back that far")
	})
}

// Evictions are a loss, also for a process that starts later; a full server is not copied to before
// it has calmed down.
func TestEvictionsAreALoss(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		s := p.of[w.list[2]]
		require.NoError(t, s.memory.Count(s.marker, 10, 2))
		assert.Empty(t, p.told, "they were before the marker")
		require.NoError(t, s.memory.Count(s.marker, 10, 3))
		now := time.Now().Unix()
		assert.Equal(t, []Loss{Evicting}, p.told)
		time.Sleep(time.Second)
		require.NoError(t, s.memory.Count(s.marker, 10, 2))
		require.NoError(t, s.memory.Count(s.marker, 10, 3))
		assert.Equal(t, now, s.memory.Since(), "statistics that are older than another process's")
		assert.True(t, s.memory.Lost().Evicted)
		w.repair()
		young := w.start()
		assert.Equal(t, []int64{0, 0, now}, young.states())
		again := young.of[w.list[2]]
		require.NoError(t, again.memory.Count(again.marker, 10, 3))
		assert.Equal(t, []int64{0, 0, now}, young.states(), "these are known")
		time.Sleep(calmAfter + time.Second)
		w.repair()
		assert.Equal(t, []int64{0, 0, 0}, young.states())
	})
}

// Hints that a process still has as it ends are not lost, also of servers that are up.
func TestHintsAreGivenUp(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		other := w.start()
		p.hints[w.list[0]] = []missedHit{{}}
		p.set.GiveUp(context.Background())
		w.all = []*worldProcess{other}
		w.settle()
		assert.True(t, other.of[w.list[0]].memory.Lost().Missed)
		assert.Zero(t, other.states()[1])
	})
}

// A claim that was not written is none. One that fails keeps others waiting for a turn only.
func TestClaims(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		w.lose(w.list[0])
		w.lose(w.list[1])
		w.settle()
		for _, busy := range []bool{true, false} {
			seen := map[string]bool{}
			for _, s := range w.servers {
				s.marker.busy = busy
			}
			for range 6 {
				c, err := p.set.Claim(context.Background())
				if busy {
					require.ErrorIs(t, err, errContended)
					require.Nil(t, c)
					continue
				}
				require.NoError(t, err)
				seen[c.Target()] = true
				require.NoError(t, c.Release(context.Background()))
			}
			assert.Equal(t, !busy, len(seen) == 2)
			w.settle()
		}
	})
}

// A clock that is behind shortens no loss. One that is very far ahead makes none that lasts as long.
func TestLossesByWrongClocks(t *testing.T) {
	const until = 1_000_000
	k := &marker{Former: []formerServers{{Until: until}}}
	assert.False(t, k.limit(until-600))
	assert.True(t, k.extend(until+5), "by a clock that is right")
	assert.EqualValues(t, until+5, k.Former[0].Until)
	assert.False(t, k.extend(until+5+maxClaim), "by a process that was away")
	assert.True(t, k.limit(until-maxAhead))
	assert.EqualValues(t, until-maxAhead, k.Former[0].Until)
}

// A server of one replica can be copied to from no other.
func TestALossWithoutReplicas(t *testing.T) {
	inWorld(t, 1, 2, func(w *world, p *worldProcess) {
		w.lose(w.list[0])
		w.repair()
		now := time.Now().Unix()
		assert.Equal(t, []int64{now, 0}, p.states())
		p.cut[w.list[1]] = true
		w.settle()
		p.cut[w.list[1]] = false
		w.settle()
		assert.Equal(t, []int64{now, 0}, p.states(), "what it did not acknowledge was counted nowhere")
	})
}

// Which servers have left is forgotten once no window reaches back that far, and no marker is written for it.
func TestServersThatLeftAreForgotten(t *testing.T) {
	inWorld(t, 2, 3, func(w *world, p *worldProcess) {
		w.list = w.list[1:]
		p.use()
		w.repair()
		marker := w.servers[w.list[0]].marker
		assert.Contains(t, marker.text, `"gone"`)
		time.Sleep(worldRetention + 25*time.Hour)
		clear(w.hits)
		w.settle()
		assert.NotContains(t, marker.text, `"gone"`)
		version := marker.version
		w.settle()
		assert.Equal(t, version, marker.version)
	})
}

// A process that keeps one replica on one of the servers, to look into it, changes nothing for the others; not even if
// it finds it empty, and marks it, before they do.
func TestAnOnlooker(t *testing.T) {
	for name, first := range map[string]bool{"later": false, "first": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, 3, func(w *world, p *worldProcess) {
				w.lose(w.list[0])
				if !first {
					w.settle()
				}
				before, all := w.servers[w.list[0]].marker.text, w.list
				w.list, w.replicas = w.list[:1], 1
				onlooker := w.start()
				onlooker.look()
				assert.Equal(t, first, before != w.servers[w.list[0]].marker.text)
				w.list, w.all = all, w.all[:1]
				onlooker.set.Close()
				w.settle()
				assert.NotZero(t, p.states()[0])
				w.repair()
				assert.Equal(t, []int64{0, 0, 0}, p.states())
			})
		})
	}
}

// away returns a server that is down, or that a process is cut off from; empty: there is none.
func (w *world) away() string {
	for _, name := range w.list {
		if w.servers[name].down || slices.ContainsFunc(w.all, func(p *worldProcess) bool { return p.cut[name] }) {
			return name
		}
	}
	return ""
}

// Whatever servers lose, which processes are cut off from them, and which come and go:
// no process says that it has all of a counter of which a hit is missing, as long as no more than one
// server is away at a time.
func TestNothingIsLostUnsaid(t *testing.T) {
	for seed := range simulate.Seeds(1200) {
		bubble.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 17))
			w := newWorld(t, 2+rng.IntN(2), 2+rng.IntN(4))
			w.start()
			time.Sleep(2 * foundingFor)
			w.settle()
			next := 100
			var gone []string // servers that left the list
			for range 60 {
				p, name := w.all[rng.IntN(len(w.all))], w.list[rng.IntN(len(w.list))]
				if away := w.away(); away != "" && rng.IntN(2) == 0 {
					name = away
				}
				switch rng.IntN(12) {
				case 0:
					w.lose(name)
					for _, p := range w.all { // none uses it before it has read the marker
						if s := p.of[name]; s.Up() {
							require.NoError(t, s.Look(context.Background()))
						}
					}
				case 1:
					if away := w.away(); away != "" && away != name {
						break
					}
					w.servers[name].down = !w.servers[name].down
					for _, p := range w.all {
						p.look()
					}
				case 2:
					if away := w.away(); away != "" && away != name {
						break
					}
					p.cut[name] = !p.cut[name]
					p.look()
					w.settle()
				case 3:
					if len(w.all) < 4 {
						w.start().kept = rng.IntN(2) == 0
					}
				case 4:
					if len(w.all) > 1 {
						w.all = slices.DeleteFunc(w.all, func(other *worldProcess) bool { return other == p })
						p.set.Close()
					}
				case 5:
					if rng.IntN(4) > 0 {
						break
					}
					list := slices.Clone(w.list)
					switch back := rng.IntN(3) == 0; {
					case rng.IntN(2) == 0 && len(list) > 2:
						gone = append(gone, list[0])
						list = slices.Delete(list, 0, 1)
					case back && len(gone) > 0: // with what it held then
						list = append(list, gone[0])
						gone = gone[1:]
					default:
						list = append(list, w.addServer(next))
						next++
					}
					w.list = list
					for _, p := range w.all {
						p.use()
					}
				case 6, 7, 8:
					p.copyOne(func() {
						if rng.IntN(4) == 0 {
							w.lose(name)
							for _, p := range w.all {
								if s := p.of[name]; s != nil && s.Up() {
									require.NoError(t, s.Look(context.Background()))
								}
							}
						}
					})
				default:
					for range 20 {
						w.all[rng.IntN(len(w.all))].hit(rng.IntN(60))
					}
				}
				w.settle()
				w.check()
				time.Sleep(time.Duration(rng.IntN(8)) * time.Second)
			}
			for _, s := range w.servers {
				s.down = false
			}
			for _, p := range w.all {
				clear(p.cut)
			}
			for range 40 {
				time.Sleep(time.Second)
				w.repair()
			}
			w.check()
			for _, name := range w.list {
				if lost := w.all[0].of[name].memory.Lost(); lost.Repairing {
					t.Fatalf("%s is still to be repaired: %+v %s", name, lost, w.servers[name].marker.text)
				}
			}
			for _, p := range w.all {
				p.set.Close()
			}
		})
	}
}

// A process whose list of servers changes later than that of another process has counted in the old places until then.
// It says so from the moment of its change, and the markers say so to others.
func TestAListThatChangesLater(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		inWorld(t, replicas, 3, func(w *world, p *worldProcess) {
			late := w.start()
			w.settle()
			w.list = w.list[1:]
			p.use()
			p.look()
			time.Sleep(2 * time.Second)
			late.look()
			time.Sleep(time.Second)
			for i := range 60 {
				late.hit(i)
			}
			time.Sleep(time.Second)
			late.use()
			all := w.all
			w.all = []*worldProcess{late}
			w.check()
			w.all = all
			w.settle()
			w.check()
			losses := parseMarker(w.servers[w.list[0]].marker.text).Losses
			time.Sleep(time.Minute)
			w.settle()
			require.Equal(t, losses, parseMarker(w.servers[w.list[0]].marker.text).Losses, "it is said once")
		})
	}
}
