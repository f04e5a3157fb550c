package arrival

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrProfile is wrapped by errors of Parse.
var ErrProfile = errors.New("no profile of arrivals")

// Forms are examples of profiles.
const Forms = "1000, ramp:100-2000, step:100x10s,500x20s or burst:100+2000/10s"

// Parse reads a profile:
//
//	1000                    a constant rate, arrivals a second
//	ramp:100-2000           from one rate to another, over the length of the run
//	step:100x10s,500x20s    rates, each for a while
//	burst:100+2000/10s      a rate, and every 10s 2,000 more at once
//
// over is the length of the run.
func Parse(s string, over time.Duration) (Profile, error) {
	var p parser
	var profile Profile
	name, rest, named := strings.Cut(s, ":")
	switch {
	case !named:
		rate := p.rate(s)
		p.require(rate > 0, "a rate is above 0")
		profile = Constant(rate)
	case name == "ramp":
		from, to, _ := strings.Cut(rest, "-")
		ramp := Ramp{p.rate(from), p.rate(to), over}
		p.require(ramp.From+ramp.To > 0 && over > 0, "a ramp goes from 0 or to 0, and takes its time")
		profile = ramp
	case name == "step":
		profile = p.steps(rest)
	case name == "burst":
		profile = p.burst(rest)
	default:
		p.require(false, "it is written like "+Forms)
	}
	return profile, p.err
}

// parser keeps the first error.
type parser struct{ err error }

func (p *parser) require(right bool, text string) {
	if !right && p.err == nil {
		p.err = fmt.Errorf("%w: %s", ErrProfile, text)
	}
}

func (p *parser) steps(s string) (steps Steps) {
	var sum float64
	for part := range strings.SplitSeq(s, ",") {
		number, length, _ := strings.Cut(part, "x")
		steps = append(steps, Step{p.rate(number), p.length(length)})
		sum += steps[len(steps)-1].Rate
	}
	p.require(sum > 0, "one step at least has a rate above 0")
	return steps
}

func (p *parser) burst(s string) Burst {
	base, rest, _ := strings.Cut(s, "+")
	size, period, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	p.require(err == nil && n > 0, fmt.Sprintf("the size of a burst is a number above 0, not %q", size))
	b := Burst{p.rate(base), n, p.length(period)}
	p.require(p.err != nil || b.Base+float64(n)/b.Every.Seconds() <= MaxRate, fmt.Sprintf("there are at the most %d arrivals a second", MaxRate))
	return b
}

func (p *parser) rate(s string) float64 {
	rate, err := strconv.ParseFloat(s, 64)
	p.require(err == nil && rate >= 0 && rate <= MaxRate, fmt.Sprintf("a rate is 0 to %d a second, not %q; it is written like %s", MaxRate, s, Forms))
	return rate
}

func (p *parser) length(s string) time.Duration {
	length, err := time.ParseDuration(s)
	p.require(err == nil && length >= time.Millisecond, fmt.Sprintf("a length is 1ms or more, not %q; it is written like %s", s, Forms))
	return length
}
