package events

import (
	"slices"
	"strings"
)

// HasMethod reports whether requests of that HTTP method are hits. Servers that are
// lenient take post for POST, so it does, too. What is no method could be any.
func (e *Event) HasMethod(method string) bool {
	return len(e.Methods) == 0 || !ValidToken(method) ||
		slices.ContainsFunc(e.Methods, func(one string) bool { return strings.EqualFold(one, method) })
}
