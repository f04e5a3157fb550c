package service

import (
	"fmt"
	"strings"
	"sync/atomic"
)

const (
	// memoryBudget bounds what all requests together hold of large bodies and answers, in
	// bytes of their text. A slow client holds its own until it is cut off.
	memoryBudget = 64 << 20
	// freeMemory is how much each request may hold besides: a hit with as many features as
	// there may be.
	freeMemory = 20 << 10
)

// Class says what a request does, so that a token may be good for some requests and not for
// others. The zero Class is none: no token is good for it.
type Class uint8

// The classes.
const (
	ClassPublic    Class = iota + 1 // needs no token
	ClassDecide                     // hit, batch, authorize, check
	ClassRead                       // count, history
	ClassSee                        // explain, top, the overrides
	ClassIncrement                  // increment
	ClassReset                      // reset
	ClassOverride                   // setting and removing overrides
	ClassRules                      // the rules in force
	ClassOperate                    // metrics and profiles
)

// classNames are the classes as a file of tokens names them, which has those from
// ClassDecide on.
var classNames = [...]string{
	ClassPublic: "anyone", ClassDecide: "decide", ClassRead: "read", ClassSee: "see", ClassIncrement: "increment",
	ClassReset: "reset", ClassOverride: "override", ClassRules: "rules", ClassOperate: "operate",
}

// String returns the name of the class in a file of tokens.
func (c Class) String() string { return classNames[c] }

// GateConfig sets up a Gate.
type GateConfig struct {
	// Tokens returns the tokens in force; nil: no request needs one.
	Tokens   func() *Tokens
	Refusals *Refusals // counts the requests that tokens do not admit; nil: they are not counted
	// MaxRequests bounds the admitted requests at a time; 0: there is no bound.
	MaxRequests int
}

// Gate admits requests: by their tokens, by how many there are at a time, and by the memory
// that they hold. It is safe for concurrent use.
type Gate struct {
	config   GateConfig
	requests atomic.Int64 // at a time
	memory   atomic.Int64 // bytes of the budget that are taken
}

// NewGate returns a Gate.
func NewGate(config GateConfig) *Gate { return &Gate{config: config} }

// Token is the token of a request.
type Token struct {
	Text  string
	Given bool // the request has one, be it empty
}

// TokenOf returns the token of a request with these values of Counterd-Token and Authorization. The first goes
// before the second: a reverse proxy that asks with the headers of its client has that client's there. Where
// several values leave open which one is meant the token is given and empty, which no token is.
func TokenOf(own, authorization []string) Token {
	if len(own) > 0 {
		return Token{Text: only(own), Given: true}
	}
	if len(authorization) == 0 {
		return Token{}
	}
	scheme, credentials, _ := strings.Cut(only(authorization), " ")
	if len(authorization) == 1 && !strings.EqualFold(scheme, "Bearer") {
		return Token{} // credentials of another scheme are for another server
	}
	return Token{Text: strings.Trim(credentials, " "), Given: true}
}

