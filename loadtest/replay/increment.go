package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/accesslog"
)

// fate is what became of an event.
type fate struct {
	outcome outcome
	second  int64 // in which it was counted, or was to be
}

type outcome uint8

const (
	unsent outcome = iota
	counted
	tooOld
	unknown // it may have been counted, or not
)

// increment sends all events, and makes the exact log of those that the server
// has acknowledged.
func (r *run) increment(ctx context.Context) error {
	const stage = "incrementing"
	fates := make([]fate, len(r.events))
	send := func(ctx context.Context, i int) (err error) {
		fates[i], err = r.incrementOne(ctx, r.events[i])
		return err
	}
	begin := r.Clock()
	var err error
	if r.Speed > 0 {
		err = r.paced(ctx, stage, send)
	} else {
		err = r.forEach(ctx, stage, len(r.events), r.Concurrency, send)
	}
	r.tally(fates, r.Clock().Sub(begin))
	if err != nil {
		return fmt.Errorf("replay: incrementing: %w", err)
	}
	return nil
}

// tally makes the exact log.
func (r *run) tally(fates []fate, elapsed time.Duration) {
	order := make([]int, len(fates))
	for i := range order {
		order[i] = i
	}
	// Without a speed they are in order already.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fates[a].second, fates[b].second) })
	r.oracle = newOracle(len(r.roster.counters))
	r.seconds = make([]int64, 0, len(fates))
	for _, i := range order {
		counters := r.roster.actors[r.events[i].Actor].counters
		switch fates[i].outcome {
		case counted:
			r.oracle.add(counters, fates[i].second)
			r.seconds = append(r.seconds, fates[i].second)
			r.result.Events++
		case tooOld:
			r.result.Skipped++
		case unknown:
			r.oracle.doubt(counters)
			r.result.Failed++
		}
	}
	if n := len(r.seconds); n > 0 && r.Speed > 0 {
		r.end = r.seconds[n-1]
	}
	r.result.Counters, r.result.Unsure = r.oracle.counters()
	r.result.Seconds = elapsed.Seconds()
	r.result.EventsPerSecond = perSecond(r.result.Events, elapsed)
}

// incrementOne sends an event, at its own time; or, where there is a speed, at that of the
// server.
func (r *run) incrementOne(ctx context.Context, e accesslog.Event) (fate, error) {
	second, at := r.second(e), time.Unix(r.second(e), 0)
	if r.Speed > 0 {
		second, at = r.now(), time.Time{}
	}
	done, err := r.Client.Increment(ctx, r.Event, r.log.Actors[e.Actor], 1, at)
	switch {
	case err == nil && r.Speed > 0:
		return fate{counted, done.At.Unix()}, r.acknowledges(done, e, second-1, r.now()+1)
	case err == nil:
		return fate{counted, second}, r.acknowledges(done, e, second, second)
	// The server's clock may be ahead by a second.
	case errors.Is(err, client.ErrInvalid) && r.Speed == 0 && second <= r.now()-r.retention+1:
		return fate{tooOld, second}, nil
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnknown):
		return fate{unsent, second}, err
	case ctx.Err() != nil:
		return fate{unknown, second}, ctx.Err()
	}
	return fate{unknown, second}, r.failed(err)
}

// acknowledges checks that the server says it has counted the event, once, where
// it was told to, and in one of the seconds from first to last.
func (r *run) acknowledges(done wire.Incremented, e accesslog.Event, first, last int64) error {
	for _, counter := range r.roster.actors[e.Actor].counters {
		if !slices.Contains(done.Counters, r.roster.counters[counter].feature) {
			return fmt.Errorf("%w: an increment did not go to the counters that its rules name", ErrContract)
		}
	}
	if at := done.At.Unix(); done.Event != r.Event || done.By != 1 || at < first || at > last {
		return fmt.Errorf("%w: it answered an increment with another event, number or moment", ErrContract)
	}
	return nil
}
