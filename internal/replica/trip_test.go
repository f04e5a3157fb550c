package replica

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// A trip goes to all copies, and of each value the largest counts.
func TestTheLargestValueCounts(t *testing.T) {
	inBubble(t, Config{Replicas: 3}, 5, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		copies := on(s, c)
		copies[0].items[c.Hash] = map[uint64]int64{11: 5, 55: 1}
		copies[1].items[c.Hash] = map[uint64]int64{22: 7, 66: 9}
		copies[2].items[c.Hash] = map[uint64]int64{22: 6, 55: 3}
		o := hit(s, c, 2)
		require.NoError(t, o.err)
		assert.Equal(t, []int64{7, 9, 2, 2, 3, 9}, o.values)
		for i, server := range copies {
			assert.Equal(t, len(someAdds), o.landed.On(i))
			assert.Equal(t, []fakeCall{{"trip", c.Hash, 2, someAdds}}, server.callsOf("trip"))
		}
		assert.Equal(t, []string{c.Name}, s.Differing())
		assert.Empty(t, s.Differing(), "each once")
		pending, _ := s.PendingHints()
		assert.Zero(t, pending)
	})
}

// The receipt of an op that only reads counts has the replicas that answered, also if one of them is down or fails.
func TestTheReceiptOfAReadHasWhoAnswered(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 3, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		copies := on(s, c)
		read := func() store.Receipt {
			op := store.Op{Counter: c.Name, Reads: []store.Read{{Item: 11}}}
			s.Do(t.Context(), &op)
			require.NoError(t, op.Err)
			return op.Receipt
		}
		assert.Equal(t, receiptOf(s, 1, 1), read())
		copies[0].set(func(f *fakeServer) { f.down = true })
		assert.Equal(t, receiptOf(s, 0, 1), read())
		copies[0].set(func(f *fakeServer) { f.down, f.stalled = false, true })
		assert.Equal(t, receiptOf(s, 0, 1), read())
	})
}

// A replica that fails midway gives no values. Its acknowledged adds are rolled back there,
// and the others become a hint.
func TestAReplicaThatFailsMidway(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		copies := on(s, c)
		copies[0].items[c.Hash] = map[uint64]int64{11: 100, 55: 100}
		copies[0].failing = 3
		o := hit(s, c, 1)
		require.NoError(t, o.err)
		assert.Equal(t, []int64{1, 1, 1, 1, 0, 0}, o.values, "of the one that made the trip")
		assert.Equal(t, 2, o.landed.On(0))
		assert.Equal(t, 4, o.landed.On(1))
		assert.Empty(t, s.Differing(), "nothing was compared")
		copies[0].set(func(f *fakeServer) { f.failing = 0 })
		require.NoError(t, rollBack(t.Context(), s, c, 1, someAdds, o.landed))
		assert.Equal(t, []uint64{22, 11}, copies[0].callsOf("back")[0].buckets)
		assert.Equal(t, []uint64{44, 33, 22, 11}, copies[1].callsOf("back")[0].buckets)
		assert.Equal(t, int64(100), copies[0].value(c.Hash, 11))
		pending, servers := s.PendingHints()
		assert.Equal(t, [2]int{1, 1}, [2]int{pending, servers})
		time.Sleep(time.Second)
		assert.Equal(t, someAdds[2:], copies[0].callsOf("replay")[0].buckets)
	})
}

func TestAllReplicasFail(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		c := counter(1)
		copies := on(s, c)
		copies[0].failing, copies[1].failing = 1, 4
		o := hit(s, c, 1)
		require.ErrorIs(t, o.err, errFake)
		assert.Equal(t, [2]int{0, 3}, [2]int{o.landed.On(0), o.landed.On(1)})
		for _, f := range fakes {
			f.set(func(f *fakeServer) { f.down = true })
		}
		o = hit(s, c, 1)
		require.ErrorIs(t, o.err, errDown)
		assert.Zero(t, o.took, "no server was asked")
		assert.True(t, o.landed.None())
		assert.NoError(t, rollBack(t.Context(), s, c, 1, someAdds, o.landed))
		assert.Empty(t, copies[0].callsOf("back"))
	})
}

