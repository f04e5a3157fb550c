package counterd

import (
	"context"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Level is the length of a bucket.
type Level string

// The levels.
const (
	Second Level = "second"
	Minute Level = "minute"
	Hour   Level = "hour"
	Day    Level = "day"
)

// Bucket is the count of one second, minute, hour or day.
type Bucket struct {
	Start time.Time // UTC
	Count int64
}

// Count returns how often the event happened in the window that ends now, to the second: with
// several features on their combined counter, with none on that of the whole event. A
// combination that no limit is per is not counted: its count is 0. The window is whole seconds,
// within the retention of the event. If the counter's first limit keeps a log, a window shorter than
// a minute is to the millisecond, and events in a log that was too large may have moved to the end of
// their hour.
func (l *Limiter) Count(ctx context.Context, event string, features Features, window time.Duration) (int64, error) {
	return l.CountAt(ctx, event, features, window, time.Time{})
}

// CountAt is Count of the window that ends in a second of the past; the zero time is now.
func (l *Limiter) CountAt(ctx context.Context, event string, features Features, window time.Duration, at time.Time) (int64, error) {
	counter, err := l.counter(ctx, event, features)
	if err != nil {
		return 0, err
	}
	count, err := l.service.Count(ctx, counter, window, at)
	return count.Count, err
}

// Increment counts an event without deciding, 1 to 1,000,000 times, on the counter of each
// feature and of each combination that a limit is per. It is counted in a second of the past,
// within the retention of the event; the zero time is now. An error of the store leaves open
// whether it was counted.
func (l *Limiter) Increment(ctx context.Context, event string, features Features, by int64, at time.Time) error {
	known, err := l.event(ctx, event)
	if err != nil {
		return err
	}
	_, err = l.service.Increment(ctx, known, features, by, at)
	return err
}

// History returns the buckets of a counter at one level, the empty ones included, up to 10,000:
// from the one that holds from to the one that holds to. A zero from is as far back as the
// counter is kept, a zero to is now.
func (l *Limiter) History(ctx context.Context, event string, features Features, level Level, from, to time.Time) ([]Bucket, error) {
	counter, err := l.counter(ctx, event, features)
	if err != nil {
		return nil, err
	}
	parsed, err := engine.ParseLevel(string(level))
	if err != nil {
		return nil, errorf(ErrOutOfRange, "there is no level %q: use Second, Minute, Hour or Day", level)
	}
	history, err := l.service.History(ctx, counter, parsed, from, to)
	if err != nil {
		return nil, err
	}
	buckets := make([]Bucket, len(history.Intervals))
	for i, interval := range history.Intervals {
		buckets[i] = Bucket{time.Unix(interval.First, 0).UTC(), interval.Count}
	}
	return buckets, nil
}

// Reset forgets one counter, not its combinations. Other processes see it within a second. After
// an error of the store call it again.
func (l *Limiter) Reset(ctx context.Context, event string, features Features) error {
	counter, err := l.counter(ctx, event, features)
	if err != nil {
		return err
	}
	return l.service.Reset(ctx, counter)
}

// counter returns the one counter of the features.
func (l *Limiter) counter(ctx context.Context, name string, features Features) (events.Counter, error) {
	event, err := l.event(ctx, name)
	if err != nil {
		return events.Counter{}, err
	}
	return event.Counter(features)
}
