package coalesce

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

type request struct {
	Waiter[*request]
	name string
}

func on(name string, keys ...string) *request {
	return &request{name: name, Waiter: Waiter[*request]{Keys: keys}}
}

func names(g *Group[*request]) (all []string) {
	for _, r := range g.Requests {
		all = append(all, r.name)
	}
	return all
}

// finish ends the group, as the caller of one of its requests does, which does not wait.
func finish(c *Coalescer[*request], g *Group[*request]) {
	for _, r := range g.Requests {
		r.Done()
	}
	c.Leave(g)
}

func requireNoneHeld(t *testing.T, c *Coalescer[*request]) {
	t.Helper()
	require.Zero(t, c.Busy())
	for i := range c.shards {
		for _, q := range c.shards[i].spare {
			require.Empty(t, q.waiting)
			require.Empty(t, q.key)
		}
	}
}

// Requests that wait on a key go together, in the order in which they came; the first leads.
func TestRequestsThatWaitGoTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New[*request](time.Second, 10)
		first := c.Enter(on("first", "a"))
		require.Equal(t, []string{"first"}, names(first))
		waiting := []*request{on("second", "a"), on("third", "b", "a"), on("fourth", "a", "a")}
		for _, r := range waiting {
			require.Nil(t, c.Enter(r))
		}
		other := c.Enter(on("on another", "b"))
		require.NotNil(t, other, "a request that waits holds none of its keys")
		require.Equal(t, 2, c.Busy())
		finish(c, other)
		finish(c, first)
		g := waiting[0].Turn()
		require.Equal(t, []string{"second", "third", "fourth"}, names(g))
		require.Nil(t, c.Enter(on("fifth", "a")), "the group holds the key")
		finish(c, g)
		require.Nil(t, waiting[1].Turn())
		require.Nil(t, waiting[2].Turn())
		require.Equal(t, 1, c.Busy(), "the fifth leads")
	})
}

// What is left of a group goes on with the caller of another of its requests, and keeps the key.
func TestAGroupIsPassedOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New[*request](time.Second, 10)
		first := c.Enter(on("first", "a"))
		second, third := on("second", "a"), on("third", "a")
		require.Nil(t, c.Enter(second))
		require.Nil(t, c.Enter(third))
		finish(c, first)
		g := second.Turn()
		g.Requests, g.Try, g.Began = append(g.Requests[:0], third), 3, time.Now()
		began := g.Began
		second.Done() // it leads, so nothing waits for it
		c.Pass(g)
		g = third.Turn()
		require.Equal(t, []string{"third"}, names(g))
		require.Equal(t, 3, g.Try)
		require.Equal(t, began, g.Began)
		finish(c, g)
		requireNoneHeld(t, c)
		fresh := c.NewGroup()
		require.Zero(t, fresh.Try)
		require.Zero(t, fresh.Began)
	})
}

// The wait ends after maxWait. The group ahead has lost the key then, and leaves it as it is.
func TestTheWaitEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New[*request](time.Second, 10)
		first := c.Enter(on("first", "a"))
		second, third := on("second", "a"), on("third", "a")
		began := time.Now()
		require.Nil(t, c.Enter(second))
		time.Sleep(time.Second / 2)
		require.Nil(t, c.Enter(third))
		g := second.Turn()
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, []string{"second", "third"}, names(g))
		finish(c, first)
		require.Equal(t, 1, c.Busy())
		finish(c, g)
		requireNoneHeld(t, c)
	})
}

// Requests beyond the most go in groups of their own, which hold no key.
func TestGroupsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New[*request](time.Second, 2)
		first := c.Enter(on("first", "a"))
		var waiting []*request
		for i := range 5 {
			r := on(fmt.Sprint(i), "a")
			require.Nil(t, c.Enter(r))
			waiting = append(waiting, r)
		}
		finish(c, first)
		for i, want := range map[int][]string{0: {"0", "1"}, 2: {"2", "3"}, 4: {"4"}} {
			g := waiting[i].Turn()
			require.Equal(t, want, names(g))
			require.Equal(t, i == 0, len(g.held) > 0)
			finish(c, g)
		}
		requireNoneHeld(t, c)
	})
}

// For a second after StayApart, requests on several keys neither wait nor are waited for, nor
// does one that waits go with others.
func TestRequestsStayApart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New[*request](time.Hour, 10)
		first := c.Enter(on("first", "a"))
		several, one, twice := on("several", "a", "b"), on("one", "a"), on("twice", "a", "a")
		for _, r := range []*request{several, one, twice} {
			require.Nil(t, c.Enter(r))
		}
		c.StayApart()
		apart := c.Enter(on("apart", "b", "a"))
		require.Equal(t, []string{"apart"}, names(apart))
		require.Equal(t, 1, c.Busy())
		finish(c, apart)
		finish(c, first)
		g := several.Turn()
		require.Equal(t, []string{"several"}, names(g))
		require.Empty(t, g.held)
		finish(c, g)
		g = one.Turn()
		require.Equal(t, []string{"one", "twice"}, names(g))
		time.Sleep(apartFor)
		together := on("together", "b", "a")
		require.Nil(t, c.Enter(together))
		finish(c, g)
		finish(c, together.Turn())
		requireNoneHeld(t, c)
	})
}

// Of many callers on some keys, each gets one turn or one end, whatever the order; a request that
// is used again gets nothing of its use before.
func TestEachRequestIsDoneOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const callers, rounds = 50, 40
		c := New[*request](3*time.Millisecond, 7)
		var handled atomic.Int64
		var running sync.WaitGroup
		for i := range callers {
			running.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				r := on(fmt.Sprint(i))
				for range rounds {
					r.Keys = r.Keys[:0]
					for range 1 + rng.IntN(3) {
						r.Keys = append(r.Keys, fmt.Sprint(rng.IntN(5)))
					}
					g := c.Enter(r)
					if g == nil {
						g = r.Turn()
					}
					if g == nil {
						continue
					}
					assert.Contains(t, g.Requests, r)
					assert.LessOrEqual(t, len(g.Requests), 7)
					if rng.IntN(20) == 0 {
						c.StayApart()
					}
					time.Sleep(time.Duration(rng.IntN(6)) * time.Millisecond)
					handled.Add(int64(len(g.Requests)))
					finish(c, g)
				}
			})
		}
		running.Wait()
		synctest.Wait()
		require.Equal(t, int64(callers*rounds), handled.Load())
		requireNoneHeld(t, c)
	})
}
