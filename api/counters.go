package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

func (h *handler) increment(r *http.Request, event *events.Event) (any, error) {
	var in wire.Increment
	if err := decodeBody(r, &in); err != nil {
		return nil, err
	}
	by := int64(1)
	if in.By != nil {
		by = *in.By
	}
	counters, err := event.Counters(in.Features)
	if err := errors.Join(err, hierarchy.CheckBy(by)); err != nil {
		return nil, err
	}
	at, err := h.Counters.Increment(r.Context(), by, in.At.Time, counters...)
	if err != nil {
		return nil, err
	}
	done := wire.Incremented{Event: event.Name, At: wire.Moment{Time: at}, By: by}
	for _, counter := range counters {
		done.Counters = append(done.Counters, counter.Feature.String())
	}
	return done, nil
}

func (h *handler) count(r *http.Request, event *events.Event) (any, error) {
	q, err := newQuery(r, "feature", "window", "at")
	if err != nil {
		return nil, err
	}
	counter, window, at := q.counter(event), q.duration("window"), q.moment("at")
	if err := q.err(); err != nil {
		return nil, err
	}
	count, err := h.Counters.Count(r.Context(), counter, window, at)
	if err != nil {
		return nil, err
	}
	buckets := wire.Buckets{
		Second: count.Buckets[hierarchy.Second],
		Minute: count.Buckets[hierarchy.Minute],
		Hour:   count.Buckets[hierarchy.Hour],
		Day:    count.Buckets[hierarchy.Day],
	}
	for _, n := range count.Buckets {
		buckets.Total += n
	}
	return wire.Count{
		Event: event.Name, Feature: counter.Feature.String(), Window: events.FormatDuration(window),
		From: unix(count.Window.First), To: unix(count.Window.Last), Count: count.Count, Buckets: buckets,
	}, nil
}

func (h *handler) history(r *http.Request, event *events.Event) (any, error) {
	q, err := newQuery(r, "feature", "level", "from", "to")
	if err != nil {
		return nil, err
	}
	counter, name, from, to := q.counter(event), q.required("level"), q.moment("from"), q.moment("to")
	level, err := hierarchy.ParseLevel(name)
	if err != nil && q.values.Has("level") {
		q.fault("level", "it is second, minute, hour or day")
	}
	if err := q.err(); err != nil {
		return nil, err
	}
	points, err := h.Counters.History(r.Context(), counter, level, from, to)
	if err != nil {
		return nil, err
	}
	if err := holdAnswer(r, len(points)*bucketBytes); err != nil {
		return nil, err
	}
	history := wire.History{
		Event: event.Name, Feature: counter.Feature.String(), Level: level.String(),
		From:    unix(points[0].Bucket.First()),
		To:      unix(points[len(points)-1].Bucket.Last()),
		Buckets: make([]wire.Bucket, len(points)),
	}
	for i, point := range points {
		history.Buckets[i] = wire.Bucket{Start: unix(point.Bucket.First()), Count: point.Count}
	}
	return history, nil
}

func (h *handler) reset(r *http.Request, event *events.Event) (any, error) {
	q, err := newQuery(r, "feature")
	if err != nil {
		return nil, err
	}
	counter := q.counter(event)
	if err := q.err(); err != nil {
		return nil, err
	}
	err = h.Counters.Reset(r.Context(), counter)
	if errors.Is(err, hierarchy.ErrStore) && !errors.Is(err, hierarchy.ErrOverload) {
		return nil, resetError{err}
	}
	return nil, err
}

// resetError is why the store did not reset a counter. Its text, and so the cause in the log,
// is the store's.
type resetError struct{ error }

func (e resetError) Unwrap() error { return e.error }

func (resetError) Is(target error) bool { return target == errNotReset }

func unix(second int64) wire.Moment { return wire.Moment{Time: time.Unix(second, 0).UTC()} }