// Once a replica has answered, the silent ones cost half of the time at the most.
func TestTheWaitForAReplica(t *testing.T) {
	for name, test := range map[string]struct {
		delays  []time.Duration // 0: it does not answer
		took    time.Duration
		answers int
	}{
		"one does not answer":                  {[]time.Duration{time.Millisecond, 0}, 50 * time.Millisecond, 1},
		"two do not":                           {[]time.Duration{0, 2 * time.Millisecond, 0}, 50 * time.Millisecond, 1},
		"one is slow, within half":             {[]time.Duration{time.Millisecond, 40 * time.Millisecond}, 40 * time.Millisecond, 2},
		"one is slow, beyond half":             {[]time.Duration{time.Millisecond, 60 * time.Millisecond}, 50 * time.Millisecond, 1},
		"all are slow: an eighth for the rest": {[]time.Duration{70 * time.Millisecond, 0}, 82500 * time.Microsecond, 1},
		"all are slow, and answer":             {[]time.Duration{70 * time.Millisecond, 80 * time.Millisecond, 81 * time.Millisecond}, 81 * time.Millisecond, 3},
		"the slowest that still answers":       {[]time.Duration{99 * time.Millisecond, 0}, 100 * time.Millisecond, 1},
		"none answers":                         {[]time.Duration{0, 0}, 100 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Replicas: len(test.delays)}, 5, func(t *testing.T, s *Set, _ []*fakeServer) {
				for round := range 3 { // trips are used again
					c := counter(round)
					copies := on(s, c)
					for i, delay := range test.delays {
						copies[i].set(func(f *fakeServer) { f.delay, f.stalled = delay, delay == 0 })
					}
					began := time.Now()
					values := make([]int64, len(someAdds))
					landed, err := storetest.Trip(t.Context(), s, c.Name, 1, someAdds, expiresIn(time.Hour), nil, values)
					took := time.Since(began)
					answers := 0
					for i := range test.delays {
						if landed.On(i) > 0 {
							answers++
						}
					}
					assert.Equal(t, test.took, took)
					assert.Equal(t, test.answers, answers)
					if test.answers == 0 {
						assert.Error(t, err)
					} else {
						assert.NoError(t, err)
						assert.Equal(t, []int64{1, 1, 1, 1}, values)
					}
					for _, f := range copies {
						f.set(func(f *fakeServer) { f.delay, f.stalled = 0, false })
					}
				}
			})
		})
	}
}

// Replicas that answer just when the wait ends send one token each, or the fake panics, and
// no token of a trip is left to the next one.
func TestTheWaitEndsAsReplicasAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{Hash: hashOfName, Replicas: 3, Timeout: 100 * time.Millisecond})
		defer s.Close()
		fakes, list := newFakes(3)
		s.Use(list)
		for _, f := range fakes {
			f.delay = 50 * time.Millisecond
		}
		fakes[0].delay = time.Millisecond
		var running sync.WaitGroup
		for i := range 200 {
			running.Go(func() {
				for range 20 {
					if o := hit(s, counter(i), 1); assert.NoError(t, o.err) {
						assert.Equal(t, 50*time.Millisecond, o.took)
					}
				}
			})
		}
		running.Wait()
	})
}

func TestDifferingIsBounded(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		for i := range maxDiffering + 100 {
			fakes[0].items[counter(i).Hash] = map[uint64]int64{55: 1}
			require.NoError(t, hit(s, counter(i), 1).err)
		}
		assert.Len(t, s.Differing(), maxDiffering)
		assert.Empty(t, s.Differing())
	})
}

