package replica

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// withHints makes so many hits of a counter while one replica is down, which leaves hints
// for it.
func withHints(t *testing.T, s *Set, c Counter, hits int) (down *fakeServer) {
	t.Helper()
	down = on(s, c)[0]
	down.set(func(f *fakeServer) { f.down = true })
	for range hits {
		require.NoError(t, hit(s, c, 1).err)
	}
	return down
}

func requirePending(t *testing.T, s *Set, want int) {
	t.Helper()
	synctest.Wait()
	pending, _ := s.PendingHints()
	require.Equal(t, want, pending)
}

func backUp(f *fakeServer) { f.set(func(f *fakeServer) { f.down = false }) }

// Hints of the same buckets are merged, and one trip replays them.
func TestHintsAreMerged(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := withHints(t, s, c, 7)
		hintMissed(s, c, 5, []uint64{12, 22, 33, 44}, expiresIn(time.Hour), receiptOf(s, 0, 4))
		hintMissed(s, c, 5, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		requirePending(t, s, 2)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requirePending(t, s, 0)
		assert.Equal(t, []fakeCall{
			{"replay", c.Hash, 12, someAdds},
			{"replay", c.Hash, 5, []uint64{12, 22, 33, 44}},
		}, down.callsOf("replay"), "the oldest first, each the finest level first")
		assert.Equal(t, int64(17), down.value(c.Hash, 44))
	})
}

// Hints beyond the bound are dropped, and the gap is known.
func TestHintsAreBounded(t *testing.T) {
	inBubble(t, Config{Replicas: 2, MaxHints: 10}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		fakes[0].down = true
		memory := s.Join(fakes[0].name, false, func(Loss) {})
		fakes[0].joined = memory
		for i := range 13 {
			assert.Equal(t, i > 10, memory.lacks, i)
			require.NoError(t, hit(s, counter(i), 1).err)
		}
		requirePending(t, s, 10)
		memory.lacks = false
		require.NoError(t, hit(s, counter(0), 1).err)
		assert.False(t, memory.lacks, "one that is there already takes no room")
		backUp(fakes[0])
		time.Sleep(2*s.timeout + replayInterval)
		requirePending(t, s, 0)
		assert.Len(t, fakes[0].callsOf("replay"), 10)
	})
}

// So many functions run in the background, and no more. Close waits for them, and then none begins.
func TestTheBackgroundIsBounded(t *testing.T) {
	inBubble(t, Config{}, 1, func(t *testing.T, s *Set, _ []*fakeServer) {
		background, running, most := s.Capabilities().Background, 0, 0
		var mu sync.Mutex
		change := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			running += by
			most = max(most, running)
		}
		for range 3 {
			for range 2 * maxAsides {
				background(func(ctx context.Context) {
					change(1)
					<-ctx.Done()
					change(-1)
				})
			}
			synctest.Wait()
			require.Equal(t, maxAsides, running)
			s.hints.stop()
			synctest.Wait()
			require.Zero(t, running)
			s.hints.ctx, s.hints.stop = context.WithCancel(context.Background())
		}
		background(func(context.Context) { time.Sleep(time.Second); change(1000) })
		s.Close()
		require.Equal(t, 1000, running)
		background(func(context.Context) { t.Error("it runs after the end") })
		synctest.Wait()
		require.Equal(t, 1000, most)
	})
}

// The hints of expired items are dropped without a gap.
func TestExpiredHintsAreDropped(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		down := withHints(t, s, counter(1), 3)
		time.Sleep(59 * time.Minute)
		none := receiptOf(s, 0, 4)
		hintMissed(s, counter(1), 1, []uint64{77}, []int64{time.Now().Add(time.Hour).Unix()}, none)
		time.Sleep(2 * time.Minute)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requirePending(t, s, 0)
		replays := down.callsOf("replay")
		require.Len(t, replays, 1)
		assert.Equal(t, []uint64{77}, replays[0].buckets)
	})
}

