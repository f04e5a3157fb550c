package api

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/service"
)

// setRateLimitHeaders sets the headers that tell a client its limits: those of
// draft-ietf-httpapi-ratelimit-headers, the older X-RateLimit ones, or neither, as
// the rules say, and on a denial Retry-After.
//
// Shadow limits are not among them: what is not enforced is no client's concern.
// Nor is, of the limits whose counters could not be asked, how they stand.
func setRateLimitHeaders(header http.Header, rules *events.Rules, d limiter.Decision) {
	if service.OutcomeOf(&d) == service.Denied && d.RetryAfter != engine.Never {
		header.Set("Retry-After", strconv.FormatInt(int64(d.RetryAfter), 10))
	}
	if rules.Sends(events.HeaderRateLimit) {
		setStructured(header, d.Limits)
	}
	if rules.Sends(events.HeaderXRateLimit) {
		setTightest(header, d.Limits)
	}
}

// setStructured sets RateLimit-Policy and RateLimit.
//
// The parameter t, the seconds until there is more, is that of a limit that denies.
// One that admits has none: when its next event leaves the window is not known
// without more reads, and a 0 would tell clients that pace themselves by r and t
// to send all that remains at once.
func setStructured(header http.Header, limits []limiter.LimitState) {
	var space [512]byte // for most of them
	list := structuredList(space[:0])
	for i := range limits {
		if s := &limits[i]; !s.Shadow {
			list = list.add(0, s.Name).param(";q=", s.N).param(";w=", int64(s.Window/time.Second))
		}
	}
	states := len(list)
	for i := range limits {
		s := &limits[i]
		if s.Shadow || service.Unanswered(s) {
			continue
		}
		list = list.add(states, s.Name).param(";r=", s.Remaining)
		if !s.Allowed && s.Reset != engine.Never {
			list = list.param(";t=", int64(s.Reset))
		}
	}
	text := string(list)
	setFields(header, field{policyField, text[:states]}, field{stateField, text[states:]})
}

var (
	policyField = http.CanonicalHeaderKey("RateLimit-Policy")
	stateField  = http.CanonicalHeaderKey("RateLimit")
)

// structuredList are lists of strings with integers for parameters, as structured
// fields (RFC 9651) write them, one list behind the other. A library for all of
// them takes ten times the time, on every hit; the tests have one read what this
// writes.
type structuredList []byte

// add adds the name of a limit, in which nothing has to be escaped, to the list
// that begins there.
func (l structuredList) add(begin int, name string) structuredList {
	if len(l) > begin {
		l = append(l, ", "...)
	}
	l = append(l, '"')
	l = append(l, name...)
	return append(l, '"')
}

// param adds a parameter to the string added last.
func (l structuredList) param(name string, value int64) structuredList {
	return strconv.AppendInt(append(l, name...), value, 10)
}

// setTightest sets X-RateLimit-Limit, -Remaining and -Reset, the latter in seconds
// from now. Where no time will do there is no -Reset.
func setTightest(header http.Header, limits []limiter.LimitState) {
	s, found := tightest(limits)
	if !found {
		return
	}
	header.Set("X-RateLimit-Limit", strconv.FormatInt(s.N, 10))
	header.Set("X-RateLimit-Remaining", strconv.FormatInt(s.Remaining, 10))
	if s.Reset != engine.Never {
		header.Set("X-RateLimit-Reset", strconv.FormatInt(int64(s.Reset), 10))
	}
}

// tightest returns the limit that a client has to mind first, if there is one: of
// the limits that deny the one that does it for longest, else the one with the least
// remaining. Of equals it is the first.
func tightest(limits []limiter.LimitState) (tightest limiter.LimitState, found bool) {
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
func denies(s *limiter.LimitState) int64 {
	switch {
	case s.Allowed:
		return 0
	case s.Reset == engine.Never:
		return math.MaxInt64
	}
	return int64(s.Reset)
}
