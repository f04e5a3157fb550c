package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/progress"
)

// runInPart is the part of a slice that precedes it unmeasured: it opens connections and
// fills caches.
const runInPart = 8

// Run measures the chosen rows. An error, or work that was not done, ends it, as well as all
// child processes. When the context ends, the report has the rounds that are over; without
// any, the error is the context's.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	if config.sizes == (sizes{}) {
		config.sizes = defaultSizes
	}
	config.Progress = progress.Or(config.Progress)
	m := &measurements{config: config, of: map[string]*measurement{}}
	stages := map[string][]*measurement{}
	rows := config.chosen()
	for _, r := range rows {
		m.of[r.id] = &measurement{row: r}
		stages[r.stage] = append(stages[r.stage], m.of[r.id])
	}
	began := time.Now()
	for _, name := range []string{stageHits, stageHTTP, stageCounts} {
		if len(stages[name]) == 0 || ctx.Err() != nil {
			continue
		}
		if err := m.runStage(ctx, name, stages[name]); err != nil && !ended(ctx, err) {
			return nil, err
		}
	}
	report := &Report{Rounds: config.Rounds, Duration: config.Duration.String(), Wanted: len(rows), Interrupted: ctx.Err() != nil}
	for _, r := range rows {
		if one := m.of[r.id]; len(one.rates) > 0 {
			report.Rows = append(report.Rows, m.result(one))
		}
	}
	if report.Interrupted && len(report.Rows) == 0 {
		return nil, ctx.Err()
	}
	report.Machine = machineOf(context.WithoutCancel(ctx))
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// ended reports whether an error is the end of the context.
func ended(ctx context.Context, err error) bool { return ctx.Err() != nil && errors.Is(err, ctx.Err()) }

type measurements struct {
	config Config
	of     map[string]*measurement
}

// measurement is what was measured of one row.
type measurement struct {
	row     row
	subject *subject
	rates   []float64 // operations a second, by round
	total   usage
	open    []arrivals // in the open model, by round
	arrive  float64    // arrivals a second
}

// runStage measures the rows of a stage: the closed ones, as fast as they can, then those in
// the open model, whose rate depends on them. It verifies all finished work, also after an
// interrupt.
func (m *measurements) runStage(ctx context.Context, name string, rows []*measurement) (err error) {
	s := newStage(m.config)
	defer func() { err = errors.Join(err, s.close()) }()
	m.config.Progress.Start(name+": preparing", len(rows))
	if err := s.open(ctx, name); err != nil {
		return err
	}
	var closed, open []*measurement
	for _, one := range rows {
		if one.subject, err = one.row.prepare(ctx, s, one.row); err != nil {
			return one.failed(ctx, err)
		}
		m.config.Progress.Add(1)
		if one.row.halfOf == "" {
			closed = append(closed, one)
		} else {
			open = append(open, one)
		}
	}
	err = m.takeTurns(ctx, name, closed, m.config.Rounds)
	if err == nil {
		err = m.takeTurns(ctx, name+", open model", open, openTurns*m.config.Rounds)
	}
	if err != nil && !ended(ctx, err) {
		return err
	}
	whole := context.WithoutCancel(ctx)
	for _, one := range rows {
		if one.subject.verify == nil || len(one.rates) == 0 {
			continue
		}
		if err := one.subject.verify(whole); err != nil {
			return one.failed(whole, err)
		}
	}
	stats, err := memcached.Read(s.memcached())
	if err == nil && stats.Evictions > 0 {
		err = fmt.Errorf("bench: memcached was full and has evicted %d items", stats.Evictions)
	}
	return err
}

