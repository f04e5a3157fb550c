package events

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultRetention is how long the counters of an event without limits are
	// remembered.
	DefaultRetention = 24 * time.Hour
	// MaxWindow is the longest window of a limit, and the longest retention.
	MaxWindow = 30 * 24 * time.Hour
)

// ErrUnknownEvent is returned for an event that no rule names.
var ErrUnknownEvent = errors.New("events: unknown event")

// Rules are the events that are counted, and how.
type Rules struct {
	Events         map[string]*Event // by name
	TrustedProxies Networks          // the proxies whose X-Forwarded-For is believed
	Headers        []Header          // the headers of an answer; none given: HeaderRateLimit
	Warnings       Faults            // what is valid in the file, and hardly meant
}

// Header is a family of response headers with the state of a limit.
type Header uint8

// The families of headers.
const (
	HeaderRateLimit  Header = iota // RateLimit-Policy and RateLimit
	HeaderXRateLimit               // X-RateLimit-Limit, -Remaining and -Reset
	HeaderNone                     // neither
)

var headerNames = [...]string{"ratelimit", "x-ratelimit", "none"}

// String returns ratelimit, x-ratelimit or none.
func (h Header) String() string { return headerNames[h] }

// Sends reports whether answers carry that family of headers.
func (r *Rules) Sends(h Header) bool {
	if len(r.Headers) == 0 {
		return h == HeaderRateLimit
	}
	return slices.Contains(r.Headers, h)
}

// Event returns the event of that name, or ErrUnknownEvent.
func (r *Rules) Event(name string) (*Event, error) {
	if event := r.Events[name]; event != nil {
		return event, nil
	}
	return nil, ErrUnknownEvent
}

// All returns the events in the order of their names.
func (r *Rules) All() []*Event {
	events := slices.Collect(maps.Values(r.Events))
	slices.SortFunc(events, func(a, b *Event) int { return strings.Compare(a.Name, b.Name) })
	return events
}

// Event is one kind of event, and how it is counted. An Event with a name alone
// is counted per each feature it comes with and remembered for a day.
type Event struct {
	Name      string
	Retention time.Duration // 0: the longest window of its limits, or DefaultRetention without limits
	Rules     []Rule
	From      map[string]Source // by kind: where requests carry it; see Source for the defaults
	Methods   []string          // the HTTP methods of requests that are hits; none: all
	kept      map[string]kept   // by kinds: how their counters were kept so far; see Succeed
}

// Remembered returns how long the event's counters are remembered: its
// retention, or the longest window of its limits where that is longer. The
// windows of overrides are not looked at: rules from a file have a retention
// that covers them, and others must set one.
func (e *Event) Remembered() time.Duration {
	longest := e.Retention
	for _, rule := range e.Rules {
		for _, limit := range rule.Limits {
			longest = max(longest, limit.Window)
		}
	}
	if longest == 0 {
		return DefaultRetention
	}
	return longest
}

// Example returns the rules that counterd has without a rules file: one event,
// url_shorten, per ip 2/s, 5/m, 10/h and 100/d.
func Example() *Rules {
	return &Rules{Events: map[string]*Event{"url_shorten": {
		Name: "url_shorten",
		Rules: []Rule{{Per: []string{KindIP}, Limits: []Limit{
			{Name: "ip-2-per-1s", N: 2, Window: time.Second},
			{Name: "ip-5-per-1m", N: 5, Window: time.Minute},
			{Name: "ip-10-per-1h", N: 10, Window: time.Hour},
			{Name: "ip-100-per-24h", N: 100, Window: 24 * time.Hour},
		}}},
	}}}
}
