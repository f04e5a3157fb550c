package compare

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// MemoryConfig says whose memory is measured. Users, Limit and Memcached are needed.
type MemoryConfig struct {
	// Users is how many, 1 to MaxUsers, have used up the limit, their hits spread evenly
	// over its window.
	Users     int
	Limit     events.Limit
	Memcached string // the program
	Progress  Progress
}

// MaxUsers is the most whose memory is measured.
const MaxUsers = 10_000_000

// DefaultUsers is how many users are measured.
const DefaultUsers = 2000

// Check finds what is wrong with the config.
func (c MemoryConfig) Check() error {
	faults := []error{checkLimit(c.Limit)}
	if c.Users < 1 || c.Users > MaxUsers {
		faults = append(faults, fmt.Errorf("compare: the users are 1 to %s", columns.Grouped(MaxUsers)))
	} else if checkLimit(c.Limit) == nil && c.Limit.N > MaxHits*100/int64(c.Users) {
		faults = append(faults, fmt.Errorf("compare: %s users of %s are more than %s hits", columns.Grouped(int64(c.Users)), events.FormatRate(c.Limit), columns.Grouped(MaxHits*100)))
	}
	if _, err := exec.LookPath(c.Memcached); err != nil {
		faults = append(faults, fmt.Errorf("compare: memcached is needed: %w", err))
	}
	return errors.Join(faults...)
}

// MeasureMemory fills each way of limiting, one after the other, and measures what it keeps.
func MeasureMemory(ctx context.Context, c MemoryConfig) (*MemoryReport, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	m := &measurement{MemoryConfig: c, features: make([]string, c.Users)}
	for i := range m.features {
		m.features[i] = fmt.Sprintf("user-%06d", i)
	}
	found := &MemoryReport{Users: c.Users, Limit: events.FormatRate(c.Limit)}
	for _, reference := range references(DefaultProcesses) {
		if !reference.sound {
			continue
		}
		row, err := m.ofReference(ctx, reference.name, reference.make(limitOf(c.Limit)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", reference.name, err)
		}
		found.Rows = append(found.Rows, row)
	}
	for _, precision := range precisionsOf(c.Limit) {
		row, err := m.ofCounterd(ctx, precision)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.Name, err)
		}
		found.Rows = append(found.Rows, row)
	}
	return found, nil
}

// measurement is one of all ways of limiting.
type measurement struct {
	MemoryConfig
	features []string
}

// hits calls do for each hit of each user, in the order of their times, in nanoseconds.
// The last comes just before the window is over that began with the first.
func (m *measurement) hits(ctx context.Context, stage string, do func(now int64, user int) error) error {
	window, all := int64(m.Limit.Window), m.Limit.N*int64(m.Users)
	if m.Progress != nil {
		m.Progress.Start(stage, int(all))
	}
	for i := range all {
		if i%stride == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if m.Progress != nil {
				m.Progress.Add(int(min(stride, all-i)))
			}
		}
		// As integers the product may be too large.
		after := int64(float64(window-second) * (float64(i) / float64(all)))
		if err := do(opening.UnixNano()+after, int(i%int64(m.Users))); err != nil {
			return err
		}
	}
	return nil
}

var errDenied = errors.New("compare: a hit was denied that is within the limit")

// ofReference measures a reference: in this process, and its states as items.
func (m *measurement) ofReference(ctx context.Context, name string, a algorithm) (MemoryRow, error) {
	row := MemoryRow{Name: name}
	before := heap()
	err := m.hits(ctx, name, func(now int64, user int) error {
		admitted, err := a.decide(ctx, m.features[user], now, 1)
		if err == nil && !admitted {
			err = errDenied
		}
		return err
	})
	if err != nil {
		return row, err
	}
	row.Heap = m.each(int64(heap()) - int64(before))
	n, value := a.items(m.features[0])
	runtime.KeepAlive(a)
	err = m.inMemcached(ctx, &row, bytesOf(n, value), func(server *memcached.Server) error {
		return server.FillWith(ctx, func(yield func(string) bool) {
			for _, feature := range m.features {
				if !yield(memcache.Keys(feature, []uint64{0})[0]) {
					return
				}
			}
		}, make([]byte, value))
	})
	return row, err
}

// inMemcached measures a Memcached that is filled with so many bytes of chunks for each user.
func (m *measurement) inMemcached(ctx context.Context, row *MemoryRow, each int64, fill func(*memcached.Server) error) (err error) {
	megabytes := (each*int64(m.Users)*5/4)>>20 + 64
	server, err := memcached.Start(ctx, m.Memcached, "-m", fmt.Sprint(megabytes), "-t", "2")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := fill(server); err != nil {
		return err
	}
	memory, err := server.Memory()
	if err != nil {
		return err
	}
	stats, err := server.Stats()
	if err == nil && stats.Evictions > 0 {
		err = fmt.Errorf("compare: memcached was full and has dropped %d items", stats.Evictions)
	}
	row.Items, row.ItemBytes = m.each(memory.Items), m.each(memory.ItemBytes)
	row.ChunkBytes, row.SlabBytes = m.each(memory.ChunkBytes), m.each(memory.SlabBytes)
	row.Million = row.ChunkBytes * million
	return err
}

