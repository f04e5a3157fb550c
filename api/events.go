package api

import (
	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

func (h *handler) events(r *http.Request) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	var all wire.Events
	for _, event := range h.Rules().All() {
		all.Events = append(all.Events, wireEvent(event))
	}
	return all, nil
}

func (h *handler) event(r *http.Request, event *events.Event) (any, error) {
	if _, err := newQuery(r); err != nil {
		return nil, err
	}
	return wireEvent(event), nil
}

func wireEvent(event *events.Event) wire.Event {
	out := wire.Event{Name: event.Name, Retention: events.FormatDuration(event.Remembered())}
	for _, rule := range event.Rules {
		shown := wire.Rule{Per: rule.Per, Precision: rule.Precision.String()}
		for _, limit := range rule.Limits {
			shown.Limits = append(shown.Limits, wire.Limit{
				Name: limit.Name, Limit: limit.N, Window: events.FormatDuration(limit.Window),
			})
		}
		out.Rules = append(out.Rules, shown)
	}
	return out
}
