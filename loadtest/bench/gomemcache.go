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
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/memcache"
)

// plain counts as a program does that has gomemcache and nothing else: an increment
// of the bucket of the second, the minute and the hour, and then all the buckets of
// the last day in one GetMulti. It decides nothing.
type plain struct {
	client  *gomemcache.Client
	clock   func() time.Time
	names   []string // of the counters
	atLeast int64    // what the last day holds
	counted counted.Counts
	cover   atomic.Pointer[dayCover]
}

// dayCover is the buckets of the last day, as of a second, behind the three that an
// event in that second is added to.
type dayCover struct {
	second  int64
	buckets []uint64
}

func newPlain(ctx context.Context, s *stage, r row, clock func() time.Time, counters int) (*plain, *subject, error) {
	server, err := s.memcached(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := &plain{client: gomemcache.New(server.Addr), clock: clock, atLeast: 1}
	p.client.MaxIdleConns = r.callers
	p.client.Timeout = s.config.sizes.patience
	s.closing(p.client.Close)
	if p.names, err = namesOf(&events.Event{Name: eventName(r)}, counters); err != nil {
		return nil, nil, err
	}
	return p, &subject{
		counted: &p.counted, memcached: server, inProcess: true,
		steps: func() ([]step, error) {
			steps := make([]step, r.callers)
			for i := range steps {
				steps[i] = p.step()
			}
			return steps, nil
		},
	}, nil
}

// namesOf returns the names under which a store has the event's first n counters.
func namesOf(event *events.Event, n int) ([]string, error) {
	names := make([]string, n)
	for i, features := range featuresOf(n) {
		counter, err := event.Counter(features)
		if err != nil {
			return nil, err
		}
		names[i] = counter.ID()
	}
	return names, nil
}

func prepareSparse(ctx context.Context, s *stage, r row) (*subject, error) {
	_, subject, err := newPlain(ctx, s, r, s.now, s.config.sizes.people)
	return subject, err
}

// prepareFull has a clock that stands, so that the buckets which are there stay
// those that are asked for.
func prepareFull(ctx context.Context, s *stage, r row) (*subject, error) {
	p, subject, err := newPlain(ctx, s, r, standing, s.config.sizes.full)
	if err != nil {
		return nil, err
	}
	cover := p.coverNow()
	p.atLeast = int64(len(cover.buckets)) - 3
	return subject, subject.memcached.Fill(ctx, func(yield func(string) bool) {
		for _, name := range p.names {
			// The bucket of the second is among the last day's too.
			for _, key := range memcache.Keys(name, cover.buckets[1:]) {
				if !yield(key) {
					return
				}
			}
		}
	})
}

// coverNow returns the buckets as of now. They are found once a second.
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

// dayOf returns the numbers of the buckets of the last day.
func dayOf(now time.Time) []uint64 {
	var buckets []uint64
	for bucket := range hierarchy.CoverOf(hierarchy.WindowAt(now, 24*time.Hour), hierarchy.Second, hierarchy.Day).Buckets() {
		buckets = append(buckets, bucket.ID())
	}
	return buckets
}

func (p *plain) step() step {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	return func() (int, error) {
		buckets := p.coverNow().buckets
		keys := memcache.Keys(p.names[random.IntN(len(p.names))], buckets)
		for _, key := range keys[:3] {
			if err := p.increment(key); err != nil {
				return 1, err
			}
		}
		p.counted.Adds.Add(3)
		p.counted.Trips.Add(1)
		p.counted.Reads.Add(int64(len(keys) - 3))
		sum, err := sumOf(p.client, keys[3:])
		if err == nil && sum < p.atLeast {
			err = fmt.Errorf("gomemcache: the last day holds %d, not at least %d", sum, p.atLeast)
		}
		return 1, err
	}
}

// increment adds one to a bucket, and makes it where it is not there.
func (p *plain) increment(key string) error {
	for {
		p.counted.Trips.Add(1)
		_, err := p.client.Increment(key, 1)
		if !errors.Is(err, gomemcache.ErrCacheMiss) {
			return err
		}
		p.counted.Trips.Add(1)
		err = p.client.Add(&gomemcache.Item{Key: key, Value: []byte("1"), Expiration: int32(2 * 24 * time.Hour / time.Second)})
		if !errors.Is(err, gomemcache.ErrNotStored) {
			return err
		}
		// Another caller has made it in between.
	}
}

// sumOf returns the sum of what the keys hold, read with one bare GetMulti.
func sumOf(client *gomemcache.Client, keys []string) (sum int64, err error) {
	items, err := client.GetMulti(keys)
	if err != nil {
		return 0, err
	}
	for _, item := range items {
		value, err := strconv.ParseInt(string(item.Value), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// bare prepares gomemcache's GetMulti alone: of each of many counters once in a
// slice, or of one again and again. The keys are made beforehand.
func bare(event string, again bool) func(context.Context, *stage, row) (*subject, error) {
	return func(ctx context.Context, s *stage, r row) (*subject, error) {
		if err := s.fillDays(ctx); err != nil {
			return nil, err
		}
		m, err := s.memcached(ctx)
		if err != nil {
			return nil, err
		}
		counters := s.config.sizes.counted
		if again {
			counters = 1
		}
		names, err := namesOf(&events.Event{Name: event}, counters)
		if err != nil {
			return nil, err
		}
		client := gomemcache.New(m.Addr)
		client.MaxIdleConns = r.callers
		client.Timeout = s.config.sizes.patience
		s.closing(client.Close)
		var (
			c    counted.Counts
			keys [][]string // for the time of a slice: there are many
			next atomic.Int64
			want = int(held(event))
		)
		return &subject{
			counted: &c, memcached: m, inProcess: true,
			before: func() error {
				next.Store(0)
				for _, name := range names {
					keys = append(keys, memcache.Keys(name, dayOf(standing())))
				}
				return nil
			},
			after: func() error {
				keys = nil
				return nil
			},
			steps: func() ([]step, error) {
				steps := make([]step, r.callers)
				for i := range steps {
					steps[i] = func() (int, error) {
						i := int(next.Add(1) - 1)
						if again {
							i = 0
						}
						if i >= len(keys) {
							return 0, errSpent
						}
						items, err := client.GetMulti(keys[i])
						c.Trips.Add(1)
						c.Reads.Add(int64(len(keys[i])))
						if err == nil && len(items) != want {
							err = fmt.Errorf("gomemcache found %d items, not %d", len(items), want)
						}
						return 1, err
					}
				}
				return steps, nil
			},
		}, nil
	}
}