// ofCounterd measures the engine: on its embedded store, and on Memcached.
func (m *measurement) ofCounterd(ctx context.Context, precision events.Precision) (MemoryRow, error) {
	row := MemoryRow{Name: nameOf(precision)}
	e := &filler{measurement: m, event: eventOf(m.Limit, zipfKind, precision), features: make([]events.Features, m.Users)}
	for i, feature := range m.features {
		e.features[i] = events.Features{zipfKind: feature}
	}
	before := heap()
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: e.clock.now, MaxBytes: embeddedBytes})
	if err := e.fill(ctx, row.Name+", embedded", store); err != nil {
		return row, err
	}
	e.limiter = nil
	row.Heap = m.each(int64(heap()) - int64(before))
	runtime.KeepAlive(store)

	// Not in the return itself: whether the row is copied before or behind the call is open there.
	err := m.inMemcached(ctx, &row, e.most(), func(server *memcached.Server) (err error) {
		fleet, err := memcache.NewFleet(ctx, memcache.Config{Servers: []string{server.Addr}, Timeout: patience, Clock: e.clock.now})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fleet.Close()) }()
		return e.fill(ctx, row.Name+", memcached", fleet)
	})
	return row, err
}

// patience is the longest wait for Memcached in one decision: what a machine is busy with
// meanwhile is no fault of it. Buckets are kept for longer by the grace for that.
const (
	patience = 10 * time.Second
	grace    = 2 * patience
)

// filler has the engine decide the hits.
type filler struct {
	*measurement
	event    *events.Event
	features []events.Features
	limiter  *hierarchy.Limiter
	clock    clock
	due      []hierarchy.Hit // at the clock's second
}

// most returns a bound of the bytes that a user's buckets take.
func (f *filler) most() int64 {
	cost := hierarchy.FootprintOf(events.Counter{Retention: f.event.Remembered(), Precision: f.event.Rules[0].Precision}, grace)
	return min(cost.Bytes, (hierarchy.Levels*f.Limit.N+2)*smallestChunk)
}

// fill has all hits decided on the store, and looks whether they are all there.
func (f *filler) fill(ctx context.Context, stage string, store hierarchy.Store) error {
	var err error
	f.limiter, err = hierarchy.NewLimiter(hierarchy.LimiterConfig{Store: store, Clock: f.clock.now, Timeout: patience, Grace: grace})
	if err != nil {
		return err
	}
	err = f.hits(ctx, stage, func(now int64, user int) error {
		now -= now % second
		if now != f.clock.now().UnixNano() || len(f.due) == hierarchy.MaxHits {
			if err := f.send(ctx); err != nil {
				return err
			}
			f.clock.set(now)
		}
		f.due = append(f.due, hierarchy.Hit{Event: f.event, Features: f.features[user], Cost: 1})
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.send(ctx); err != nil {
		return err
	}
	return f.verify(ctx)
}

// send has the hits decided that are due.
func (f *filler) send(ctx context.Context) error {
	if len(f.due) == 0 {
		return nil
	}
	results, err := f.limiter.Hits(ctx, f.due)
	f.due = f.due[:0]
	if err != nil {
		return err
	}
	for _, r := range results {
		switch {
		case r.Err != nil:
			return r.Err
		case r.Decision.Unavailable:
			return fmt.Errorf("compare: memcached did not answer within %s", patience)
		case !r.Decision.Allowed:
			return errDenied
		}
	}
	return nil
}

// verified is how many of the users are looked at in the end.
const verified = 100

// verify is an error where a user has not used up the limit.
func (f *filler) verify(ctx context.Context) error {
	for i := 0; i < f.Users; i += max(f.Users/verified, 1) {
		d, err := f.limiter.Check(ctx, hierarchy.Hit{Event: f.event, Features: f.features[i], Cost: 1})
		switch {
		case err != nil:
			return err
		case d.Limits[0].Count != f.Limit.N || d.Allowed:
			return fmt.Errorf("compare: of %d hits %d are there", f.Limit.N, d.Limits[0].Count)
		}
	}
	return nil
}

// each returns the part of one user.
func (m *measurement) each(bytes int64) float64 { return float64(bytes) / float64(m.Users) }

// heap returns the bytes of this process's objects that are in use.
func heap() uint64 {
	// What finalizers and pools let go of is gone after the second time.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