// The list changes under load: no hit fails, and adds are rolled back where they were made,
// so that no part of them is left on any server that was ever in the list.
func TestTheListChangesUnderLoad(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{Hash: hashOfName, Replicas: 2, Timeout: 100 * time.Millisecond})
		defer s.Close()
		fakes, list := newFakes(6)
		s.Use(list[:4])
		rng := rand.New(rand.NewPCG(3, 4))
		for _, f := range fakes {
			f.delay = time.Duration(1+rng.IntN(9)) * time.Millisecond
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		hits := make([]int, 40)
		for i := range hits {
			running.Go(func() {
				for ; ctx.Err() == nil; hits[i]++ {
					o := hit(s, counter(i), 1)
					assert.NoError(t, o.err)
					assert.NoError(t, rollBack(context.Background(), s, counter(i), 1, someAdds, o.landed))
				}
			})
		}
		for range 100 {
			time.Sleep(time.Duration(10+rng.IntN(20)) * time.Millisecond)
			from := rng.IntN(4)
			s.Use(list[from : from+2+rng.IntN(len(list)-from-1)])
		}
		cancel()
		running.Wait()
		assert.Equal(t, uint64(100), s.Gaps())
		for i := range hits {
			assert.Positive(t, hits[i])
			for _, f := range fakes {
				for _, bucket := range someAdds {
					assert.Zero(t, f.value(counter(i).Hash, bucket))
				}
			}
		}
	})
}

// What was landed on a list that is forgotten stays, and is said to.
func TestRollBackOfAForgottenList(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 3, func(t *testing.T, s *Set, fakes []*fakeServer) {
		c := counter(1)
		o := hit(s, c, 1)
		for range formerLists + 1 {
			s.Use([]Server{fakes[0], fakes[1], fakes[2]})
		}
		assert.ErrorIs(t, rollBack(t.Context(), s, c, 1, someAdds, o.landed), errListForgotten)
		hintMissed(s, c, 1, someAdds, expiresIn(time.Hour), o.landed)
		pending, _ := s.PendingHints()
		assert.Equal(t, 2, pending, "rather twice than not at all")
	})
}

// A copy that has forgotten what it had does not decide alone while one that has not can
// be asked: that one has all the time, and where it fails the trip does. Once it is known
// to be down, the forgetful one is all there is.
func TestAnEmptiedReplicaDoesNotDecideAlone(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		copies := on(s, c)
		emptied, whole := copies[0], copies[1]
		emptied.empty()
		whole.set(func(f *fakeServer) { f.delay = 90 * time.Millisecond })
		o := hit(s, c, 1)
		require.NoError(t, o.err)
		assert.Equal(t, 90*time.Millisecond, o.took, "it is waited for")
		assert.Equal(t, 4, o.landed.On(1))

		whole.set(func(f *fakeServer) { f.stalled = true })
		o = hit(s, c, 1)
		require.Error(t, o.err)
		assert.Equal(t, 4, o.landed.On(0), "to be rolled back")
		assert.Equal(t, 100*time.Millisecond, o.took)

		whole.set(func(f *fakeServer) { f.down = true })
		o = hit(s, c, 1)
		require.NoError(t, o.err)

		whole.set(func(f *fakeServer) { f.down, f.stalled, f.delay = false, false, 0 })
		emptied.set(func(f *fakeServer) { f.stalled = true })
		o = hit(s, c, 1)
		require.NoError(t, o.err)
		assert.Equal(t, 50*time.Millisecond, o.took, "who has forgotten nothing is enough")
	})
}

// What a copy adds after its round trip was given up has an unknown outcome when the hit is
// rolled back, and stays: the copy counts high, by no more than that.
func TestAddsThatComeAfterTheRollbackStay(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		quick, slow := on(s, c)[0], on(s, c)[1]
		slow.set(func(f *fakeServer) { f.delay = 60 * time.Millisecond })
		landed, err := storetest.Trip(t.Context(), s, c.Name, 1, someAdds, expiresIn(time.Hour), nil, make([]int64, len(someAdds)))
		require.NoError(t, err)
		assert.Equal(t, receiptOf(s, 4), landed)
		require.NoError(t, rollBack(t.Context(), s, c, 1, someAdds, landed))
		time.Sleep(time.Minute)
		for _, bucket := range someAdds {
			assert.Zero(t, quick.value(c.Hash, bucket))
			assert.Equal(t, int64(1), slow.value(c.Hash, bucket))
		}
	})
}
