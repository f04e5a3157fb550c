package events

import (
	"strconv"
	"strings"
)

// ThrottleKind says what happens above a limit's N.
type ThrottleKind uint8

// The kinds of throttle.
const (
	Hard    ThrottleKind = iota // never above N
	Soft                        // up to a ceiling above N, what lies above N is marked
	Elastic                     // above N while the whole event stays under its own limit
)

// MaxSoftPercent is the most that a soft throttle admits above N, in percent.
const MaxSoftPercent = 1000

// Throttle says how strictly a rule's limits are kept. The zero Throttle is
// hard.
type Throttle struct {
	Kind    ThrottleKind
	Percent int64 // of a soft throttle: how far above N it goes, 1 to MaxSoftPercent
}

// Ceiling returns how many a limit of n admits at most: for a soft throttle n
// and its percentage, rounded down; else n, above which an elastic throttle asks
// the limit of the whole event.
func (t Throttle) Ceiling(n int64) int64 {
	if t.Kind != Soft {
		return n
	}
	// floor(n*p/100) by parts: exact, and far from overflow.
	return n + n/100*t.Percent + n%100*t.Percent/100
}

// String returns the throttle as a rules file has it: hard, soft 10%, elastic.
func (t Throttle) String() string {
	switch t.Kind {
	case Soft:
		return "soft " + strconv.FormatInt(t.Percent, 10) + "%"
	case Elastic:
		return "elastic"
	}
	return "hard"
}

// parseThrottle undoes Throttle.String, or says what is wrong. The % may be left out.
func parseThrottle(s string) (t Throttle, reason string) {
	switch s {
	case "hard":
		return Throttle{}, ""
	case "elastic":
		return Throttle{Kind: Elastic}, ""
	}
	kind, amount, _ := strings.Cut(s, " ")
	digits := strings.TrimSuffix(strings.TrimSpace(amount), "%")
	if kind != "soft" || digits == "" {
		return Throttle{}, "a throttle is hard, soft N% as in soft 10%, or elastic"
	}
	p, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || p < 1 || p > MaxSoftPercent {
		return Throttle{}, "the percentage of soft is a whole number from 1 to " + strconv.Itoa(MaxSoftPercent)
	}
	return Throttle{Kind: Soft, Percent: int64(p)}, ""
}