func only(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

// NeedsTokens reports whether requests need a token.
func (g *Gate) NeedsTokens() bool { return g.config.Tokens != nil }

// Admit admits a request of the class, or returns a *Refusal or ErrOverload. The token has to be good for the other
// classes, too. The Admission is to be released after either.
//
// A request of ClassPublic needs no token and does not count: a busy process still answers
// its probes, and no stranger takes a client's place.
func (g *Gate) Admit(class Class, token Token, others ...Class) (Admission, error) {
	a := Admission{gate: g}
	if class == ClassPublic {
		return a, nil
	}
	if err := g.checkToken(&a, class, token); err != nil {
		return a, err
	}
	for _, other := range others {
		if err := g.checkToken(&a, other, token); err != nil {
			return a, err
		}
	}
	a.counted = true
	if n := g.requests.Add(1); g.config.MaxRequests > 0 && n > int64(g.config.MaxRequests) {
		return a, ErrOverload
	}
	return a, nil
}

// Knows reports whether the token admits requests of the class. Nothing is counted.
func (g *Gate) Knows(class Class, token Token) bool {
	_, refusal := g.judge(class, token)
	return refusal == nil
}

// checkToken notes the token's name, or returns why the token is not good for the class.
func (g *Gate) checkToken(a *Admission, class Class, presented Token) error {
	name, refusal := g.judge(class, presented)
	a.Client = name
	if refusal == nil {
		return nil
	}
	g.config.Refusals.add(refusal)
	return refusal
}

// judge returns the name of the token, if it is known, and why it is not good for the class; nil: it is.
func (g *Gate) judge(class Class, presented Token) (name string, refusal *Refusal) {
	if g.config.Tokens == nil {
		return "", nil
	}
	if !presented.Given {
		return "", &Refusal{class, TokenMissing, ""}
	}
	token, known := g.config.Tokens().find(presented.Text)
	switch {
	case !known:
		return "", &Refusal{class, TokenUnknown, ""}
	case !token.classes.has(class):
		return token.name, &Refusal{class, TokenForbidden, token.name}
	}
	return token.name, nil
}

// Admission is a request that a Gate has admitted, and the memory that the request holds. One
// goroutine at a time may use it.
type Admission struct {
	Client  string // the name of its token; empty: it has none
	gate    *Gate
	counted bool  // among the gate's requests
	held    int64 // bytes of the request and of its answer
	taken   int64 // of the gate's budget
}

// Hold takes memory for so many more bytes, or returns ErrOverload.
func (a *Admission) Hold(bytes int64) error {
	a.held += bytes
	missing := a.held - freeMemory - a.taken
	if missing <= 0 {
		return nil
	}
	if a.gate.memory.Add(missing) > memoryBudget {
		a.gate.memory.Add(-missing)
		return ErrOverload
	}
	a.taken += missing
	return nil
}

// Release ends the request. That of the zero Admission does nothing.
func (a *Admission) Release() {
	if a.gate == nil {
		return
	}
	a.gate.memory.Add(-a.taken)
	if a.counted {
		a.gate.requests.Add(-1)
	}
}

// Reason is why a token does not admit a request.
type Reason uint8

// The reasons.
const (
	TokenMissing   Reason = iota // the request has no token
	TokenUnknown                 // the token is not among those in force
	TokenForbidden               // the token is not good for the request's class
	reasons        = iota
)

var reasonNames = [reasons]string{TokenMissing: "missing", TokenUnknown: "unknown", TokenForbidden: "forbidden"}

// String returns missing, unknown or forbidden.
func (r Reason) String() string { return reasonNames[r] }

// Refusal is the error of a request that its token does not admit. It wraps ErrUnauthorized
// or ErrForbidden.
type Refusal struct {
	Class  Class // of the request
	Reason Reason
	Client string // the name of the token; empty: it is not known
}

func (e *Refusal) Error() string { return fmt.Sprintf("%v (%s, %s)", e.Unwrap(), e.Class, e.Reason) }

func (e *Refusal) Unwrap() error {
	if e.Reason == TokenForbidden {
		return ErrForbidden
	}
	return ErrUnauthorized
}

// Refusals counts the requests that their tokens did not admit. The zero Refusals is ready,
// and several gates may share it. It is safe for concurrent use.
type Refusals struct {
	counts [ClassOperate + 1][reasons]atomic.Int64
}

// Refused is how many requests of a class were refused for a reason.
type Refused struct {
	Class  Class
	Reason Reason
	N      int64
}

// All returns the counts of each class that needs a token and of each reason, also the zeros.
func (r *Refusals) All() []Refused {
	var all []Refused
	for class := ClassDecide; class <= ClassOperate; class++ {
		for reason := range Reason(reasons) {
			all = append(all, Refused{class, reason, r.counts[class][reason].Load()})
		}
	}
	return all
}

func (r *Refusals) add(e *Refusal) {
	if r != nil {
		r.counts[e.Class][e.Reason].Add(1)
	}
}
