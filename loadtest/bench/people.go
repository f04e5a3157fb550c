package bench

import (
	"fmt"

	"github.com/counterd/counterd/events"
)

// address returns the address of the i-th of them, or of one beyond.
func address(i int) string {
	return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
}

// featuresOf returns the features of the first n.
func featuresOf(n int) []events.Features {
	list := make([]events.Features, n)
	for i := range list {
		list[i] = events.Features{events.KindIP: address(i)}
	}
	return list
}

// eventOf returns an event with one rule per address.
func eventOf(name, rates, retention string) (*events.Event, error) {
	rules, err := events.ParseRules([]byte(rulesOf(name, rates, retention)))
	if err != nil {
		return nil, err
	}
	return rules.Event(name)
}

// rulesOf returns a rules file with that event.
func rulesOf(name, rates, retention string) string {
	return fmt.Sprintf("events:\n  %s:\n    retention: %s\n    limits: [{per: ip, rate: %s}]\n", name, retention, rates)
}

// Rates of four limits: far ones, which nobody reaches here, and those of which the
// day's is meant to matter.
const (
	farRates  = "[1000000000/s, 1000000000/m, 1000000000/h, 1000000000/d]"
	nearRates = "[1000000000/s, 1000000000/m, 1000000000/h, 1000000/d]"
	fullRates = "[1000000000/s, 1000000000/m, 1000000000/h, 1000/d]"
)
