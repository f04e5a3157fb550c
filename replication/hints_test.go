package replication

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/store/storetest"
)

// owing has a counter with one copy that is down and owed so many hits.
func owing(t *testing.T, s *Set, c Counter, hits int) (down *fakeServer) {
	t.Helper()
	down = on(s, c)[0]
	down.set(func(f *fakeServer) { f.down = true })
	for range hits {
		require.NoError(t, hit(s, c, 1).err)
	}
	return down
}

func requireOwed(t *testing.T, s *Set, debts int) {
	t.Helper()
	synctest.Wait()
	owed, _ := s.PendingHints()
	require.Equal(t, debts, owed)
}

func backUp(f *fakeServer) { f.set(func(f *fakeServer) { f.down = false }) }

// Debts to the same buckets are one, and it is paid with one trip.
func TestDebtsAreMerged(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := owing(t, s, c, 7)
		owe(s, c, 5, []uint64{12, 22, 33, 44}, expiresIn(time.Hour), receiptOf(s, 0, 4))
		owe(s, c, 5, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		requireOwed(t, s, 2)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requireOwed(t, s, 0)
		assert.Equal(t, []fakeCall{
			{"payment", c.Hash, 12, someAdds},
			{"payment", c.Hash, 5, []uint64{12, 22, 33, 44}},
		}, down.callsOf("payment"), "the oldest first, each the finest level first")
		assert.Equal(t, int64(17), down.value(c.Hash, 44))
	})
}

// Debts beyond the bound are dropped, and known to be.
func TestDebtsAreBounded(t *testing.T) {
	inBubble(t, Config{Replicas: 2, MaxHints: 10}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		fakes[0].down = true
		for i := range 13 {
			require.NoError(t, hit(s, counter(i), 1).err)
		}
		requireOwed(t, s, 10)
		assert.Equal(t, uint64(3), s.Gaps())
		require.NoError(t, hit(s, counter(0), 1).err)
		assert.Equal(t, uint64(3), s.Gaps(), "one that is there already takes no room")
		backUp(fakes[0])
		time.Sleep(2*s.timeout + replayInterval)
		requireOwed(t, s, 0)
		assert.Len(t, fakes[0].callsOf("payment"), 10)
	})
}

// What has expired is nobody's loss.
func TestDebtsThatHaveExpiredAreDropped(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		down := owing(t, s, counter(1), 3)
		time.Sleep(59 * time.Minute)
		none := receiptOf(s, 0, 4)
		owe(s, counter(1), 1, []uint64{77}, []int64{time.Now().Add(time.Hour).Unix()}, none)
		time.Sleep(2 * time.Minute)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requireOwed(t, s, 0)
		payments := down.callsOf("payment")
		require.Len(t, payments, 1)
		assert.Equal(t, []uint64{77}, payments[0].buckets)
	})
}

// Of a payment that fails midway the rest is paid later; one of unknown outcome is paid
// again: it may count twice, and never not at all.
func TestPaymentsThatFail(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := owing(t, s, c, 3)
		down.set(func(f *fakeServer) { f.down, f.failing = false, 3 })
		time.Sleep(2*s.timeout + replayInterval)
		requireOwed(t, s, 1)
		down.set(func(f *fakeServer) { f.failing, f.unheard = 0, true })
		time.Sleep(replayInterval + firstReplayWait)
		requireOwed(t, s, 1) // under way, and still owed
		assert.Equal(t, someAdds[2:], down.callsOf("payment")[1].buckets)
		down.set(func(f *fakeServer) { f.unheard = false })
		time.Sleep(time.Second)
		requireOwed(t, s, 0)
		payments := down.callsOf("payment")
		require.Len(t, payments, 3)
		assert.Equal(t, payments[1], payments[2])
		for i, value := range []int64{3, 3, 6, 6} {
			assert.Equal(t, value, down.value(c.Hash, someAdds[i]))
		}
	})
}

