package events

import (
	"errors"
	"fmt"
)

// CheckValues returns an error that names each value of the rules that no rules file can have: a Precision, Count,
// OnError, kind of throttle or algorithm that is unknown. Errors wrap ErrInvalid.
func (r *Rules) CheckValues() error {
	var faults []error
	for _, event := range r.All() {
		for i := range event.Rules {
			rule := &event.Rules[i]
			check := func(key string, known bool) {
				if !known {
					faults = append(faults, fmt.Errorf("%w: events.%s.limits[%d]: unknown %s", ErrInvalid, event.Name, i, key))
				}
			}
			check("precision", int(rule.Precision) < len(precisionNames))
			check("count", int(rule.Count) < len(countNames))
			check("on_error", int(rule.OnError) < len(onErrorNames))
			check("throttle", rule.Throttle.Kind <= Quota)
			for limits := range rule.limits() {
				for _, limit := range limits {
					_, known := AlgorithmByName(limit.Algorithm)
					check("algorithm", known)
				}
			}
		}
	}
	return errors.Join(faults...)
}
