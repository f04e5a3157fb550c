package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

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
	report := m.report(rows)
	if report.Interrupted = ctx.Err() != nil; report.Interrupted && len(report.Rows) == 0 {
		return nil, ctx.Err()
	}
	report.Machine = machineOf(context.WithoutCancel(ctx), config)
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
	err = m.takeTurns(ctx, name, closed, m.config.Rounds, m.slice)
	if err == nil {
		err = m.takeTurns(ctx, name+", open model", open, openTurns*m.config.Rounds, m.openSlice)
	}
	if err != nil && !ended(ctx, err) {
		return err
	}
	evenOut(closed)
	evenOut(open)
	whole := context.WithoutCancel(ctx)
	for _, one := range rows {
		if one.subject.verify == nil || len(one.rates) == 0 {
			continue
		}
		if err := one.subject.verify(whole); err != nil {
			return one.failed(whole, err)
		}
	}
	stats, err := s.shared.Stats()
	if err == nil && stats.Evictions > 0 {
		err = fmt.Errorf("bench: memcached was full and has evicted %d items", stats.Evictions)
	}
	return err
}

// takeTurns measures all rows round by round, every second one backwards: no row always
// follows the same one, and compared rows stay near.
func (m *measurements) takeTurns(ctx context.Context, name string, rows []*measurement, rounds int, slice func(context.Context, *measurement) error) error {
	if len(rows) == 0 {
		return nil
	}
	m.config.Progress.Start(name, len(rows)*rounds)
	for round := range rounds {
		for i := range rows {
			one := rows[i]
			if round%2 == 1 {
				one = rows[len(rows)-1-i]
			}
			err := slice(ctx, one)
			if one.subject.after != nil {
				err = errors.Join(err, one.subject.after())
			}
			if err != nil {
				return one.failed(ctx, err)
			}
			m.config.Progress.Add(1)
		}
	}
	return nil
}

// evenOut keeps the rounds that all rows have had: a ratio is that of two slices of a round.
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

// runIn prepares a slice, collects the garbage of other rows, and lets the steps run in.
func (m *measurements) runIn(ctx context.Context, one *measurement) ([]step, error) {
	if one.subject.before != nil {
		if err := one.subject.before(); err != nil {
			return nil, err
		}
	}
	steps := one.subject.steps()
	runtime.GC()
	_, _, err := drive(ctx, steps, m.config.Duration/runInPart, func() error { return nil })
	return steps, err
}

// slice runs a row once, as fast as it can.
func (m *measurements) slice(ctx context.Context, one *measurement) error {
	steps, err := m.runIn(ctx, one)
	if err != nil {
		return err
	}
	return one.account(func(begin func() error) (int64, time.Duration, error) {
		return drive(ctx, steps, m.config.Duration, begin)
	})
}

// openSlice runs a row once in the open model.
func (m *measurements) openSlice(ctx context.Context, one *measurement) error {
	steps, err := m.runIn(ctx, one)
	if err != nil {
		return err
	}
	one.arrive = spreadOf(m.of[one.row.halfOf].rates).Median / 2
	n := max(int(math.Round(one.arrive*m.config.Duration.Seconds())), 1)
	return one.account(func(begin func() error) (int64, time.Duration, error) {
		if err := begin(); err != nil {
			return 0, 0, err
		}
		a, err := open(ctx, steps, one.arrive, n, process.Sleep)
		if err == nil {
			one.open = append(one.open, a)
		}
		return int64(n), a.elapsed, err
	})
}

// account runs a slice, and adds its cost to the row's.
func (one *measurement) account(slice func(begin func() error) (int64, time.Duration, error)) error {
	var before, after usage
	done, elapsed, err := slice(func() error {
		return errors.Join(before.readOthers(one.subject), before.readSelf())
	})
	if err != nil {
		return err
	}
	if err := errors.Join(after.readSelf(), after.readOthers(one.subject)); err != nil {
		return err
	}
	if done == 0 {
		return errors.New("nothing was done in a whole slice")
	}
	after.add(before, -1)
	after[ops], after[elapsedTime] = done, int64(elapsed)
	one.rates = append(one.rates, after.rate())
	one.total.add(after, 1)
	return nil
}

// report returns the rows that had a round.
func (m *measurements) report(rows []row) *Report {
	r := &Report{Rounds: m.config.Rounds, Duration: m.config.Duration.String(), Wanted: len(rows)}
	for _, row := range rows {
		if one := m.of[row.id]; len(one.rates) > 0 {
			r.Rows = append(r.Rows, m.result(one))
		}
	}
	return r
}

func (m *measurements) result(one *measurement) Row {
	u, s := &one.total, one.subject
	out := Row{ID: one.row.id, Name: one.row.name, Callers: one.row.callers, PerSecond: spreadOf(one.rates), Operations: u[ops]}
	figure := func(to **float64, known bool, of int, divisor float64) {
		if known {
			*to = new(u.each(of) / divisor)
		}
	}
	const count, microseconds = 1, 1e3
	figure(&out.Trips, s.counted != nil, trips, count)
	figure(&out.Adds, s.memcached != nil, memcachedAdds, count)
	figure(&out.Reads, s.memcached != nil, memcachedGets, count)
	figure(&out.Adds, s.counted != nil, adds, count)
	figure(&out.Reads, s.counted != nil, reads, count)
	figure(&out.Bytes, s.memcached != nil, memcachedBytes, count)
	figure(&out.ClientCPU, process.Known, clientCPU, microseconds)
	figure(&out.ServerCPU, process.Known && s.server != nil, serverCPU, microseconds)
	figure(&out.MemcachedCPU, s.memcached != nil, memcachedCPU, microseconds)
	figure(&out.Allocs, s.server == nil, clientMallocs, count)
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
