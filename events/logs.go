package events

import (
	"slices"
	"time"
)

// DefaultGrace is the default allowance for clock skew and late round trips.
const DefaultGrace = 2 * time.Second

// HasLog reports whether limits per those kinds are kept in a log.
func (e *Event) HasLog(kinds []string) bool {
	return slices.ContainsFunc(e.Rules, func(rule Rule) bool {
		return rule.InLog() && !rule.Leases() && slices.Equal(rule.Per, kinds)
	})
}

// UseLogs reports whether limits are kept in logs.
func (r *Rules) UseLogs() bool {
	for _, event := range r.Events {
		if event.usesLogs() {
			return true
		}
	}
	return false
}
