package api

import (
	"net/http"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/service"
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
	e.reply(x, out)
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
	e.reply(x, wire.Count{
		Event: event.Name, Feature: q.counter.Feature.String(), Window: events.FormatDuration(q.window),
		From: unix(count.Window.First), To: unix(count.Window.Last), Count: count.Count, Buckets: bucketsOf(count),
	})
	return nil
}

// bucketsOf returns how many buckets were summed.
func bucketsOf(count hierarchy.Count) wire.Buckets {
	buckets := wire.Buckets{
		Second: count.Buckets[hierarchy.Second],
		Minute: count.Buckets[hierarchy.Minute],
		Hour:   count.Buckets[hierarchy.Hour],
		Day:    count.Buckets[hierarchy.Day],
	}
	for _, n := range count.Buckets {
		buckets.Total += n
	}
	return buckets
}

// history lists the buckets of a counter.
func (e *endpoints) history(x *exchange, event service.Event) error {
	q, err := historyQuery(x.request, event)
	if err != nil {
		return err
	}
	points, err := e.service.History(x.request.Context(), q.counter, q.level, q.from, q.to)
	if err != nil {
		return err
	}
	if err := x.admission.Hold(int64(len(points) * bucketBytes)); err != nil {
		return err
	}
	history := wire.History{
		Event: event.Name, Feature: q.counter.Feature.String(), Level: q.level.String(),
		From:    unix(points[0].Bucket.First()),
		To:      unix(points[len(points)-1].Bucket.Last()),
		Buckets: make([]wire.Bucket, len(points)),
	}
	for i, point := range points {
		history.Buckets[i] = wire.Bucket{Start: unix(point.Bucket.First()), Count: point.Count}
	}
	e.reply(x, history)
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