// A server that does all and is too slow to say so counts each payment once more. So it is
// tried less and less often.
func TestPaymentsAreRepeatedLessAndLessOften(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		down := owing(t, s, counter(1), 1)
		down.set(func(f *fakeServer) { f.down, f.unheard = false, true })
		time.Sleep(time.Minute)
		synctest.Wait()
		tries := len(down.callsOf("payment"))
		assert.Greater(t, tries, 20)
		assert.Less(t, tries, 40)
		down.set(func(f *fakeServer) { f.unheard = false })
		time.Sleep(lastReplayWait + replayInterval + 100*time.Millisecond)
		requireOwed(t, s, 0)
	})
}

// A counter that is reset owes nothing any more, not even what is just being paid.
func TestDebtsAreForgiven(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		owing(t, s, c, 3)
		require.NoError(t, hit(s, counter(2), 1).err)
		s.hints.drop(c.Hash, addsOf(1, []uint64{99}))
		before, _ := s.PendingHints()
		require.NoError(t, storetest.Delete(t.Context(), s, c.Name, someAdds[1:2]))
		requireOwed(t, s, before-1)

		down := owing(t, s, c, 3)
		down.set(func(f *fakeServer) { f.down, f.stalled = false, true })
		time.Sleep(2*s.timeout + replayInterval)
		synctest.Wait()
		require.NotEmpty(t, down.callsOf("payment"))
		s.hints.drop(c.Hash, addsOf(1, someAdds))
		down.set(func(f *fakeServer) { f.stalled = false })
		time.Sleep(time.Second)
		requireOwed(t, s, 0)
		assert.Zero(t, down.value(c.Hash, 11), "it is not tried again")
	})
}

// What a server is owed goes with it, also what is owed to it later by trips that began
// before.
func TestDebtsAreForgottenWithTheirServer(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 3, func(t *testing.T, s *Set, fakes []*fakeServer) {
		c := counter(1)
		down := owing(t, s, c, 3)
		o := hit(s, c, 1)
		var left []Server
		for _, f := range fakes {
			if f != down {
				left = append(left, f)
			}
		}
		s.Use(left)
		assert.Equal(t, uint64(2), s.Gaps())
		requireOwed(t, s, 0)
		owe(s, c, 1, someAdds, expiresIn(time.Hour), o.landed)
		requireOwed(t, s, 0)
		backUp(down)
		time.Sleep(time.Minute)
		assert.Empty(t, down.callsOf("payment"))
	})
}

// And what is just being paid to it is not owed again.
func TestAServerGoesWhileItIsPaid(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 3, func(t *testing.T, s *Set, fakes []*fakeServer) {
		down := owing(t, s, counter(1), 3)
		down.set(func(f *fakeServer) { f.down, f.stalled = false, true })
		time.Sleep(2*s.timeout + time.Millisecond)
		require.NotEmpty(t, down.callsOf("payment"))
		requireOwed(t, s, 1)
		var left []Server
		for _, f := range fakes {
			if f != down {
				left = append(left, f)
			}
		}
		s.Use(left)
		time.Sleep(time.Second)
		requireOwed(t, s, 0)
		assert.Len(t, down.callsOf("payment"), 1)
	})
}

// Many debts are paid at a bounded rate, each once.
func TestManyDebts(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, fakes []*fakeServer) {
		const many = 50_000
		fakes[0].down = true
		for i := range many {
			require.NoError(t, hit(s, counter(i), 1).err)
		}
		requireOwed(t, s, many)
		backUp(fakes[0])
		time.Sleep(many / replaysPerSecond * time.Second)
		synctest.Wait()
		owed, _ := s.PendingHints()
		assert.Positive(t, owed, "not faster than %d a second", replaysPerSecond)
		time.Sleep(time.Second)
		requireOwed(t, s, 0)
		assert.Len(t, fakes[0].callsOf("payment"), many)
		for i := range many {
			require.Equal(t, int64(1), fakes[0].value(counter(i).Hash, 44))
		}
	})
}

