package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/counterd/counterd/loadtest/process"
)

// runIn is the part of a slice that goes ahead of it and is not measured: what opens
// connections and fills caches is no part of a steady pace.
const runIn = 8

// Run measures the rows that the config wants. An error in any of them, or work that
// was not done, ends it; so do all processes that it has started. When the context ends
// the report is of the rounds that were over by then; where there are none, the error is
// the context's.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	rows := choose(allRows(), config.wants)
	if config.Progress == nil {
		config.Progress = noProgress{}
	}
	if config.sizes == (sizes{}) {
		config.sizes = theSizes
	}
	m := &measurements{config: config, of: map[string]*measurement{}}
	for _, r := range rows {
		m.of[r.id] = &measurement{row: r}
	}
	began := time.Now()
	for _, name := range []string{stageHits, stageHTTP, stageCounts, stagePure} {
		var here []*measurement
		for _, r := range rows {
			if r.stage == name {
				here = append(here, m.of[r.id])
			}
		}
		if len(here) == 0 {
			continue
		}
		if err := m.runStage(ctx, name, here); err != nil && !ended(ctx, err) {
			return nil, err
		}
		if ctx.Err() != nil {
			break
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

// Estimate returns about how long a run takes.
func (c Config) Estimate() time.Duration {
	slices := 0
	for _, r := range choose(allRows(), c.wants) {
		slices++
		if r.halfOf != "" {
			slices += openTurns - 1
		}
	}
	const between = 60 * time.Millisecond
	return time.Duration(slices*c.Rounds) * (c.Duration + c.Duration/runIn + between)
}

// measurement is what was measured of one row.
type measurement struct {
	row     row
	subject *subject
	rates   []float64 // operations a second, by round
	total   usage
	open    []arrivals // of a row in the open model, by round
	arrive  float64    // its arrivals a second
}

type measurements struct {
	config Config
	of     map[string]*measurement
}

// runStage measures the rows of a stage: those that run as fast as they can, and
// then, since their rate depends on that, those in the open model. What was done until the
// context ends is looked at as all that was done is.
func (m *measurements) runStage(ctx context.Context, name string, rows []*measurement) (err error) {
	s := newStage(m.config)
	defer func() { err = errors.Join(err, s.close()) }()
	m.config.Progress.Start(name+": getting ready", len(rows))
	for _, one := range rows {
		if one.subject, err = one.row.prepare(ctx, s, one.row); err != nil {
			return m.failed(ctx, one, err)
		}
		m.config.Progress.Add(1)
	}
	var closed, open []*measurement
	for _, one := range rows {
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
			return m.failed(whole, one, err)
		}
	}
	if s.shared == nil {
		return nil
	}
	stats, err := s.shared.Stats()
	if err == nil && stats.Evictions > 0 {
		err = fmt.Errorf("bench: memcached was full and has dropped %d items", stats.Evictions)
	}
	return err
}

// takeTurns measures all rows round by round, and each second time in the opposite
// order: so none has always the same one ahead of it, and compared rows stay near.
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
				return m.failed(ctx, one, err)
			}
			m.config.Progress.Add(1)
		}
	}
	return nil
}

// evenOut leaves to rows that take turns the rounds that all of them have had: a ratio is that
// of two slices of one round.
func evenOut(rows []*measurement) {
	rounds := math.MaxInt
	for _, one := range rows {
		rounds = min(rounds, len(one.rates))
	}
	for _, one := range rows {
		one.rates, one.open = one.rates[:rounds], one.open[:min(rounds, len(one.open))]
	}
}

func (m *measurements) failed(ctx context.Context, one *measurement, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("bench: %s, %s: %w", one.row.id, one.row.name, err)
}

// begin makes a row ready for a slice: its run-in is over, and no rubbish of others
// is left for it to clear away.
func (m *measurements) begin(ctx context.Context, one *measurement) ([]step, error) {
	if one.subject.before != nil {
		if err := one.subject.before(); err != nil {
			return nil, err
		}
	}
	steps, err := one.subject.steps()
	if err != nil {
		return nil, err
	}
	runtime.GC()
	_, _, err = drive(ctx, steps, m.config.Duration/runIn, func() error { return nil })
	return steps, err
}