// Of a payment that fails midway the rest is paid later; one of unknown outcome is paid
// again: it may count twice, and never not at all.
func TestReplaysThatFail(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := withHints(t, s, c, 3)
		down.set(func(f *fakeServer) { f.down, f.failing = false, 3 })
		time.Sleep(2*s.timeout + replayInterval)
		requirePending(t, s, 1)
		down.set(func(f *fakeServer) { f.failing, f.unheard = 0, true })
		time.Sleep(replayInterval + firstReplayWait)
		requirePending(t, s, 1) // under way, and still pending
		assert.Equal(t, someAdds[2:], down.callsOf("replay")[1].buckets)
		down.set(func(f *fakeServer) { f.unheard = false })
		time.Sleep(time.Second)
		requirePending(t, s, 0)
		replays := down.callsOf("replay")
		require.Len(t, replays, 3)
		assert.Equal(t, replays[1], replays[2])
		for i, value := range []int64{3, 3, 6, 6} {
			assert.Equal(t, value, down.value(c.Hash, someAdds[i]))
		}
	})
}

// A server that does all and is too slow to say so counts each payment once more. So it is
// tried less and less often.
func TestReplaysBackOff(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		down := withHints(t, s, counter(1), 1)
		down.set(func(f *fakeServer) { f.down, f.unheard = false, true })
		time.Sleep(time.Minute)
		synctest.Wait()
		tries := len(down.callsOf("replay"))
		assert.Greater(t, tries, 20)
		assert.Less(t, tries, 40)
		down.set(func(f *fakeServer) { f.unheard = false })
		time.Sleep(lastReplayWait + replayInterval + 100*time.Millisecond)
		requirePending(t, s, 0)
	})
}

// A reset drops the hints of its counter, the ones under way included.
func TestAResetDropsHints(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		withHints(t, s, c, 3)
		require.NoError(t, hit(s, counter(2), 1).err)
		s.hints.drop(c.Hash, addsOf(1, []uint64{99}))
		before, _ := s.PendingHints()
		require.NoError(t, storetest.Delete(t.Context(), s, c.Name, someAdds[1:2]))
		requirePending(t, s, before-1)

		down := withHints(t, s, c, 3)
		down.set(func(f *fakeServer) { f.down, f.stalled = false, true })
		time.Sleep(2*s.timeout + replayInterval)
		synctest.Wait()
		require.NotEmpty(t, down.callsOf("replay"))
		s.hints.drop(c.Hash, addsOf(1, someAdds))
		down.set(func(f *fakeServer) { f.stalled = false })
		time.Sleep(time.Second)
		requirePending(t, s, 0)
		assert.Zero(t, down.value(c.Hash, 11), "it is not tried again")
	})
}

// The hints of a server are dropped with it, and so are later hints of trips that began
// before.
func TestHintsAreDroppedWithTheirServer(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 3, func(t *testing.T, s *Set, fakes []*fakeServer) {
		c := counter(1)
		down := withHints(t, s, c, 3)
		o := hit(s, c, 1)
		var left []Server
		for _, f := range fakes {
			if f != down {
				left = append(left, f)
			}
		}
		s.Use(left)
		assert.Equal(t, uint64(1), s.Gaps())
		requirePending(t, s, 0)
		hintMissed(s, c, 1, someAdds, expiresIn(time.Hour), o.landed)
		requirePending(t, s, 0)
		backUp(down)
		time.Sleep(time.Minute)
		assert.Empty(t, down.callsOf("replay"))
	})
}

// Close waits for the replay under way, till its timeout. After it no hint is replayed or
// queued.
func TestCloseJoinsTheReplays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{Hash: hashOfName, Replicas: 2, Timeout: 100 * time.Millisecond})
		_, list := newFakes(2)
		s.Use(list)
		down := withHints(t, s, counter(1), 3)
		down.set(func(f *fakeServer) { f.down, f.stalled = false, true })
		time.Sleep(2 * s.timeout)
		synctest.Wait()
		require.Len(t, down.callsOf("replay"), 1)
		began := time.Now()
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(s.Close)
		}
		closing.Wait()
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		hintMissed(s, counter(2), 1, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		time.Sleep(time.Minute)
		assert.Len(t, down.callsOf("replay"), 1)
	})
}

// A late acknowledgement drops the hint of its adds, and of no more than these.
func TestLateAnswersDropHints(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := withHints(t, s, c, 3)
		s.Acknowledge(down, c.Hash, addsOf(2, someAdds))
		requirePending(t, s, 1)
		s.Acknowledge(down, c.Hash, addsOf(5, someAdds[2:]))
		requirePending(t, s, 1)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requirePending(t, s, 0)
		assert.Equal(t, int64(1), down.value(c.Hash, 44))
		down = withHints(t, s, c, 3)
		s.Acknowledge(down, c.Hash, addsOf(3, someAdds))
		requirePending(t, s, 0)
		time.Sleep(replayInterval)
		synctest.Wait()
		_, servers := s.PendingHints()
		assert.Zero(t, servers, "nor is the server")
	})
}