// takeTurns measures all rows round by round, every second one backwards: no row always
// follows the same one, and compared rows stay near. It keeps the rounds that all rows have
// had: a ratio is that of two slices of a round.
func (m *measurements) takeTurns(ctx context.Context, name string, rows []*measurement, rounds int) error {
	if len(rows) == 0 {
		return nil
	}
	defer evenOut(rows)
	m.config.Progress.Start(name, len(rows)*rounds)
	for round := range rounds {
		for i := range rows {
			one := rows[i]
			if round%2 == 1 {
				one = rows[len(rows)-1-i]
			}
			if err := m.slice(ctx, one); err != nil {
				return one.failed(ctx, err)
			}
			m.config.Progress.Add(1)
		}
	}
	return nil
}

// evenOut keeps the rounds that all rows have had.
func evenOut(rows []*measurement) {
	rounds := math.MaxInt
	for _, one := range rows {
		rounds = min(rounds, len(one.rates))
	}
	for _, one := range rows {
		one.rates, one.open = one.rates[:rounds], one.open[:min(rounds, len(one.open))]
	}
}

func (one *measurement) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("bench: %s, %s: %w", one.row.id, one.row.name, err)
}

// slice runs a row once: as fast as it can, or in the open model.
func (m *measurements) slice(ctx context.Context, one *measurement) (err error) {
	s, length := one.subject, m.config.Duration
	if s.end != nil {
		defer func() { err = errors.Join(err, s.end()) }()
	}
	steps, err := s.begin()
	if err != nil {
		return err
	}
	runtime.GC() // of the garbage of other rows
	if _, _, err := drive(ctx, steps, length/runInPart, func() error { return nil }); err != nil {
		return err
	}
	var (
		before, after reading
		done          int64
		elapsed       time.Duration
	)
	begin := func() error {
		defer before.readSelf() // next to the slice
		return before.readOthers(s)
	}
	if one.row.halfOf == "" {
		done, elapsed, err = drive(ctx, steps, length, begin)
	} else if err = begin(); err == nil {
		one.arrive = spreadOf(m.of[one.row.halfOf].rates).Median / 2
		done = max(int64(math.Round(one.arrive*length.Seconds())), 1)
		var a arrivals
		if a, err = open(ctx, steps, one.arrive, int(done), process.Sleep); err == nil {
			one.open, elapsed = append(one.open, a), a.elapsed
		}
	}
	if err == nil {
		after.readSelf()
		err = after.readOthers(s)
	}
	if err == nil && done == 0 {
		err = errors.New("nothing was done in a whole slice")
	}
	if err != nil {
		return err
	}
	took := after.since(before, s)
	took[ops], took[elapsedTime] = done, int64(elapsed)
	one.rates = append(one.rates, took.rate())
	one.total.add(took)
	return nil
}

// result returns the row of the report.
func (m *measurements) result(one *measurement) Row {
	u, s := &one.total, one.subject
	out := Row{ID: one.row.id, Name: one.row.name, Callers: one.row.callers, PerSecond: spreadOf(one.rates), Operations: u[ops]}
	figure := func(known bool, of int, divisor float64) *float64 {
		if !known {
			return nil
		}
		return new(u.each(of) / divisor)
	}
	const count, microseconds = 1, 1e3
	stored := s.memcached != ""
	out.Trips = figure(s.asked != nil, trips, count)
	out.Adds = figure(stored, adds, count)
	out.Reads = figure(stored, reads, count)
	out.Bytes = figure(stored, memcachedBytes, count)
	out.ClientCPU = figure(process.Known, clientCPU, microseconds)
	out.ServerCPU = figure(process.Known && s.server != nil, serverCPU, microseconds)
	out.MemcachedCPU = figure(stored, memcachedCPU, microseconds)
	out.Allocs = figure(s.server == nil, clientMallocs, count)
	for _, id := range one.row.against {
		other := m.of[id]
		ratio := Ratio{Against: id, Of: "operations/s", Spread: ratios(one.rates, other.rates)}
		if one.open != nil {
			ratio.Of, ratio.Spread = "p99", ratios(p99s(one.open), p99s(other.open))
		}
		out.Ratios = append(out.Ratios, ratio)
	}
	if one.open != nil {
		out.Latency = new(latencyOf(one.arrive, one.open))
	}
	return out
}