// Close waits for what is being paid, till its timeout, and nothing is paid or owed after it.
func TestCloseJoinsThePayments(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{Hash: hashOfName, Replicas: 2, Timeout: 100 * time.Millisecond})
		_, list := newFakes(2)
		s.Use(list)
		down := owing(t, s, counter(1), 3)
		down.set(func(f *fakeServer) { f.down, f.stalled = false, true })
		time.Sleep(2 * s.timeout)
		synctest.Wait()
		require.Len(t, down.callsOf("payment"), 1)
		began := time.Now()
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(s.Close)
		}
		closing.Wait()
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		owe(s, counter(2), 1, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		time.Sleep(time.Minute)
		assert.Len(t, down.callsOf("payment"), 1)
	})
}

// What is acknowledged late is not owed; nor is more than that.
func TestLateAnswersAreCredited(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		down := owing(t, s, c, 3)
		s.Acknowledge(down, c.Hash, addsOf(2, someAdds))
		requireOwed(t, s, 1)
		s.Acknowledge(down, c.Hash, addsOf(5, someAdds[2:]))
		requireOwed(t, s, 1)
		backUp(down)
		time.Sleep(2*s.timeout + replayInterval)
		requireOwed(t, s, 0)
		assert.Equal(t, int64(1), down.value(c.Hash, 44))
		down = owing(t, s, c, 3)
		s.Acknowledge(down, c.Hash, addsOf(3, someAdds))
		requireOwed(t, s, 0)
		time.Sleep(replayInterval)
		synctest.Wait()
		_, servers := s.PendingHints()
		assert.Zero(t, servers, "nor is the server")
	})
}

// An acknowledgement that comes after its round trip was given up, and before the hit is
// decided, is no less one: the hint that follows owes nothing. Nor does a payment that is given
// up and acknowledged at once.
func TestAnswersBeforeTheHintAreCredited(t *testing.T) {
	inBubble(t, Config{Replicas: 2}, 2, func(t *testing.T, s *Set, _ []*fakeServer) {
		c := counter(1)
		slow := on(s, c)[0]
		hint := func(by int64) { owe(s, c, by, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4)) }
		s.Acknowledge(slow, c.Hash, addsOf(2, someAdds))
		s.Acknowledge(slow, c.Hash, addsOf(3, someAdds))
		hint(1)
		hint(4)
		requireOwed(t, s, 0)
		hint(1)
		requireOwed(t, s, 1)
		time.Sleep(2*s.timeout + replayInterval)
		assert.Equal(t, []fakeCall{{"payment", c.Hash, 1, someAdds}}, slow.callsOf("payment"), "no more than was acknowledged")

		s.Acknowledge(slow, c.Hash, addsOf(2, someAdds))
		hint(5)
		time.Sleep(2*s.timeout + replayInterval)
		synctest.Wait()
		assert.Equal(t, fakeCall{"payment", c.Hash, 3, someAdds}, slow.callsOf("payment")[1], "what was not")

		slow.set(func(f *fakeServer) { f.unheard = true })
		hint(7)
		time.Sleep(2*s.timeout + replayInterval) // the payment is under way
		s.Acknowledge(slow, c.Hash, addsOf(7, someAdds))
		time.Sleep(s.timeout)
		requireOwed(t, s, 0)
	})
}

// A credit counts for what is owed soon, to a server that has what it acknowledged.
func TestCreditsEnd(t *testing.T) {
	for name, end := range map[string]func(s *Set, c Counter, slow *fakeServer){
		"after their time": func(s *Set, _ Counter, _ *fakeServer) { time.Sleep(4 * s.timeout) },
		"with a reset": func(s *Set, c Counter, _ *fakeServer) {
			_ = storetest.Delete(context.Background(), s, c.Name, someAdds[3:])
		},
		"with what the server has": func(_ *Set, _ Counter, slow *fakeServer) { slow.set(func(f *fakeServer) { f.emptied = true }) },
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
				owe(s, c, 1, adds, expiresIn(time.Hour), receiptOf(s, 0, 4))
				requireOwed(t, s, 1)
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
			owe(s, counter(i), 1, someAdds, expiresIn(time.Hour), receiptOf(s, 0, 4))
		}
		requireOwed(t, s, 2)
	})
}
