package replay

import (
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
type fate uint8

const (
	unsent fate = iota
	counted
	tooOld
	unknown // it may have been counted, or not
)

// increment sends all events, and makes the exact log of the events that the server
// has acknowledged.
func (r *run) increment(ctx context.Context) error {
	const stage = "incrementing"
	fates := make([]fate, len(r.events))
	send := func(ctx context.Context, i int) (err error) {
		fates[i], err = r.incrementOne(ctx, r.events[i])
		return err
	}
	begin := r.Clock()
	err := r.forEach(ctx, stage, len(r.events), r.Concurrency, send)
	r.tally(fates, r.Clock().Sub(begin))
	if err != nil {
		return fmt.Errorf("replay: incrementing: %w", err)
	}
	return nil
}

// tally makes the exact log.
func (r *run) tally(fates []fate, elapsed time.Duration) {
	r.oracle = newOracle(len(r.roster.counters))
	r.seconds = make([]int64, 0, len(fates))
	for i, e := range r.events { // in the order of time
		counters := r.roster.actors[e.Actor].counters
		switch fates[i] {
		case counted:
			r.oracle.add(counters, r.second(e))
			r.seconds = append(r.seconds, r.second(e))
			r.result.Events++
		case tooOld:
			r.result.Skipped++
		case unknown:
			r.oracle.doubt(counters)
			r.result.Failed++
		}
	}
	r.result.Counters, r.result.Unsure = r.oracle.counters()
	r.result.Seconds = elapsed.Seconds()
	r.result.EventsPerSecond = perSecond(r.result.Events, elapsed)
}

// incrementOne sends an event at its own time.
func (r *run) incrementOne(ctx context.Context, e accesslog.Event) (fate, error) {
	second := r.second(e)
	done, err := r.Client.Increment(ctx, r.Event, r.log.Actors[e.Actor], 1, time.Unix(second, 0))
	switch {
	case err == nil:
		return counted, r.acknowledges(done, e, second)
	// The server's clock may be ahead by a second.
	case errors.Is(err, client.ErrInvalid) && second <= r.now()-r.retention+1:
		return tooOld, nil
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnknown):
		return unsent, err
	case ctx.Err() != nil:
		return unknown, ctx.Err()
	}
	return unknown, r.failed(err)
}

// acknowledges checks that the server says it has counted the event, once, and in its second.
func (r *run) acknowledges(done wire.Incremented, e accesslog.Event, second int64) error {
	for _, counter := range r.roster.actors[e.Actor].counters {
		if !slices.Contains(done.Counters, r.roster.counters[counter].feature) {
			return fmt.Errorf("%w: an increment did not go to the counters that its rules name", ErrContract)
		}
	}
	if done.Event != r.Event || done.By != 1 || done.At.Unix() != second {
		return fmt.Errorf("%w: it answered an increment with another event, number or moment", ErrContract)
	}
	return nil
}
