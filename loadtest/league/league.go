package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Config says how long and how much the contenders are measured.
type Config struct {
	Seed      uint64
	Limits    []Limit       // for exactness; the first one is for retries, bytes and speed, too
	Length    time.Duration // of the traffic for exactness
	Features  []int         // of each limit, that hit in each of the ways
	Retriers  int           // features that follow retry_after
	Users     int           // for bytes
	UserHits  int
	Settle    time.Duration // of the buffers of idle callers, before bytes are counted
	Rounds    int           // for speed; 0: it is not measured
	Slice     time.Duration
	Progress  io.Writer
	alignedTo time.Duration // traffic begins a quarter of it before its multiple
}

// Row is what was found of a contender.
type Row struct {
	Contender
	Judgments map[string]Judgment // by limit
	Retries   Retries
	Bytes     float64
	Rates     []float64 // hits a second, of each round
	Fault     error     // the first error of a hit, or why it did not start
	started   bool
}

// run measures all contenders, and returns a row for each.
func run(ctx context.Context, config Config, contenders []Contender) ([]*Row, error) {
	say := func(format string, args ...any) { fmt.Fprintf(config.Progress, format+"\n", args...) }
	fleets := map[*Row]*Fleet{}
	defer func() {
		for _, f := range fleets {
			if err := f.Close(); err != nil {
				say("closing: %v", err)
			}
		}
	}()
	var rows, started []*Row
	for _, c := range contenders {
		row := &Row{Contender: c}
		rows = append(rows, row)
		if c.Missing != "" {
			continue
		}
		say("starting %s", c.Name)
		f, err := c.Start(ctx, config.Limits)
		if err != nil {
			row.Fault = err
			continue
		}
		fleets[row], row.started = f, true
		started = append(started, row)
	}
	note := func(row *Row, err error) { row.Fault = cmp.Or(row.Fault, err) }

	for _, row := range started {
		if config.Users == 0 || ctx.Err() != nil {
			break
		}
		say("bytes a user: %s", row.Name)
		// Counters of fixed windows are replaced at their turn.
		limit := config.Limits[0]
		rest := limit.Window - time.Duration(time.Now().UnixNano()%int64(limit.Window))
		if rest < limit.Window/3 {
			time.Sleep(rest)
		}
		bytes, err := bytesOfUsers(ctx, fleets[row], limit, config.Users, config.UserHits, config.Settle)
		row.Bytes = bytes
		note(row, err)
	}

	random := rand.New(rand.NewPCG(config.Seed, 0))
	for round := range config.Rounds {
		say("hits a second: round %d of %d", round+1, config.Rounds)
		for _, i := range random.Perm(len(started)) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			rate, err := speed(ctx, fleets[started[i]], config.Limits[0], config.Slice)
			started[i].Rates = append(started[i].Rates, rate)
			note(started[i], err)
		}
	}

	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	start := time.Now().Add(time.Second).Truncate(config.alignedTo).Add(config.alignedTo * 3 / 4)
	if time.Until(start) < time.Second {
		start = start.Add(config.alignedTo)
	}
	say("exactness and retry_after of all, from %s for %s", start.Format(time.TimeOnly), config.Length)
	var group sync.WaitGroup
	for i, row := range started {
		// A little after one another, so that they do not all have their bursts at once.
		start := start.Add(time.Duration(i) * 250 * time.Millisecond)
		var traffic []arrival
		for i, l := range config.Limits {
			traffic = merged(traffic, schedule(config.Seed, l, start, config.Length, config.Features[i]))
		}
		group.Go(func() {
			calls, err := drive(ctx, fleets[row], start, traffic)
			if calls != nil {
				row.Judgments = judgeAll(row.Promise, traffic, calls)
			}
			note(row, err)
		})
		group.Go(func() {
			sleepUntil(ctx, start, start.Add(config.Length))
			row.Retries = retry(ctx, fleets[row], config.Limits[0], config.Seed, config.Retriers, start.Add(config.Length))
		})
	}
	group.Wait()
	return rows, ctx.Err()
}

// median returns the one in the middle, or the mean of two.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// ratios returns the rates of each round in parts of another contender's rate in the same round.
func ratios(of, to []float64) (all []float64) {
	for i := range min(len(of), len(to)) {
		all = append(all, of[i]/to[i])
	}
	return all
}
