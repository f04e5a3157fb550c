package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// opened is the moment at which the clock of the rows in this process begins: as
// in the design's example the last day has 142 buckets then, and midnight is far.
var opened = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// stage is what the rows of one name share: its processes, and its clock.
type stage struct {
	config  Config
	started time.Time
	hitters []events.Features // shared by all rows: what is alive bears on the garbage collector
	once    struct{ memcached, servers, days sync.Once }

	shared    *memcached.Server
	sharedErr error
	web       *web
	webErr    error
	daysErr   error
	closers   []func() error
}

func newStage(config Config) *stage {
	return &stage{config: config, started: time.Now(), hitters: featuresOf(config.sizes.people)}
}

// closing has the function called when the stage closes, the last one first.
func (s *stage) closing(f func() error) { s.closers = append(s.closers, f) }

func (s *stage) close() error {
	var faults []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		faults = append(faults, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(faults...)
}

// now is a clock that runs from the moment opened on.
func (s *stage) now() time.Time { return opened.Add(time.Since(s.started)) }

// standing is a clock that stands there.
func standing() time.Time { return opened }

// memcached returns the stage's Memcached.
func (s *stage) memcached(ctx context.Context) (*memcached.Server, error) {
	s.once.memcached.Do(func() {
		if s.shared, s.sharedErr = startMemcached(ctx, s.config.Memcached); s.sharedErr == nil {
			s.closing(s.shared.Close)
		}
	})
	return s.shared, s.sharedErr
}

// fleet returns a fleet of its own on the stage's Memcached.
func (s *stage) fleet(ctx context.Context, clock func() time.Time) (*memcache.Fleet, error) {
	m, err := s.memcached(ctx)
	if err != nil {
		return nil, err
	}
	return memcache.NewFleet(ctx, memcache.Config{Servers: []string{m.Addr}, Timeout: s.config.sizes.patience, Clock: clock})
}
