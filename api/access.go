package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// class says what a route does, to let a client do the one and not the other. That of a
// route which has none is 0, and no token is good for it.
type class uint8

const (
	forAnyone   class = iota + 1 // no token is wanted
	toDecide                     // hit, batch, authorize, check
	toRead                       // count, history
	toIncrement                  // increment
	toReset                      // reset
	toSeeRules                   // the rules in force
	toOperate                    // metrics and profiles
)

// classNames are as they are written in a file of tokens, which only has those from
// toDecide on.
var classNames = [...]string{
	forAnyone: "anyone", toDecide: "decide", toRead: "read", toIncrement: "increment", toReset: "reset", toSeeRules: "rules", toOperate: "operate",
}

func (c class) String() string { return classNames[c] }

// classes is a set of them.
type classes uint

func (s classes) has(c class) bool { return s&(1<<c) != 0 }

// parseClasses reads names with commas between, or all.
func parseClasses(text string) (set classes, ok bool) {
	if text == "all" {
		text = strings.Join(classNames[toDecide:], ",")
	}
	for name := range strings.SplitSeq(text, ",") {
		at := slices.Index(classNames[:], name)
		if at < int(toDecide) {
			return 0, false
		}
		set |= 1 << at
	}
	return set, true
}

// reason is why a request is refused.
type reason uint8

const (
	noToken      reason = iota // it has none
	unknownToken               // nobody has this one
	otherClass                 // the token is not good for the route's class
	reasons      = iota
)

var reasonNames = [reasons]string{noToken: "missing", unknownToken: "unknown", otherClass: "forbidden"}

func (r reason) String() string { return reasonNames[r] }

var (
	errUnauthorized = errors.New("api: no token, or an unknown one")
	errForbidden    = errors.New("api: the token may not do this")
)

// refusal is the error of a request whose token does not let it in.
type refusal struct {
	class  class
	reason reason
}

func (e *refusal) Error() string { return fmt.Sprintf("%v (%s, %s)", e.Unwrap(), e.class, e.reason) }

func (e *refusal) Unwrap() error {
	if e.reason == otherClass {
		return errForbidden
	}
	return errUnauthorized
}

// challenge is the answer's WWW-Authenticate, as RFC 6750 has it.
func (e *refusal) challenge() string {
	switch e.reason {
	case unknownToken:
		return `Bearer realm="counterd", error="invalid_token"`
	case otherClass:
		return fmt.Sprintf(`Bearer realm="counterd", error="insufficient_scope", scope="%s"`, e.class)
	}
	return `Bearer realm="counterd"`
}

// Refusals counts the requests that were refused for want of a token. The zero Refusals
// is ready, and may be that of several handlers.
type Refusals struct {
	counts [toOperate + 1][reasons]atomic.Int64
}

// Refused is how many requests to routes of a class were refused for a reason.
type Refused struct {
	Class  string // decide, read, increment, reset, rules or operate
	Reason string // missing, unknown or forbidden
	N      int64
}

// All returns the counts of each class and reason, also where there was none.
func (r *Refusals) All() []Refused {
	var all []Refused
	for c := toDecide; c <= toOperate; c++ {
		for why := range reason(reasons) {
			all = append(all, Refused{c.String(), why.String(), r.counts[c][why].Load()})
		}
	}
	return all
}

func (r *Refusals) add(e *refusal) {
	if r != nil {
		r.counts[e.class][e.reason].Add(1)
	}
}

// tokenHeader goes before Authorization: a proxy that asks with the headers of its client
// has that client's there.
const tokenHeader = "Counterd-Token"

// presented returns the token that comes with a request; given: there is one. What
// cannot be told apart is one that nobody has.
func presented(header http.Header) (text string, given bool) {
	if values := header[tokenHeader]; len(values) > 0 {
		return onlyOf(values), true
	}
	values := header["Authorization"]
	if len(values) == 0 {
		return "", false
	}
	scheme, credentials, _ := strings.Cut(onlyOf(values), " ")
	if len(values) == 1 && !strings.EqualFold(scheme, "Bearer") {
		return "", false // another scheme's are none of ours
	}
	return strings.Trim(credentials, " "), true
}

func onlyOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

// admit lets a request to a route of the class in, or returns why not, and the name of
// its token where that is known.
func (h *handler) admit(to class, w http.ResponseWriter, r *http.Request) (client string, err error) {
	if to == forAnyone || h.Tokens == nil {
		return "", nil
	}
	text, given := presented(r.Header)
	if !given {
		return "", h.refuse(&refusal{to, noToken}, "", w, r)
	}
	one, ok := h.Tokens().find(text)
	switch {
	case !ok:
		return "", h.refuse(&refusal{to, unknownToken}, "", w, r)
	case !one.classes.has(to):
		return one.name, h.refuse(&refusal{to, otherClass}, one.name, w, r)
	}
	return one.name, nil
}

// refuse counts a refusal and logs it: of each reason one a second. The token is not
// logged, nor where the request came from, which may be a feature.
func (h *handler) refuse(e *refusal, client string, w http.ResponseWriter, r *http.Request) error {
	h.Refusals.add(e)
	h.refused.Do(e.reason.String(), func(suppressed int64) {
		h.logOf(w, r).Warn("a request was refused", "reason", e.reason.String(), "class", e.class.String(),
			"client", client, "method", methodOf(r), "suppressed", suppressed)
	})
	return e
}
