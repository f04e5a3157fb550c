package replica_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/replica"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// modelServer is a server whose items are in memory.
type modelServer struct {
	name   string
	kept   store.Store
	memory replica.Memory
	delay  time.Duration
	fails  error
}

func (s *modelServer) Name() string               { return s.name }
func (s *modelServer) Up() bool                   { return true }
func (s *modelServer) Memory() *replica.Memory    { return &s.memory }
func (s *modelServer) Look(context.Context) error { return nil }

func (s *modelServer) Marker(context.Context, func(replica.MarkerItem) error) error { return nil }

func (s *modelServer) Keys(context.Context, func(replica.Key) error) error { return nil }

func (s *modelServer) Lists() bool { return true }

func (s *modelServer) Do(ctx context.Context, _ replica.Counter, op *store.Op) {
	s.do(ctx, op, s.delay, s.fails)
}

func (s *modelServer) do(ctx context.Context, op *store.Op, delay time.Duration, fails error) {
	time.Sleep(delay)
	if s.kept.Do(ctx, op); fails != nil {
		op.Receipt, op.Err = store.Receipt{}, fails
	}
}

func (s *modelServer) Start(ctx context.Context, _ time.Time, _ replica.Counter, op *store.Op, index int, ended chan<- int, _ replica.Acknowledger) replica.Exchange {
	own := &store.Op{Counter: op.Counter, Data: op.Data, Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
	x := modelExchange{op: own, settle: sync.OnceValue(func() bool { ended <- index; return true }), over: new(atomic.Bool)}
	delay, fails := s.delay, s.fails
	go func() {
		s.do(ctx, own, delay, fails)
		x.over.Store(true)
		x.settle()
	}()
	return x
}

type modelExchange struct {
	op     *store.Op
	over   *atomic.Bool
	settle func() bool
}

func (x modelExchange) GiveUp() { x.settle() }

func (x modelExchange) End(op *store.Op) {
	if !x.over.Load() {
		op.Err = context.DeadlineExceeded
		return
	}
	copy(op.Writes, x.op.Writes)
	copy(op.Reads, x.op.Reads)
	op.Receipt, op.Err = x.op.Receipt, x.op.Err
}

func modelSet(t *testing.T, n int) (*replica.Set, map[string]*modelServer) {
	set := replica.New(replica.Config{
		Replicas: n, Timeout: time.Minute,
		Hash: func(counter string) (h store.Hash) { copy(h[:], counter); return h },
	})
	t.Cleanup(set.Close)
	models, servers := map[string]*modelServer{}, []replica.Server{}
	for i := range n {
		s := &modelServer{name: fmt.Sprint("server ", i), kept: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
		models[s.name], servers = s, append(servers, s)
	}
	set.Use(servers)
	return set, models
}

func TestDataOnModelServers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		set, _ := modelSet(t, 3)
		storetest.Data(t, set)
		storetest.DataExpires(t, set)
	})
}

// A round trip with data waits for its slowest replica, of half of the timeout. One that fails is in the op, and the
// results are those of another.
func TestDataOfEachReplica(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		set, models := modelSet(t, 3)
		item := storetest.DataItem(1)
		op := &store.Op{
			Counter: "a", Data: true, Reads: []store.Read{{Item: item}},
			Writes: []store.Write{{Kind: store.Create, Item: item, Data: []byte("a"), Expires: time.Now().Unix() + 100}},
		}
		slowest := time.Duration(0)
		for _, s := range models {
			slowest += time.Second
			s.delay = slowest
		}
		began := time.Now()
		set.Do(t.Context(), op)
		require.NoError(t, op.Err)
		require.Equal(t, slowest, time.Since(began))
		for i, part := range op.Replicas {
			require.NoError(t, part.Err)
			require.Equal(t, 1, op.Receipt.On(i))
			require.Equal(t, "a", string(part.Reads[0].Data))
		}
		order := []string{op.Replicas[0].Server, op.Replicas[1].Server, op.Replicas[2].Server}

		models[order[2]].delay = time.Minute
		began = time.Now()
		op.Writes = []store.Write{{Kind: store.Append, Item: item, Data: nil}}
		set.Do(t.Context(), op)
		require.NoError(t, op.Err)
		require.Equal(t, 30*time.Second, time.Since(began), "half of the timeout")
		require.Error(t, op.Replicas[2].Err)
		require.Equal(t, []string{"a"}, set.Missed())
		require.Empty(t, set.Missed())
		time.Sleep(time.Minute)
		models[order[2]].delay = 0

		models[order[0]].fails = context.DeadlineExceeded
		op.Writes = []store.Write{{Kind: store.Append, Item: item, Data: []byte("b")}}
		set.Do(t.Context(), op)
		require.NoError(t, op.Err)
		require.Equal(t, []int{0, 1, 1}, []int{op.Receipt.On(0), op.Receipt.On(1), op.Receipt.On(2)})
		require.ErrorIs(t, op.Replicas[0].Err, context.DeadlineExceeded)
		require.Equal(t, order[0], op.Replicas[0].Server)
		require.Equal(t, "ab", string(op.Reads[0].Data))
		require.Equal(t, int64(1), op.Writes[0].Result)

		models[order[1]].fails, models[order[2]].fails = context.DeadlineExceeded, context.DeadlineExceeded
		set.Do(t.Context(), op)
		require.ErrorIs(t, op.Err, context.DeadlineExceeded)
		require.True(t, op.Receipt.None())
	})
}
