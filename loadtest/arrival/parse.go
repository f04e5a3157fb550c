package arrival

import (
	"errors"
	"fmt"
	"math"
	"slices"
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
func Parse(s string, over time.Duration) (profile Profile, err error) {
	right := false
	name, rest, named := strings.Cut(s, ":")
	switch {
	case !named:
		rate := parseRate(s)
		profile, right = Constant(rate), rate > 0
	case name == "ramp":
		from, to, _ := strings.Cut(rest, "-")
		ramp := Ramp{parseRate(from), parseRate(to), over}
		profile, right = ramp, ramp.From+ramp.To > 0 && over > 0
	case name == "step":
		var steps Steps
		arrivals := 0.0
		for part := range strings.SplitSeq(rest, ",") {
			number, length, _ := strings.Cut(part, "x")
			step := Step{parseRate(number), parseLength(length)}
			steps, arrivals = append(steps, step), arrivals+step.Rate*step.Length.Seconds()
		}
		profile, right = steps, arrivals > 0 && !slices.ContainsFunc(steps, func(step Step) bool { return step.Length == 0 })
	case name == "burst":
		base, rest, _ := strings.Cut(rest, "+")
		size, period, _ := strings.Cut(rest, "/")
		n, _ := strconv.ParseInt(size, 10, 64) // 0, or too many, if it is no number
		b := Burst{parseRate(base), n, parseLength(period)}
		profile, right = b, n > 0 && b.Every > 0 && b.Base+float64(n)/b.Every.Seconds() <= MaxRate
	}
	if !right {
		return nil, fmt.Errorf("%w: it is written like %s; there are arrivals, %d a second at the most, and lengths of 1ms or more", ErrProfile, Forms, MaxRate)
	}
	return profile, nil
}

// parseRate reads arrivals a second. Without a rate from 0 to MaxRate it returns NaN, which is
// neither above nor below any bound.
func parseRate(s string) float64 {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate >= 0 && rate <= MaxRate) {
		return math.NaN()
	}
	return rate
}

// parseLength reads a length of time. Without one of a millisecond or more it returns 0.
func parseLength(s string) time.Duration {
	length, err := time.ParseDuration(s)
	if err != nil || length < time.Millisecond {
		return 0
	}
	return length
}
