package api

import (
	"net/http"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// increment adds to counters.
func (e *endpoints) increment(x *exchange, event service.Event) error {
	var in wire.Increment
	if err := decodeBody(x.request, &in); err != nil {
		return err
	}
	by := costOf(in.By)
	done, err := e.service.Increment(x.request.Context(), event, in.Features, by, in.At.Time)
	if err != nil {
		return err
	}
	out := wire.Incremented{Event: event.Name, At: wire.Moment{Time: done.At}, By: by}
	for _, counter := range done.Counters {
		out.Counters = append(out.Counters, counter.Feature.String())
	}
	e.Reply(x, out)
	return nil
}

// count sums a window of a counter.
func (e *endpoints) count(x *exchange, event service.Event) error {
	q, err := countQuery(x.request, event)
	if err != nil {
		return err
	}
	count, err := e.service.Count(x.request.Context(), q.counter, q.window, q.at)
	if err != nil {
		return err
	}
	e.Reply(x, wire.Count{
		Event: event.Name, Feature: q.counter.Feature.String(), Window: events.FormatDuration(q.window),
		From: wire.Moment{Time: count.From}, To: wire.Moment{Time: count.To}, Count: count.Count,
		Exact: ifFalse(count.Exact), Buckets: bucketsOf(count),
	})
	return nil
}

// bucketsOf returns how many buckets were summed.
func bucketsOf(count engine.Count) wire.Buckets {
	buckets := wire.Buckets{
		Second: count.Buckets[engine.Second],
		Minute: count.Buckets[engine.Minute],
		Hour:   count.Buckets[engine.Hour],
		Day:    count.Buckets[engine.Day],
	}
	for _, n := range count.Buckets {
		buckets.Total += n
	}
	return buckets
}

// ifFalse returns what is in the answer only if it is false.
func ifFalse(exact bool) *bool {
	if exact {
		return nil
	}
	return &exact
}

// history lists the buckets of a counter.
func (e *endpoints) history(x *exchange, event service.Event) error {
	q, err := historyQuery(x.request, event)
	if err != nil {
		return err
	}
	ask := e.service.History
	if q.outcome == outcomeDenied {
		ask = e.service.DeniedHistory
	}
	counts, err := ask(x.request.Context(), q.counter, q.level, q.from, q.to)
	if err != nil {
		return err
	}
	intervals := counts.Intervals
	if err := x.HoldAnswer(int64(len(intervals) * bucketBytes)); err != nil {
		return err
	}
	history := wire.History{
		Event: event.Name, Feature: q.counter.Feature.String(), Level: q.level.String(),
		Outcome: q.outcome,
		From:    unix(intervals[0].First),
		To:      unix(intervals[len(intervals)-1].Last),
		Exact:   ifFalse(counts.Exact),
		Buckets: make([]wire.Bucket, len(intervals)),
	}
	for i, interval := range intervals {
		history.Buckets[i] = wire.Bucket{Start: unix(interval.First), Count: interval.Count}
	}
	e.Reply(x, history)
	return nil
}

// reset forgets a counter.
func (e *endpoints) reset(x *exchange, event service.Event) error {
	counter, err := counterQuery(x.request, event)
	if err != nil {
		return err
	}
	if err := e.service.Reset(x.request.Context(), counter); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

func unix(second int64) wire.Moment { return wire.Moment{Time: time.Unix(second, 0).UTC()} }
