package copies

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/bubble"
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
	emptied bool          // it has forgotten what it had, and that is known
	unheard bool          // it does all, and its answer is lost
	items   map[Hash]map[uint64]int64
	calls   []fakeCall
}

// fakeCall is one call to a server.
type fakeCall struct {
	kind    string
	hash    Hash
	by      int64
	buckets []uint64
}

func newFakes(n int) (fakes []*fakeServer, servers []Server) {
	for i := range n {
		f := &fakeServer{name: fmt.Sprintf("10.0.0.%d:11211", i+1), items: map[Hash]map[uint64]int64{}}
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

func (f *fakeServer) Whole() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.emptied
}

func (f *fakeServer) value(h Hash, bucket uint64) int64 {
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

func (f *fakeServer) note(kind string, c Counter, by int64, buckets []uint64) {
	f.calls = append(f.calls, fakeCall{kind, c.Hash, by, append([]uint64(nil), buckets...)})
}

func (f *fakeServer) add(h Hash, bucket uint64, by int64) int64 {
	if f.items[h] == nil {
		f.items[h] = map[uint64]int64{}
	}
	f.items[h][bucket] += by
	return f.items[h][bucket]
}

func (f *fakeServer) Start(_ context.Context, deadline time.Time, c Counter, by int64, adds []uint64, _ []int64, reads []uint64, index int, ended chan<- int) Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "trip"
	if c.Name == "" {
		kind = "payment"
	}
	f.note(kind, c, by, adds)
	x := &fakeExchange{index: index, ended: ended}
	act := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		landed, values := 0, make([]int64, 0, len(adds)+len(reads))
		for _, bucket := range adds {
			if landed+1 == f.failing {
				x.settle(landed, nil, errFake)
				return
			}
			values = append(values, f.add(c.Hash, bucket, by))
			landed++
		}
		for _, bucket := range reads {
			values = append(values, f.items[c.Hash][bucket])
		}
		if f.unheard {
			return
		}
		x.settle(landed, values, nil)
	}
	adds, reads = append([]uint64(nil), adds...), append([]uint64(nil), reads...)
	x.late = time.AfterFunc(time.Until(deadline), func() { x.settle(0, nil, context.DeadlineExceeded) })
	if !f.stalled {
		x.act = time.AfterFunc(f.delay, act)
	}
	return x
}

func (f *fakeServer) call(kind string, c Counter, by int64, buckets []uint64, do func(bucket uint64)) error {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	time.Sleep(delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(kind, c, by, buckets)
	if f.failing > 0 {
		return errFake
	}
	for _, bucket := range buckets {
		do(bucket)
	}
	return nil
}

func (f *fakeServer) RollBack(_ context.Context, c Counter, by int64, buckets []uint64) error {
	return f.call("back", c, by, buckets, func(bucket uint64) { f.items[c.Hash][bucket] -= by })
}

func (f *fakeServer) Delete(_ context.Context, c Counter, buckets []uint64) error {
	return f.call("delete", c, 0, buckets, func(bucket uint64) { delete(f.items[c.Hash], bucket) })
}

// fakeExchange sends its token once, whoever ends it.
type fakeExchange struct {
	index     int
	ended     chan<- int
	late, act *time.Timer

	mu     sync.Mutex
	over   bool
	landed int
	values []int64
	err    error
}

var errGivenUp = errors.New("given up")

func (x *fakeExchange) settle(landed int, values []int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over, x.landed, x.values, x.err = true, landed, values, err
	select {
	case x.ended <- x.index:
	default:
		panic("there is no room for the token of an exchange")
	}
}

func (x *fakeExchange) GiveUp() { x.settle(0, nil, errGivenUp) }

func (x *fakeExchange) End(values []int64) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		panic("it has not ended")
	}
	copy(values, x.values)
	return x.landed, x.err
}

// inBubble runs a test with a set on so many servers, in a bubble.
func inBubble(t *testing.T, config Config, servers int, test func(t *testing.T, s *Set, fakes []*fakeServer)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		if config.Timeout == 0 {
			config.Timeout = 100 * time.Millisecond
		}
		s := New(config)
		defer s.Close()
		fakes, list := newFakes(servers)
		s.Use(list)
		test(t, s, fakes)
	})
}

// counter returns the i-th counter of a test.
func counter(i int) Counter {
	var h Hash
	for k := range 8 {
		h[k] = byte(mix(uint64(i)+1) >> (8 * k))
	}
	h[8], h[9] = byte(i), byte(i>>8)
	return Counter{fmt.Sprint("counter ", i), h}
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
	landed int
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

// hit makes a trip of 100 ms at the most, and owes what was missed.
func hit(s *Set, c Counter, by int64) (o outcome) {
	began := time.Now()
	o.values = make([]int64, len(someAdds)+len(someReads))
	o.landed, o.err = s.Start(context.Background(), began, began.Add(100*time.Millisecond), c, by, someAdds, expiresIn(time.Hour), someReads, o.values)()
	o.took = time.Since(began)
	if o.err == nil {
		s.Owe(c, by, someAdds, expiresIn(time.Hour), o.landed)
	}
	return o
}