// An acknowledgement that comes after its round trip was given up, and before the hit is
// decided, counts: the hint that follows is empty. A replay that is given
// up and acknowledged at once leaves no hint either.
func TestAnswersBeforeTheHintAreCredited(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		slow := on(s, c)[0]
		hint := func(by int64) { hintMissed(s, c, by, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4)) }
		s.Acknowledge(slow, c.Hash, addsOf(2, someAdds))
		s.Acknowledge(slow, c.Hash, addsOf(3, someAdds))
		hint(1)
		hint(4)
		requirePending(t, s, 0)
		hint(1)
		requirePending(t, s, 1)
		time.Sleep(2*s.timeout + replayInterval)
		assert.Equal(t, []fakeCall{{"replay", c.Hash, 1, someAdds}}, slow.callsOf("replay"), "no more than was acknowledged")

		s.Acknowledge(slow, c.Hash, addsOf(2, someAdds))
		hint(5)
		time.Sleep(2*s.timeout + replayInterval)
		synctest.Wait()
		assert.Equal(t, fakeCall{"replay", c.Hash, 3, someAdds}, slow.callsOf("replay")[1], "what was not")

		slow.set(func(f *fakeServer) { f.unheard = true })
		hint(7)
		time.Sleep(2*s.timeout + replayInterval) // the replay is under way
		s.Acknowledge(slow, c.Hash, addsOf(7, someAdds))
		time.Sleep(s.timeout)
		requirePending(t, s, 0)
	})
}

// A credit counts for hints that come soon, of a server that has what it acknowledged.
func TestCreditsEnd(t *testing.T) {
	for name, end := range map[string]func(s *Set, c Counter, slow *fakeServer){
		"after their time": func(s *Set, _ Counter, _ *fakeServer) { time.Sleep(4 * s.timeout) },
		"with a reset": func(s *Set, c Counter, _ *fakeServer) {
			_ = storetest.Delete(context.Background(), s, c.Name, someAdds[3:])
		},
		"with what the server has": func(_ *Set, _ Counter, slow *fakeServer) { slow.empty() },
		"of a server that is down": func(_ *Set, _ Counter, slow *fakeServer) { slow.set(func(f *fakeServer) { f.down = true }) },
		"for other items":          nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
				c := counter(1)
				slow, adds := on(s, c)[0], someAdds
				s.Acknowledge(slow, c.Hash, addsOf(1, someAdds))
				time.Sleep(s.timeout)
				if end != nil {
					end(s, c, slow)
				} else {
					adds = []uint64{12, 22, 33, 44}
				}
				hintMissed(s, c, 1, adds, expiresIn(time.Hour), receiptOf(s, 0, 4))
				requirePending(t, s, 1)
			})
		})
	}
}

// Credits are bounded: a server counts twice what is beyond.
func TestCreditsAreBounded(t *testing.T) {
	inBubble(t, Config{Replicas: 2, MaxHints: 10}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		for i := range 12 {
			s.Acknowledge(on(s, counter(i))[0], counter(i).Hash, addsOf(1, someAdds))
		}
		for i := range 12 {
			hintMissed(s, counter(i), 1, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		}
		requirePending(t, s, 2)
	})
}

// Many hints are replayed at a bounded rate, each once.
func TestManyHints(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		const many = 10_000
		fakes[0].down = true
		for i := range many {
			require.NoError(t, hit(s, counter(i), 1).err)
		}
		requirePending(t, s, many)
		backUp(fakes[0])
		time.Sleep(many / replaysPerSecond * time.Second)
		synctest.Wait()
		pending, _ := s.PendingHints()
		assert.Positive(t, pending, "not faster than %d a second", replaysPerSecond)
		time.Sleep(time.Second)
		requirePending(t, s, 0)
		assert.Len(t, fakes[0].callsOf("replay"), many)
		for i := range many {
			require.Equal(t, int64(1), fakes[0].value(counter(i).Hash, 44))
		}
	})
}
