package arrival

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrProfile is what is wrong with a profile.
var ErrProfile = errors.New("no profile of arrivals")

// Forms are how a profile is written.
const Forms = "1000, ramp:100-2000, step:100x10s,500x20s or burst:100+2000/10s"

// Parse reads a profile as its String writes it:
//
//	1000                    a constant rate, arrivals a second
//	ramp:100-2000           from one rate to another, over the length of the run
//	step:100x10s,500x20s    rates, each for a while
//	burst:100+2000/10s      a rate, and every 10s 2,000 more at once
//	burst:100+2000@5000/10s and those at 5,000 a second
//
// over is the length of the run.
func Parse(s string, over time.Duration) (Profile, error) {
	name, rest, named := strings.Cut(s, ":")
	if !named {
		rate, err := parseRate(s)
		if err == nil && rate == 0 {
			err = fmt.Errorf("%w: a rate is above 0", ErrProfile)
		}
		return Constant(rate), err
	}
	switch name {
	case "ramp":
		return parseRamp(rest, over)
	case "step":
		return parseSteps(rest)
	case "burst":
		return parseBurst(rest)
	}
	return nil, fmt.Errorf("%w: it is written like %s", ErrProfile, Forms)
}

func parseRamp(s string, over time.Duration) (Profile, error) {
	from, to, _ := strings.Cut(s, "-")
	first, err := parseRate(from)
	if err != nil {
		return nil, err
	}
	last, err := parseRate(to)
	if err != nil {
		return nil, err
	}
	if first+last == 0 || over <= 0 {
		return nil, fmt.Errorf("%w: a ramp goes from 0 or to 0, and takes its time", ErrProfile)
	}
	return Ramp{first, last, over}, nil
}

func parseSteps(s string) (Profile, error) {
	var steps Steps
	var sum float64
	for part := range strings.SplitSeq(s, ",") {
		number, length, _ := strings.Cut(part, "x")
		rate, err := parseRate(number)
		if err != nil {
			return nil, err
		}
		long, err := parseLength(length)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{rate, long})
		sum += rate
	}
	if sum == 0 {
		return nil, fmt.Errorf("%w: one step at least has a rate above 0", ErrProfile)
	}
	return steps, nil
}

func parseBurst(s string) (Profile, error) {
	var b Burst
	base, rest, _ := strings.Cut(s, "+")
	burst, period, _ := strings.Cut(rest, "/")
	size, speed, fast := strings.Cut(burst, "@")
	var err error
	if b.Base, err = parseRate(base); err != nil {
		return nil, err
	}
	if b.Size, err = strconv.ParseInt(size, 10, 64); err != nil || b.Size < 1 {
		return nil, fmt.Errorf("%w: the size of a burst is a number above 0, not %q", ErrProfile, size)
	}
	if fast {
		if b.Speed, err = parseRate(speed); err != nil {
			return nil, err
		}
	}
	if b.Every, err = parseLength(period); err != nil {
		return nil, err
	}
	switch {
	case b.Rate(0) > MaxRate:
		return nil, fmt.Errorf("%w: there are at the most %d arrivals a second", ErrProfile, MaxRate)
	case fast && float64(b.Size) > b.Speed*b.Every.Seconds():
		return nil, fmt.Errorf("%w: a burst takes longer than its period", ErrProfile)
	}
	return b, nil
}

func parseRate(s string) (float64, error) {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate >= 0 && rate <= MaxRate) {
		return 0, fmt.Errorf("%w: a rate is 0 to %d a second, not %q; it is written like %s", ErrProfile, MaxRate, s, Forms)
	}
	return rate, nil
}

func parseLength(s string) (time.Duration, error) {
	length, err := time.ParseDuration(s)
	if err != nil || length < time.Millisecond {
		return 0, fmt.Errorf("%w: a length is 1ms or more, not %q; it is written like %s", ErrProfile, s, Forms)
	}
	return length, nil
}

func text(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) }

// String returns the rate.
func (c Constant) String() string { return text(float64(c)) }

// String returns the ramp, without its length.
func (r Ramp) String() string { return "ramp:" + text(r.From) + "-" + text(r.To) }

// String returns the steps.
func (s Steps) String() string {
	parts := make([]string, len(s))
	for i, step := range s {
		parts[i] = text(step.Rate) + "x" + step.Length.String()
	}
	return "step:" + strings.Join(parts, ",")
}

// String returns the burst.
func (b Burst) String() string {
	speed := ""
	if b.Speed > 0 {
		speed = "@" + text(b.Speed)
	}
	return fmt.Sprintf("burst:%s+%d%s/%s", text(b.Base), b.Size, speed, b.Every)
}
