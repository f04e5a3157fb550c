package counterd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// The causes of errors, for errors.Is. The texts of errors hold no feature's value.
var (
	// ErrUnknownEvent is the cause of an error about an event that the rules do not have.
	ErrUnknownEvent = events.ErrUnknownEvent
	// ErrInvalid is the cause of an error about features, rules, options or a context.
	ErrInvalid = events.ErrInvalid
	// ErrOutOfRange is the cause of an error about a cost, a window or another number.
	ErrOutOfRange = engine.ErrOutOfRange
	// ErrStore is the cause of an error of the store. An increment that fails with it may have
	// been counted. A hit does not fail with it: the on_error of its rules decides.
	ErrStore = engine.ErrStore
	// ErrOverload is the cause of an error about too many calls that wait for the store. It is
	// also an ErrStore, and nothing was counted.
	ErrOverload = engine.ErrOverload
	// ErrSettled is the cause of an error about a reservation that was settled with another cost.
	ErrSettled = engine.ErrSettled
	// ErrEnded is the cause of an error about a reservation, or a lease, that has ended.
	ErrEnded = engine.ErrEnded
	// ErrClosed is the error of a Limiter that is closed.
	ErrClosed = service.ErrClosed
)

// callError is an error of a call, with a sentinel for its cause.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return "counterd: " + e.text }

func (e *callError) Unwrap() error { return e.cause }

func errorf(cause error, format string, args ...any) error {
	return &callError{fmt.Sprintf(format, args...), cause}
}

var (
	errNoContext = errorf(ErrInvalid, "the context is nil: use context.Background")
	errNoRules   = errorf(ErrInvalid, "there are no rules: read some by ReadRules or ParseRules")
)

// findEvent returns the event of that name for a call, or an error that names a similar one.
func findEvent(ctx context.Context, rules *events.Rules, name string) (*events.Event, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if event, err := rules.Event(name); err == nil {
		return event, nil
	}
	names := make([]string, 0, len(rules.Events))
	for _, event := range rules.All() {
		names = append(names, event.Name)
	}
	return nil, errorf(ErrUnknownEvent, "the rules have no event %q%s", name, events.Suggest(name, names))
}

// checkKinds finds features that no limit of the event is per: a misspelled kind would otherwise
// leave a limit out.
func checkKinds(event *events.Event, features Features) error {
	if len(event.Rules) == 0 {
		return errorf(ErrInvalid, "%s has no limits: count it by Increment", event.Name)
	}
	if !namesAll(event, features) {
		return unnamed(event, features)
	}
	return nil
}

// namesAll reports whether each kind has a limit. It allocates nothing.
func namesAll(event *events.Event, features Features) bool {
	for kind := range features {
		if !slices.ContainsFunc(event.Rules, func(rule events.Rule) bool { return slices.Contains(rule.Per, kind) }) {
			return false
		}
	}
	return true
}

// unnamed returns the errors of the kinds that have no limit, in their order.
func unnamed(event *events.Event, features Features) error {
	kinds := event.Kinds()
	var faults []error
	for kind := range features {
		if !slices.Contains(kinds, kind) {
			faults = append(faults, errorf(ErrInvalid, "no limit of %s is per %q%s", event.Name, kind, events.Suggest(kind, kinds)))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}
