package bench

import (
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

func logRows() []row {
	hit := func(before int) func(context.Context, *stage, row) (*subject, error) {
		return hits{day: int64(before + 100), before: before}.prepareLogs
	}
	return []row{
		{id: "A15", name: "Hit, sliding log of up to 48 events", callers: 16, prepare: hit(48), against: []string{"A3"}},
		{id: "A16", name: "Hit near a limit, sliding log of 500 events", callers: 16, prepare: hit(500), against: []string{"A3", "A9"}},
		{id: "A17", name: "Hit, sliding log of 2,000 events", callers: 16, prepare: hit(2000), against: []string{"A3"}},
		{id: "A18", name: "Hit, sliding log of 500 events, 1 caller", callers: 1, prepare: hit(500), against: []string{"A4"}},
		{id: "A19", name: "First denial, 142 buckets there", callers: 16, prepare: prepareDenials},
		{
			id: "A20", name: "First denial, sliding log of 142 events", callers: 16, against: []string{"A19"},
			prepare: hits{day: 142 - phases, before: 142, denied: true, first: true}.prepareLogs,
		},
	}
}

// phases is how many logs of one row differ: a log is rewritten about once in so many hits, and not
// all are at the same time.
const phases = 48

// prepareLogs prepares hits on logs. Each slice begins with the same ones: a log fills, in more than ten
// seconds.
func (h hits) prepareLogs(ctx context.Context, s *stage, r row) (*subject, error) {
	kept, trips, err := s.store(ctx, s.now, s.config.sizes.timeout)
	if err == nil {
		err = h.open(kept, s, r)
	}
	if err != nil {
		return nil, err
	}
	callers := r.each(h.caller)
	return &subject{trips: trips, memcached: s.memcached(), verify: h.verify, begin: func() ([]step, error) {
		if err := h.renew(ctx, kept, s.now()); err != nil {
			return nil, err
		}
		return callers()
	}}, nil
}

// renew writes the logs of all counters, up to phases events shorter than the longest.
func (h *hits) renew(ctx context.Context, kept store.Store, now time.Time) error {
	counter, err := h.event.Counter(h.features[0])
	if err != nil {
		return err
	}
	var times []time.Time
	for i := range h.before - phases {
		times = append(times, now.Add(-23*time.Hour*time.Duration(h.before-i)/time.Duration(h.before)))
	}
	for i := range phases { // the last one just now: no log has to live for longer
		times = append(times, now.Add(time.Duration(i-phases)*time.Second))
	}
	logs, err := logsOf(ctx, counter, times)
	if err != nil {
		return err
	}
	logs = logs[len(logs)-phases:]
	return eachOf(ctx, h.features, func(ctx context.Context, i int, features events.Features) error {
		counter, err := h.event.Counter(features)
		if err != nil {
			return err
		}
		log := i % phases
		h.admitted[i].Store(int64(h.before - phases + log + 1))
		return writeLog(ctx, kept, counter.ID(), logs[log])
	})
}

// logsOf returns what a counter's log is after each of its events.
func logsOf(ctx context.Context, counter events.Counter, times []time.Time) (logs [][]byte, err error) {
	var now time.Time
	clock := func() time.Time { return now }
	kept := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	counters, err := eventlog.New(engine.Base{Store: kept, Clock: clock, Grace: hierarchy.DefaultGrace, Changes: new(engine.Changes)})
	if err != nil {
		return nil, err
	}
	for _, now = range times {
		if _, err := counters.Increment(ctx, 1, time.Time{}, counter); err != nil {
			return nil, err
		}
		op := store.Op{Counter: counter.ID(), Data: true, Reads: []store.Read{{Item: eventlog.Item()}}}
		kept.Do(ctx, &op)
		if op.Err != nil {
			return nil, op.Err
		}
		logs = append(logs, slices.Clone(op.Reads[0].Data))
	}
	return logs, nil
}

// writeLog makes that the log of a counter.
func writeLog(ctx context.Context, kept store.Store, counter string, log []byte) error {
	for _, op := range []store.Op{
		{Counter: counter, Writes: []store.Write{{Kind: store.Delete, Item: eventlog.Item()}}},
		{Counter: counter, Data: true, Writes: []store.Write{{Kind: store.Create, Item: eventlog.Item(), Data: log, Expires: opened.Add(48 * time.Hour).Unix()}}},
	} {
		if kept.Do(ctx, &op); op.Err != nil {
			return op.Err
		}
	}
	return nil
}

// prepareDenials prepares hits on counters that are full, and have all the buckets of a day.
func prepareDenials(ctx context.Context, s *stage, r row) (*subject, error) {
	full := hits{denied: true, first: true}
	var buckets []uint64
	for bucket := range hierarchy.CoverOf(hierarchy.WindowAt(opened, 24*time.Hour), hierarchy.Second, hierarchy.Day).Buckets() {
		for level := range hierarchy.Day + 1 {
			buckets = append(buckets, hierarchy.BucketAt(level, bucket.First()).ID())
		}
		full.day++
	}
	return full.prepareWith(ctx, s, r, func(h *hits) error {
		counters, err := countersOf(r.eventName(), len(h.features))
		for i := range h.features {
			h.admitted[i].Store(h.day)
		}
		if err != nil {
			return err
		}
		return s.fill(ctx, counters, buckets)
	})
}
