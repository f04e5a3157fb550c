package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/progress"
)

// runInPart is the part of a slice that precedes it unmeasured: it opens connections and
// fills caches.
const runInPart = 8

// Run measures the chosen rows. An error, work that was not done, or the end of the context
// ends it, as well as all child processes.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	if config.sizes == (sizes{}) {
		config.sizes = defaultSizes
	}
	config.Progress = progress.Or(config.Progress)
	began := time.Now()
	report := &Report{Machine: machineOf(ctx), Rounds: config.Rounds, Duration: config.Duration.String()}
	for _, name := range stages {
		var rows []*measurement
		for _, r := range config.chosen() {
			if r.stage == name {
				rows = append(rows, &measurement{row: r, costs: costs{}})
			}
		}
		if len(rows) == 0 {
			continue
		}
		if err := runStage(ctx, config, name, rows); err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
		for _, one := range rows {
			report.Rows = append(report.Rows, one.result(rows))
		}
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// measurement is what was measured of one row.
type measurement struct {
	row     row
	subject *subject
	rates   []float64 // operations a second, by round
	ops     int64     // of all rounds, as the costs
	costs   costs
}

// runStage measures the rows of a stage, and verifies their work. It measures all rows round by
// round, every second one backwards: no row always follows the same one, and compared rows
// stay near.
func runStage(ctx context.Context, config Config, name string, rows []*measurement) (err error) {
	s := newStage(config)
	defer func() { err = errors.Join(err, s.close()) }()
	config.Progress.Start(name+": preparing", len(rows))
	if err := s.open(ctx, name); err != nil {
		return err
	}
	for _, one := range rows {
		if one.subject, err = one.row.prepare(ctx, s, one.row); err != nil {
			return one.failed(err)
		}
		config.Progress.Add(1)
	}
	config.Progress.Start(name, len(rows)*config.Rounds)
	for round := range config.Rounds {
		for i := range rows {
			one := rows[i]
			if round%2 == 1 {
				one = rows[len(rows)-1-i]
			}
			if err := one.slice(ctx, config.Duration); err != nil {
				return one.failed(err)
			}
			config.Progress.Add(1)
		}
	}
	for _, one := range rows {
		if one.subject.verify == nil {
			continue
		}
		if err := one.subject.verify(ctx); err != nil {
			return one.failed(err)
		}
	}
	stats, err := memcached.Read(s.memcached())
	if err == nil && stats.Evictions > 0 {
		err = fmt.Errorf("bench: memcached was full and has evicted %d items", stats.Evictions)
	}
	return err
}

func (one *measurement) failed(err error) error {
	return fmt.Errorf("bench: %s, %s: %w", one.row.id, one.row.name, err)
}

// slice runs a row once.
func (one *measurement) slice(ctx context.Context, length time.Duration) (err error) {
	s := one.subject
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
	var before, after reading
	ops, elapsed, err := drive(ctx, steps, length, func() error {
		defer before.readSelf() // next to the slice
		return before.readOthers(s)
	})
	after.readSelf()
	if err := cmp.Or(err, after.readOthers(s)); err != nil {
		return err
	}
	if ops == 0 {
		return errors.New("nothing was done in a whole slice")
	}
	one.rates = append(one.rates, float64(ops)/elapsed.Seconds())
	one.ops += ops
	for name, cost := range after.since(before, s) {
		one.costs[name] += cost
	}
	return nil
}

// result returns the row of the report; the rows are all of its stage.
func (one *measurement) result(rows []*measurement) Row {
	out := Row{
		ID: one.row.id, Name: one.row.name, Callers: one.row.callers, PerSecond: spreadOf(one.rates), Operations: one.ops, Costs: costs{},
	}
	for name, cost := range one.costs {
		out.Costs[name] = cost / float64(one.ops)
	}
	for _, id := range one.row.against {
		for _, other := range rows {
			if other.row.id == id {
				out.Ratios = append(out.Ratios, Ratio{Against: id, Spread: ratios(one.rates, other.rates)})
			}
		}
	}
	return out
}
