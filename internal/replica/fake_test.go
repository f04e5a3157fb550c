package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFake = errors.New("the server's fault")

// fakeServer is a server whose buckets are in memory. Each command takes its time.
type fakeServer struct {
	name string

	mu      sync.Mutex
	down    bool          // Up says so
	delay   time.Duration // of each trip, and of what else is asked of it
	stalled bool          // it does nothing and does not answer
	failing int           // this add of each trip, counted from 1, fails, and those behind it
	unheard bool          // it does all, and its answer is lost
	items   map[store.Hash]map[uint64]int64
	calls   []fakeCall
	memory  Memory  // of one whose losses are not detected
	joined  *Memory // nil: they are not

	marker   fakeMarker
	unlisted bool
}

// fakeCall is one call to a server.
type fakeCall struct {
	kind    string
	hash    store.Hash
	by      int64
	buckets []uint64
}

func newFakes(n int) (fakes []*fakeServer, servers []Server) {
	for i := range n {
		f := &fakeServer{name: fmt.Sprintf("10.0.0.%d:11211", i+1), items: map[store.Hash]map[uint64]int64{}}
		fakes, servers = append(fakes, f), append(servers, f)
	}
	return fakes, servers
}

// set changes how the server is.
func (f *fakeServer) set(change func(*fakeServer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeServer) Name() string { return f.name }

func (f *fakeServer) Up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.down
}

func (f *fakeServer) Memory() *Memory {
	if f.joined != nil {
		return f.joined
	}
	return &f.memory
}

// Look has its marker be read.
func (f *fakeServer) Look(context.Context) error {
	if f.joined == nil || !f.Up() {
		return nil
	}
	return f.joined.Check(&f.marker)
}

func (f *fakeServer) Marker(_ context.Context, use func(MarkerItem) error) error {
	if !f.Up() {
		return errFake
	}
	return use(&f.marker)
}

func (f *fakeServer) Keys(_ context.Context, yield func(Key) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for hash, items := range f.items {
		for item := range items {
			if err := yield(Key{hash, item, math.MaxInt64}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fakeServer) Lists() bool { return !f.unlisted }

// empty has it forget what it had, and that is known.
func (f *fakeServer) empty() { f.memory.state.Store(&state{name: f.name, lost: 1}) }

func (f *fakeServer) value(h store.Hash, bucket uint64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items[h][bucket]
}

// callsOf returns the calls of that kind.
func (f *fakeServer) callsOf(kind string) (calls []fakeCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.kind == kind {
			calls = append(calls, c)
		}
	}
	return calls
}

func (f *fakeServer) note(kind string, c Counter, writes []store.Write) {
	call := fakeCall{kind: kind, hash: c.Hash}
	for _, w := range writes {
		call.by, call.buckets = w.By, append(call.buckets, w.Item)
	}
	f.calls = append(f.calls, call)
}

func (f *fakeServer) add(h store.Hash, bucket uint64, by int64) int64 {
	if f.items[h] == nil {
		f.items[h] = map[uint64]int64{}
	}
	f.items[h][bucket] += by
	return f.items[h][bucket]
}

func (f *fakeServer) Start(_ context.Context, deadline time.Time, c Counter, op *store.Op, index int, ended chan<- int, _ Acknowledger) Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "trip"
	if c.Name == "" {
		kind = "replay"
	}
	f.note(kind, c, op.Writes)
	x := &fakeExchange{index: index, ended: ended}
	own := store.Op{Writes: slices.Clone(op.Writes), Reads: slices.Clone(op.Reads)}
	act := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range own.Writes {
			w := &own.Writes[i]
			if w.Kind != store.Add {
				panic("a trip is of adds")
			}
			if i+1 == f.failing {
				own.Receipt, own.Err = store.Acknowledged(i), errFake
				x.settle(own)
				return
			}
			w.Result = f.add(c.Hash, w.Item, w.By)
		}
		for i := range own.Reads {
			own.Reads[i].Value = f.items[c.Hash][own.Reads[i].Item]
		}
		if f.unheard {
			return
		}
		own.Receipt = store.Acknowledged(len(own.Writes))
		x.settle(own)
	}
	x.late = time.AfterFunc(time.Until(deadline), func() { x.settle(store.Op{Err: context.DeadlineExceeded}) })
	if !f.stalled {
		x.act = time.AfterFunc(f.delay, act)
	}
	return x
}

