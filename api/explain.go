package api

import (
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// explain says what a hit would be answered, and what that is computed from.
func (e *endpoints) explain(x *exchange, event service.Event) error {
	features, cost, err := checkQuery(x.request, event.Name)
	if err != nil {
		return err
	}
	d, explained, err := e.service.Explain(x.request.Context(), event, features, cost)
	if err != nil {
		return err
	}
	parts := 0
	for i := range explained {
		parts += len(explained[i].Sum) + len(explained[i].Frees)
	}
	if err := x.HoldAnswer(int64(parts * bucketBytes)); err != nil {
		return err
	}
	x.verdict = service.OutcomeOf(&d).String()
	response := httpdecision.NewResponse()
	defer response.Free()
	out := explainedOf(response.DecisionOf(event.Name, d), d.Limits, explained)
	for _, one := range e.service.OverridesOf(event, features) {
		out.Overrides = append(out.Overrides, wireOverride(one))
	}
	e.Reply(x, out)
	return nil
}

// explainedOf returns a decision as the contract has it, with what it was computed from.
func explainedOf(d *wire.Decision, states []events.LimitState, explained []limiter.Explained) wire.Explained {
	out := wire.Explained{Decision: *d, Limits: make([]wire.ExplainedLimit, len(d.Limits))}
	for i, state := range d.Limits {
		limit, of := &out.Limits[i], &explained[i]
		*limit = wire.ExplainedLimit{
			LimitState: state, Sum: make([]wire.Part, len(of.Sum)), Frees: freesOf(of.Frees), Rule: of.Rule.Place,
			Listing: states[i].Listing.String(), Overridden: states[i].Overridden,
		}
		for n, part := range of.Sum {
			limit.Sum[n] = wire.Part{Level: part.Level.String(), From: unix(part.First), To: unix(part.Last), Count: part.Count}
		}
	}
	return out
}

// freesOf returns the moments at which room returns, rounded up to whole seconds: by then it has. What returns by the
// same second is one step.
func freesOf(all []engine.Freed) []wire.Freed {
	steps := make([]wire.Freed, 0, len(all))
	for _, freed := range all {
		at := unix((freed.At + 999) / 1000)
		if n := len(steps); n > 0 && steps[n-1].At == at {
			steps[n-1].Count += freed.Count
			continue
		}
		steps = append(steps, wire.Freed{At: at, Count: freed.Count})
	}
	return steps
}
