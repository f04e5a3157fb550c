// Package httpdecision answers HTTP requests by decisions: the headers of a decision, problem documents, the features of a
// request, and the middleware. It depends on no router and no library for JSON.
package httpdecision

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// Field is a header field. Its name is in canonical form.
type Field struct{ Name, Value string }

// Names of fields, in canonical form.
const (
	// Wait says for how long a request waits for its turn in a leaky bucket, in seconds with milliseconds: a proxy
	// passes it to its service, which waits.
	Wait = "Counterd-Wait"

	retryAfter  = "Retry-After"
	policyField = "Ratelimit-Policy"
	stateField  = "Ratelimit"
	limit       = "X-Ratelimit-Limit"
	remaining   = "X-Ratelimit-Remaining"
	reset       = "X-Ratelimit-Reset"
)

// maxLists bounds RateLimit-Policy and RateLimit together, in bytes: proxies and clients refuse answers with long headers,
// some at 4 KiB.
const maxLists = 2 << 10

// Append appends the fields that say the limits of a decision: those of
// draft-ietf-httpapi-ratelimit-headers, the older X-RateLimit ones, or neither, as the rules say,
// and on a denial Retry-After: when the hit may fit.
//
// Shadow limits are not among them: what is not enforced is no client's concern.
// Nor is, of the limits whose counters could not be asked, how much remains.
func Append(fields []Field, rules *events.Rules, d *events.Decision) []Field {
	if service.OutcomeOf(d) == service.Denied && d.RetryAfter != events.Never {
		fields = append(fields, Field{retryAfter, strconv.FormatInt(engine.CeilSeconds(cmp.Or(d.MayFitAfter, d.RetryAfter)), 10)})
	}
	if rules.Sends(events.HeaderRateLimit) {
		fields = appendStructured(fields, d.Limits)
	}
	if rules.Sends(events.HeaderXRateLimit) {
		fields = appendTightest(fields, d.Limits)
	}
	return fields
}

// appendStructured appends RateLimit-Policy and RateLimit. A limit of leases counts another unit than requests, in no
// window. The parameter pk, the partition key, is left out: it would tell the client of its own features, or what they hash
// to, and the name of a limit says which kinds it counts by.
//
// The parameter t, the seconds until there is more, is that of a limit that denies.
// One that admits has none: when its next event leaves the window is not known
// without more reads, and a 0 would tell clients that pace themselves by r and t
// to send all that remains at once.
//
// Of lists longer than maxLists the tightest limit alone is sent.
func appendStructured(fields []Field, limits []events.LimitState) []Field {
	var space [512]byte // for most of them
	list := structuredList(space[:0])
	for i := range limits {
		if s := &limits[i]; !s.Shadow {
			list = list.add(0, s.Name).param(";q=", s.Limit)
			if s.Algorithm == events.Concurrency {
				list = append(list, `;qu="concurrent-requests"`...)
			} else {
				list = list.param(";w=", engine.CeilSeconds(s.Window))
			}
		}
	}
	states := len(list)
	for i := range limits {
		s := &limits[i]
		if s.Shadow || service.Unanswered(s) {
			continue
		}
		list = list.add(states, s.Name).param(";r=", s.Remaining)
		if !s.Allowed && s.Reset != events.Never {
			list = list.param(";t=", engine.CeilSeconds(s.Reset))
		}
	}
	if len(list) > maxLists && len(limits) > 1 {
		s, found := tightest(limits)
		if !found {
			return fields
		}
		return appendStructured(fields, []events.LimitState{s})
	}
	text := string(list)
	if states > 0 {
		fields = append(fields, Field{policyField, text[:states]})
	}
	if states < len(text) {
		fields = append(fields, Field{stateField, text[states:]})
	}
	return fields
}

// structuredList are lists of strings with integers for parameters, as structured
// fields (RFC 9651) write them, one list behind the other. A library for all of
// them takes ten times the time, on every hit; the tests have one read what this
// writes.
type structuredList []byte

// add adds the name of a limit to the list that begins there.
func (l structuredList) add(begin int, name string) structuredList {
	if len(l) > begin {
		l = append(l, ", "...)
	}
	l = append(l, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			l = append(l, '\\', c)
		case c < ' ' || c > '~': // strings have ASCII alone
			l = fmt.Appendf(l, "%%%02X", c)
		default:
			l = append(l, c)
		}
	}
	return append(l, '"')
}

// param adds a parameter to the string added last.
func (l structuredList) param(name string, value int64) structuredList {
	return strconv.AppendInt(append(l, name...), value, 10)
}

// appendTightest appends X-RateLimit-Limit, -Remaining and -Reset, the latter in seconds
// from now. Where no time will do there is no -Reset.
func appendTightest(fields []Field, limits []events.LimitState) []Field {
	s, found := tightest(limits)
	if !found {
		return fields
	}
	fields = append(fields, Field{limit, strconv.FormatInt(s.Most(), 10)}, Field{remaining, strconv.FormatInt(s.Remaining, 10)})
	if s.Reset != events.Never {
		fields = append(fields, Field{reset, strconv.FormatInt(engine.CeilSeconds(s.Reset), 10)})
	}
	return fields
}

// tightest returns the limit that a client has to mind first, if there is one: of
// the limits that deny the one that does it for longest, else the one with the least
// remaining. Of equals it is the first.
func tightest(limits []events.LimitState) (tightest events.LimitState, found bool) {
	for i := range limits {
		s := &limits[i]
		if s.Shadow || service.Unanswered(s) {
			continue
		}
		if !found || cmp.Or(cmp.Compare(denies(&tightest), denies(s)), cmp.Compare(s.Remaining, tightest.Remaining)) < 0 {
			tightest, found = *s, true
		}
	}
	return tightest, found
}

// denies returns for how long the limit denies the hit: 0 where it does not.
func denies(s *events.LimitState) int64 {
	if s.Allowed {
		return 0
	}
	return engine.CeilSeconds(s.Reset)
}

// WaitOf returns the value of Wait; empty: a hit by that decision does not wait.
func WaitOf(d *events.Decision) string {
	if d.Wait <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(d.Wait.Milliseconds())/1000, 'f', -1, 64)
}
