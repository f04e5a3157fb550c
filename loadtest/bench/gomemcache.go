package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// plain counts with bare gomemcache: it increments the buckets of the second, the minute and
// the hour, and reads all the buckets of the last day in one GetMulti. It decides nothing.
type plain struct {
	client  *gomemcache.Client
	clock   func() time.Time
	names   []string // of the counters
	atLeast int64    // of the last day
	counted storeCounts
	cover   atomic.Pointer[dayCover]
}

// dayCover is the three buckets of an event, and the buckets of the last day behind them.
type dayCover struct {
	second  int64
	buckets []uint64
}

// newClient returns a client of the stage's Memcached.
func (s *stage) newClient(r row) *gomemcache.Client {
	client := gomemcache.New(s.shared.Addr)
	client.MaxIdleConns, client.Timeout = r.callers, s.config.sizes.timeout
	s.closing(client.Close)
	return client
}

func newPlain(s *stage, r row, clock func() time.Time, counters int) (*plain, *subject, error) {
	_, names, err := countersOf(r.eventName(), counters)
	p := &plain{client: s.newClient(r), clock: clock, atLeast: 1, names: names}
	return p, &subject{counted: &p.counted, memcached: s.shared, steps: r.each(p.step)}, err
}

func prepareSparse(_ context.Context, s *stage, r row) (*subject, error) {
	_, subject, err := newPlain(s, r, s.now, s.config.sizes.addresses)
	return subject, err
}

// prepareFull has a frozen clock, and all buckets exist.
func prepareFull(ctx context.Context, s *stage, r row) (*subject, error) {
	p, subject, err := newPlain(s, r, frozen, s.config.sizes.full)
	if err != nil {
		return nil, err
	}
	buckets := p.coverNow().buckets
	p.atLeast = int64(len(buckets)) - 3
	return subject, s.shared.Fill(ctx, keysOf(p.names, buckets[1:])) // the second's is of the last day, too
}

// coverNow returns the buckets as of now, which it finds once a second.
func (p *plain) coverNow() *dayCover {
	now := p.clock()
	if known := p.cover.Load(); known != nil && known.second == now.Unix() {
		return known
	}
	found := &dayCover{second: now.Unix()}
	for _, level := range []hierarchy.Level{hierarchy.Second, hierarchy.Minute, hierarchy.Hour} {
		found.buckets = append(found.buckets, hierarchy.BucketAt(level, found.second).ID())
	}
	found.buckets = append(found.buckets, dayOf(now)...)
	p.cover.Store(found)
	return found
}

func (p *plain) step() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		keys := memcache.Keys(p.names[random.IntN(len(p.names))], p.coverNow().buckets)
		for _, key := range keys[:3] {
			if err := p.increment(key); err != nil {
				return 1, err
			}
		}
		p.counted.adds.Add(3)
		p.counted.trips.Add(1)
		p.counted.reads.Add(int64(len(keys) - 3))
		items, err := p.client.GetMulti(keys[3:])
		if err != nil {
			return 1, err
		}
		var sum int64
		for _, item := range items {
			value, err := strconv.ParseInt(string(item.Value), 10, 64)
			if err != nil {
				return 1, err
			}
			sum += value
		}
		if sum < p.atLeast {
			return 1, fmt.Errorf("gomemcache: the last day holds %d, not at least %d", sum, p.atLeast)
		}
		return 1, nil
	}
}

// increment adds one to a bucket, and makes it if it does not exist.
func (p *plain) increment(key string) error {
	for {
		p.counted.trips.Add(1)
		_, err := p.client.Increment(key, 1)
		if !errors.Is(err, gomemcache.ErrCacheMiss) {
			return err
		}
		p.counted.trips.Add(1)
		err = p.client.Add(&gomemcache.Item{Key: key, Value: []byte("1"), Expiration: int32(2 * 24 * time.Hour / time.Second)})
		if !errors.Is(err, gomemcache.ErrNotStored) { // else another caller made it
			return err
		}
	}
}
