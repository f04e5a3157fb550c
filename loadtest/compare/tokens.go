package compare

import (
	"errors"
	"math/bits"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// errTooFine is returned for products of a limit and a time that are beyond an int64.
var errTooFine = errors.New("compare: the limit is too large for the token buckets of so long a log: leave out -exactly")

// tokens hold what a token bucket admitted to the bucket's own rule: no interval holds more than the burst and
// what returns in it.
type tokens struct {
	exactlog.Bucket       // each, when it is full
	n, unit, began  int64 // nanoseconds
	features        map[string]*exactlog.Bucket
	found           Held
}

// Held is how a token bucket kept to its own rule.
type Held struct {
	WrongAdmissions int64   `json:"wrong_admissions"`
	WrongDenials    int64   `json:"wrong_denials"`
	Most            int64   `json:"most"`  // tokens that any lacked
	Worst           float64 `json:"worst"` // that, in parts of the burst
}

// newTokens returns them for those hits. They go by seconds, or by the microseconds that a log has.
func (c Config) newTokens(hits []hit) (*tokens, error) {
	l, unit := limitOf(c.Limit), second
	if c.Exactly {
		unit = second / 1e6
	}
	rate, window := l.n, l.window/unit
	for a, b := rate, window; ; a, b = b, a%b {
		if b == 0 {
			rate, window = rate/a, window/a
			break
		}
	}
	began := hits[0].at / unit
	for _, factors := range [][2]int64{{hits[len(hits)-1].at/unit - began, rate}, {int64(len(hits)), window}} {
		if high, low := bits.Mul64(uint64(factors[0]), uint64(factors[1])); high > 0 || low >= 1<<61 {
			return nil, errTooFine
		}
	}
	return &tokens{exactlog.Bucket{Rate: rate, Window: window}, l.n, unit, began, map[string]*exactlog.Bucket{}, Held{}}, nil
}

// see judges a decision. Times do not go back.
func (b *tokens) see(feature string, now, cost int64, admitted bool) {
	one := b.features[feature]
	if one == nil {
		full := b.Bucket
		one = &full
		b.features[feature] = one
	}
	now = now/b.unit - b.began
	switch fits := one.Lacks(now)+cost <= b.n; {
	case !admitted:
		if fits {
			b.found.WrongDenials++
		}
		return
	case !fits:
		b.found.WrongAdmissions++
	}
	b.found.Most = max(b.found.Most, one.Add(now, cost))
}
