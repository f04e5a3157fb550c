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

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// plain counts with bare gomemcache: it increments the buckets of the second, the minute and
// the hour, and reads all the buckets of the last day in one GetMulti. It decides nothing.
type plain struct {
	client   *gomemcache.Client
	clock    func() time.Time
	counters []events.Counter
	atLeast  int64 // of the last day
	trips    atomic.Int64
}

// newPlain returns a client of the stage's Memcached.
func newPlain(s *stage, r row, clock func() time.Time, counters int) (*plain, *subject, error) {
	list, err := countersOf(r.eventName(), counters)
	p := &plain{client: gomemcache.New(s.memcached()), clock: clock, counters: list, atLeast: 1}
	p.client.MaxIdleConns, p.client.Timeout = r.callers, answerTimeout
	s.closing(p.client.Close)
	return p, &subject{trips: &p.trips, memcached: s.memcached(), begin: r.each(p.caller)}, err
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
	buckets := bucketsOf(opened)
	p.atLeast = int64(len(buckets)) - 3
	return subject, s.fill(ctx, p.counters, buckets[1:]) // the second's is of the last day, too
}

// bucketsOf returns the three buckets of an event, and the buckets of the last day behind them.
func bucketsOf(now time.Time) (buckets []uint64) {
	for _, level := range []hierarchy.Level{hierarchy.Second, hierarchy.Minute, hierarchy.Hour} {
		buckets = append(buckets, hierarchy.BucketAt(level, now.Unix()).ID())
	}
	return append(buckets, dayOf(now)...)
}

// caller counts random counters. It finds the buckets once a second.
func (p *plain) caller() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	var (
		second  int64
		buckets []uint64
	)
	return func() (int, error) {
		if now := p.clock(); now.Unix() != second {
			second, buckets = now.Unix(), bucketsOf(now)
		}
		keys := memcache.Keys(p.counters[random.IntN(len(p.counters))].ID(), buckets)
		for _, key := range keys[:3] {
			if err := p.increment(key); err != nil {
				return 1, err
			}
		}
		items, err := p.read(keys[3:])
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

func (p *plain) read(keys []string) (map[string]*gomemcache.Item, error) {
	p.trips.Add(1)
	return p.client.GetMulti(keys)
}

// increment adds one to a bucket, and makes it if it does not exist.
func (p *plain) increment(key string) error {
	for {
		p.trips.Add(1)
		_, err := p.client.Increment(key, 1)
		if !errors.Is(err, gomemcache.ErrCacheMiss) {
			return err
		}
		p.trips.Add(1)
		err = p.client.Add(&gomemcache.Item{Key: key, Value: []byte("1"), Expiration: int32(2 * 24 * time.Hour / time.Second)})
		if !errors.Is(err, gomemcache.ErrNotStored) { // else another caller made it
			return err
		}
	}
}
