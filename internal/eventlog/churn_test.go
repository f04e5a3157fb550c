//go:build testall

package eventlog_test

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

// churn is a population whose logs have reached their sizes: each user is active for a while and
// gone for as long as the log lives, and another one comes instead.
type churn struct {
	*population
	random *rand.Rand
	users  []*user // by the time of their next turn
	values map[int][]byte
	born   int
	log    journal.Log
}

// user is a counter that is hit at a rate.
type user struct {
	next     turn
	distance float64 // of two hits on the average, in milliseconds
	leaves   int64
}

func (p *churn) Len() int           { return len(p.users) }
func (p *churn) Less(i, j int) bool { return p.users[i].next.at < p.users[j].next.at }
func (p *churn) Swap(i, j int)      { p.users[i], p.users[j] = p.users[j], p.users[i] }
func (p *churn) Push(u any)         { p.users = append(p.users, u.(*user)) }
func (p *churn) Pop() any {
	last := p.users[len(p.users)-1]
	p.users = p.users[:len(p.users)-1]
	return last
}

// active is how long a user is active, ttl how long its hits need the log, and linger how long it
// lives after its last hit at the most.
func (p *churn) active() int64 {
	return p.limit.Window.Milliseconds()/2 + p.random.Int64N(p.limit.Window.Milliseconds())
}
func (p *churn) ttl() int64    { return (p.limit.Window + 3*usualGrace + time.Second).Milliseconds() }
func (p *churn) linger() int64 { return 2 * p.ttl() }

// begin has the user begin anew.
func (p *churn) begin(u *user, at int64) {
	p.born++
	u.next, u.leaves = turn{at: at, counter: p.born}, at+p.active()
}

// follow sets the turn after a turn of the user.
func (p *churn) follow(u *user) {
	if u.next.dies {
		p.begin(u, u.next.at+int64(p.random.ExpFloat64()*u.distance))
		return
	}
	next := u.next.at + max(int64(p.random.ExpFloat64()*u.distance), 1)
	if next > u.leaves || next > u.next.at+p.linger() {
		u.next.dies, next = true, u.next.at+p.linger()
	}
	u.next.at = next
}

// add adds users at that rate. Until the start they come and go as later on.
func (p *churn) add(users int, perWindow float64, start int64) {
	for range users {
		u := &user{distance: float64(p.limit.Window.Milliseconds()) / perWindow}
		p.begin(u, start-p.random.Int64N(4*p.limit.Window.Milliseconds()))
		for ; u.next.at < start; p.follow(u) {
			if u.next.dies {
				delete(p.values, u.next.counter)
			} else {
				p.hit(u.next)
			}
		}
		p.users = append(p.users, u)
	}
}

// hit does to a log what the engine does.
func (p *churn) hit(t turn) {
	limits := []journal.Limit{{Window: p.limit.Window.Milliseconds(), Ceiling: p.limit.N}}
	young := 2 * usualGrace.Milliseconds()
	value, err := p.values[t.counter], error(nil)
	if value == nil {
		spare, _ := journal.Spare(p.ttl(), 0)
		value, err = journal.AppendNew(nil, journal.Head{Limits: limits, Revision: usualRevision, TTL: p.ttl() / 1000, Until: t.at + p.ttl() + spare, Floor: t.at - young, Since: t.at - p.limit.Window.Milliseconds()}, t.at)
		require.NoError(p.tb, err)
	}
	value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: journal.ID(p.random.Uint64() >> 8), Time: t.at, Cost: 1, Count: 1})
	require.NoError(p.tb, err)
	require.NoError(p.tb, p.log.Read(value, journal.Question{}))
	if spare, renewal := journal.Spare(p.ttl(), p.log.Age(t.at)); p.log.Due() || p.log.Head().Until < t.at+p.ttl()+renewal {
		value, err = p.log.AppendRewrite(nil, journal.Rewrite{Limits: limits, Revision: usualRevision, TTL: p.ttl() / 1000, Until: t.at + p.ttl() + spare, Now: t.at, Young: young})
		require.NoError(p.tb, err)
	}
	p.values[t.counter] = value
}

// wanted returns how many chunks of each size the logs need.
func (p *churn) wanted() map[int64]int64 {
	chunks := map[int64]int64{}
	for _, value := range p.values {
		chunks[memcache.ChunkBytesOfData(len(value))]++
	}
	return chunks
}

// pagesOf returns how many pages of Memcached these chunks take.
func pagesOf(chunks map[int64]int64) (pages int64) {
	const page = 1 << 20
	for size, n := range chunks {
		perPage := page / size
		pages += (n + perPage - 1) / perPage
	}
	return pages
}

// fill writes the logs to the server.
func (p *churn) fill(start time.Time) {
	var ops []*store.Op
	for n, value := range p.values {
		ops = append(ops, &store.Op{Counter: p.counter(n).ID(), Data: true, Writes: []store.Write{{Kind: store.Create, Item: eventlog.Item(), Data: value, Expires: start.Unix() + p.linger()/1000}}})
	}
	for some := range slices.Chunk(ops, 250) {
		p.store.Do(context.Background(), some...)
		for _, op := range some {
			require.NoError(p.tb, op.Err)
		}
	}
}

// run has the turns until then, and returns how many hits there were.
func (p *churn) run(until int64) (hits int) {
	heap.Init(p)
	var turns []turn
	at := map[int]bool{}
	for p.users[0].next.at < until {
		u := p.users[0]
		if len(turns) == 250 || at[u.next.counter] {
			p.play(turns)
			turns = turns[:0]
			clear(at)
		}
		turns, at[u.next.counter] = append(turns, u.next), true
		if !u.next.dies {
			hits++
		}
		p.follow(u)
		heap.Fix(p, 0)
	}
	p.play(turns)
	return hits
}

// For an hour counters come, grow, shrink and go. Memcached with 1.3 times the memory that they need
// evicts none, although their items move from one size of chunks to another all the time, and no
// page is moved as fast as the hour passes.
func TestNoLogIsEvictedByChurn(t *testing.T) {
	start := time.Date(2026, 3, 14, 21, 7, 33, 0, time.UTC)
	p := &churn{population: &population{tb: t, limit: events.Limit{N: 1000, Window: time.Hour}}, random: rand.New(rand.NewPCG(1, 2)), values: map[int][]byte{}}
	p.add(800, 500, start.UnixMilli())
	p.add(3000, 100, start.UnixMilli())
	p.add(40_000, 10, start.UnixMilli())
	need := pagesOf(p.wanted())
	p.population = newPopulation(t, time.Hour, start, "-m", strconv.FormatInt(need*13/10, 10))
	p.fill(start)
	require.Equal(t, p.wanted(), p.chunks())
	hits := p.run(start.Add(time.Hour).UnixMilli())
	after := pagesOf(p.chunks())
	t.Logf("%d pages before, %d after, of %d; %d counters, %d hits", need, after, need*13/10, p.figure("curr_items"), hits)
	require.Zero(t, p.figure("evictions"))
	require.Zero(t, p.figure("expired_unfetched")+p.figure("reclaimed"), "real time is not the clock's")
	assert.InDelta(t, need, after, float64(need)/10)
}