func (f *fakeServer) Do(_ context.Context, c Counter, op *store.Op) {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	time.Sleep(delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "delete"
	if op.Kind() == store.Subtract {
		kind = "back"
	}
	f.note(kind, c, op.Writes)
	if f.failing > 0 {
		op.Err = errFake
		return
	}
	for _, w := range op.Writes {
		if w.Kind == store.Subtract {
			f.items[c.Hash][w.Item] -= w.By
		} else {
			delete(f.items[c.Hash], w.Item)
		}
	}
}

// fakeExchange sends its token once, at its first end.
type fakeExchange struct {
	index     int
	ended     chan<- int
	late, act *time.Timer

	mu   sync.Mutex
	over bool
	came store.Op
}

var errGivenUp = errors.New("given up")

func (x *fakeExchange) settle(came store.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over, x.came = true, came
	select {
	case x.ended <- x.index:
	default:
		panic("there is no room for the token of an exchange")
	}
}

func (x *fakeExchange) GiveUp() { x.settle(store.Op{Err: errGivenUp}) }

func (x *fakeExchange) End(op *store.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		panic("it has not ended")
	}
	copy(op.Writes, x.came.Writes)
	copy(op.Reads, x.came.Reads)
	op.Receipt, op.Err = x.came.Receipt, x.came.Err
}

// inBubble runs a test with a set on so many servers, in a bubble.
func inBubble(t *testing.T, config Config, servers int, test func(t *testing.T, s *Set, fakes []*fakeServer)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		if config.Timeout == 0 {
			config.Timeout = 100 * time.Millisecond
		}
		config.Hash = hashOfName
		s := New(config)
		defer s.Close()
		fakes, list := newFakes(servers)
		s.Use(list)
		test(t, s, fakes)
	})
}

// counter returns the i-th counter of a test.
func counter(i int) Counter {
	var h store.Hash
	for k := range 8 {
		h[k] = byte(mix(uint64(i)+1) >> (8 * k))
	}
	h[8], h[9] = byte(i), byte(i>>8)
	return Counter{fmt.Sprint("counter ", i), h}
}

// hashOfName returns the hash of the counter of that name.
func hashOfName(name string) store.Hash {
	var i int
	if _, err := fmt.Sscanf(name, "counter %d", &i); err != nil {
		panic(err)
	}
	return counter(i).Hash
}

// on returns the servers of a counter, in its order.
func on(s *Set, c Counter) (fakes []*fakeServer) {
	for _, server := range s.Of(c.Hash) {
		fakes = append(fakes, server.(*fakeServer))
	}
	return fakes
}

// outcome is what came of a trip.
type outcome struct {
	landed store.Receipt
	values []int64
	err    error
	took   time.Duration
}

var (
	someAdds  = []uint64{11, 22, 33, 44} // the finest level first
	someReads = []uint64{55, 66}
)

func expiresIn(d time.Duration) []int64 {
	at := time.Now().Add(d).Unix()
	return []int64{at, at, at, at}
}

// hit makes a trip, and leaves hints of the adds that replicas missed.
func hit(s *Set, c Counter, by int64) (o outcome) {
	began := time.Now()
	o.values = make([]int64, len(someAdds)+len(someReads))
	o.landed, o.err = storetest.Trip(context.Background(), s, c.Name, by, someAdds, expiresIn(time.Hour), someReads, o.values)
	o.took = time.Since(began)
	if o.err == nil {
		hintMissed(s, c, by, someAdds, expiresIn(time.Hour), o.landed)
	}
	return o
}

// addsOf returns adds to the items.
func addsOf(by int64, items []uint64) []store.Write {
	return storetest.Op("", by, items, make([]int64, len(items)), nil).Writes
}

// hintMissed leaves hints for the replicas that have missed adds.
func hintMissed(s *Set, c Counter, by int64, adds []uint64, expires []int64, landed store.Receipt) {
	storetest.Hint(s, c.Name, by, adds, expires, landed)
}

func rollBack(ctx context.Context, s *Set, c Counter, by int64, adds []uint64, landed store.Receipt) error {
	return storetest.RollBack(ctx, s, c.Name, by, adds, landed)
}

// receiptOf returns the receipt of the list in use for what the copies acknowledged.
func receiptOf(s *Set, acknowledged ...uint32) store.Receipt {
	r := store.Receipt{List: s.topology.Load().version}
	copy(r.Acknowledged[:], acknowledged)
	return r
}
