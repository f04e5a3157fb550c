package replay

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/loadtest/accesslog"
)

const (
	// tolerance is how late an event may be without being called so.
	tolerance = 100 * time.Millisecond
	// lookout is how often it is said how long it still takes.
	lookout = time.Second
	// longest is the longest replay.
	longest = 1000 * 24 * time.Hour
)

// Takes returns how long the log takes at that speed.
func Takes(log *accesslog.Log, speed float64) time.Duration {
	if speed == 0 || len(log.Events) == 0 {
		return 0
	}
	return due(log.Events[0], log.Events[len(log.Events)-1], speed)
}

// CheckSpeed returns an error, which wraps ErrSpeed, if the log cannot be replayed at that
// speed.
func CheckSpeed(speed float64, log *accesslog.Log) error {
	switch {
	case !(speed >= 0 && speed <= math.MaxFloat64): // also what is no number
		return fmt.Errorf("%w: it is not 0 or more, and finite; 0 is as fast as possible", ErrSpeed)
	case Takes(log, speed) >= longest:
		return fmt.Errorf("%w: the log would take longer than %d days", ErrSpeed, longest/(24*time.Hour))
	}
	return nil
}

// due returns how long after the first event another one is sent, at most the longest.
func due(first, e accesslog.Event, speed float64) time.Duration {
	micros := float64(e.Micros-first.Micros) / speed
	return time.Duration(min(micros, float64(longest/time.Microsecond)) * float64(time.Microsecond))
}

// paced calls send for each event when it is due, however long the calls before take, as
// long as not too many are under way; then it waits for one of them to end.
func (r *run) paced(ctx context.Context, stage string, send func(ctx context.Context, i int) error) error {
	last := len(r.events) - 1
	r.Progress.Start(stage, len(r.events))
	begin := r.Clock()
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(r.Concurrency)
	for i, e := range r.events {
		at := begin.Add(due(r.events[0], e, r.Speed))
		if err := r.until(within, at, begin.Add(due(r.events[0], r.events[last], r.Speed))); err != nil {
			break
		}
		group.Go(func() error {
			if err := within.Err(); err != nil {
				return err
			}
			r.tardy(r.Clock().Sub(at))
			if err := send(within, i); err != nil {
				return err
			}
			r.Progress.Add(1)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// until waits for the moment, and says meanwhile how long it is to the end.
func (r *run) until(ctx context.Context, moment, end time.Time) error {
	for {
		now := r.Clock()
		if !now.Before(r.nextLook) {
			r.Progress.Left(max(0, end.Sub(now)))
			r.nextLook = now.Add(lookout)
		}
		wait := moment.Sub(now)
		if wait <= 0 {
			return ctx.Err()
		}
		if err := sleep(ctx, min(wait, r.nextLook.Sub(now))); err != nil {
			return err
		}
	}
}

// tardy notes how late an event is.
func (r *run) tardy(by time.Duration) {
	if by <= tolerance {
		return
	}
	r.note(func(result *Result) {
		result.Late++
		result.Latest = max(result.Latest, by.Seconds())
	})
}