// slice lets a row run once, as fast as it can.
func (m *measurements) slice(ctx context.Context, one *measurement) error {
	steps, err := m.begin(ctx, one)
	if err != nil {
		return err
	}
	reader := reader{subject: one.subject}
	ops, elapsed, err := drive(ctx, steps, m.config.Duration, reader.begin)
	if err != nil {
		return err
	}
	return one.end(&reader, ops, elapsed)
}

// openSlice lets requests arrive for a while, at the row's rate.
func (m *measurements) openSlice(ctx context.Context, one *measurement) error {
	steps, err := m.begin(ctx, one)
	if err != nil {
		return err
	}
	one.arrive = spreadOf(m.of[one.row.halfOf].rates).Median / 2
	n := max(int(math.Round(one.arrive*m.config.Duration.Seconds())), 1)
	reader := reader{subject: one.subject}
	if err := reader.begin(); err != nil {
		return err
	}
	a, err := open(ctx, steps, one.arrive, n, process.Sleep)
	if err != nil {
		return err
	}
	one.open = append(one.open, a)
	return one.end(&reader, int64(n), a.elapsed)
}

// end adds what a slice took to the row's.
func (one *measurement) end(reader *reader, ops int64, elapsed time.Duration) error {
	took, err := reader.end()
	if err != nil {
		return err
	}
	if ops == 0 {
		return errors.New("nothing was done in a whole slice")
	}
	took.ops, took.elapsed = ops, elapsed
	one.rates = append(one.rates, took.rate())
	one.total = one.total.plus(took)
	return nil
}

// p99s returns the row's p99 of each round.
func (one *measurement) p99s() []float64 {
	lists := make([][]time.Duration, len(one.open))
	for i, a := range one.open {
		lists[i] = a.latencies
	}
	return percentiles(lists, 0.99)
}

// report makes a report of what was measured, in a round at least.
func (m *measurements) report(rows []row) *Report {
	r := &Report{Rounds: m.config.Rounds, Duration: m.config.Duration.String(), Wanted: len(rows)}
	for _, row := range rows {
		if len(m.of[row.id].rates) > 0 {
			r.Rows = append(r.Rows, m.result(m.of[row.id]))
		}
	}
	r.Targets = targetsOf(r)
	return r
}

func (m *measurements) result(one *measurement) Row {
	u := one.total
	out := Row{
		ID: one.row.id, Name: one.row.name, Callers: one.row.callers, PerSecond: spreadOf(one.rates), Operations: u.ops,
		ClientCPU: microseconds(u, u.client),
	}
	for _, id := range one.row.against {
		other := m.of[id]
		ratio := Ratio{Against: id, Of: "operations/s", Spread: ratios(one.rates, other.rates)}
		if one.open != nil {
			ratio.Of, ratio.Spread = "p99", ratios(one.p99s(), other.p99s())
		}
		out.Ratios = append(out.Ratios, ratio)
	}
	if one.open != nil {
		latency := latencyOf(one.arrive, one.open)
		out.Latency = &latency
	}
	if process.Known {
		calls := u.clientCalls
		if one.subject.server != nil {
			calls = u.serverCalls
		}
		out.Calls = new(u.each(calls))
	}
	if one.subject.counted != nil {
		out.Trips, out.Adds, out.Reads = new(u.each(u.trips)), new(u.each(u.adds)), new(u.each(u.reads))
	}
	if one.subject.memcached != nil {
		if one.subject.counted == nil {
			out.Adds, out.Reads = new(u.each(u.stats.Adds)), new(u.each(u.stats.Gets))
		}
		out.Bytes = new(u.each(u.stats.Bytes))
		out.MemcachedCPU = new(float64(u.stats.CPU.Nanoseconds()) / 1e3 / float64(u.ops))
	}
	if one.subject.server != nil {
		out.ServerCPU = microseconds(u, u.server)
	}
	if one.subject.inProcess {
		out.Allocs = new(u.each(u.mallocs))
	}
	return out
}

// microseconds returns the CPU time of an operation; nil where it is not known.
func microseconds(u usage, cpu time.Duration) *float64 {
	if !process.Known {
		return nil
	}
	return new(float64(cpu.Nanoseconds()) / 1e3 / float64(u.ops))
}
