package page

import (
	"math"
	"strconv"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// Unit is the unit of an axis.
type Unit string

const (
	Plain        Unit = ""
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Percent      Unit = "%"
	PerSecond    Unit = "/s"
	Moment       Unit = "moment" // Unix time in seconds, shown in UTC
)

// scale is an axis with its range, and the distance between its marks: of a logarithmic one in
// powers of ten.
type scale struct {
	Axis
	low, high, step float64
}

// largest is far beyond any figure, and so near that differences keep their digits.
const largest = 1e15

// has reports whether a value has a place.
func (a Axis) has(v float64) bool { return math.Abs(v) <= largest && (!a.Log || v >= 1/largest) }

// scaleOf returns the scale of all points of the lines.
func (a Axis) scaleOf(lines []Line, vertical bool) scale {
	low, high, count := math.Inf(1), math.Inf(-1), 6.0
	for _, l := range lines {
		values := l.X
		if vertical {
			values, count = l.Y, 5
		}
		for _, v := range values {
			if a.has(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if low > high {
		low, high = 1, 1
	}
	if a.Log {
		from := math.Floor(math.Log10(low) + 1e-9)
		to := max(math.Ceil(math.Log10(high)-1e-9), from+1)
		return scale{a, math.Pow10(int(from)), math.Pow10(int(to)), math.Ceil((to - from) / count)}
	}
	if vertical && low >= 0 && a.Unit != Moment {
		low = 0
	}
	if size := max(math.Abs(low), math.Abs(high)); high-low <= max(size*1e-9, 1/largest) {
		high = low + max(size*1e-3, 1)
	}
	s := scale{a, low, high, a.stepOf((high - low) / count)}
	if vertical {
		s.low, s.high = math.Floor(low/s.step)*s.step, math.Ceil(high/s.step-1e-9)*s.step
	}
	return s
}

// stepOf returns a round distance between marks, at least the wanted one.
func (a Axis) stepOf(wanted float64) float64 {
	unit, digits := 1.0, []float64{1, 2, 5, 10}
	if a.Unit == Seconds || a.Unit == Moment {
		switch {
		case wanted > 86400:
			unit = 86400
		case wanted > 0.5:
			digits = []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400}
		}
	}
	if len(digits) == 4 {
		unit *= math.Pow10(int(math.Floor(math.Log10(wanted / unit))))
	}
	for _, digit := range digits {
		if digit*unit >= wanted*(1-1e-9) {
			return digit * unit
		}
	}
	return digits[len(digits)-1] * unit
}

// place returns where a value is between the ends of the axis, 0 and 1.
func (s scale) place(v float64) float64 {
	if s.Log {
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

func (s scale) marks() (list []float64) {
	if s.Log {
		for v := s.low; v <= s.high*(1+1e-9); v *= math.Pow10(int(s.step)) {
			list = append(list, v)
		}
		return list
	}
	for i := int64(math.Ceil(s.low/s.step - 1e-9)); float64(i)*s.step <= s.high+s.step*1e-9; i++ {
		list = append(list, float64(i)*s.step)
	}
	return list
}

// label writes a mark. Those of moments say as much as tells them apart.
func (s scale) label(v float64) string {
	if s.Unit != Moment {
		return s.Unit.text(v)
	}
	switch at := time.Unix(int64(v), 0).UTC(); {
	case s.step >= 86400:
		return at.Format("2 Jan")
	case s.high-s.low > 86400:
		return at.Format("2 Jan 15:04")
	case s.step >= 60:
		return at.Format("15:04")
	default:
		return at.Format("15:04:05")
	}
}

// text writes a value with its unit.
func (u Unit) text(v float64) string {
	switch u {
	case Seconds:
		return duration(v)
	case Milliseconds:
		return duration(v / 1000)
	case Moment:
		return time.Unix(int64(v), 0).UTC().Format(time.DateTime)
	}
	return number(v) + string(u)
}

// number writes up to four digits: with a comma between thousands, and a prefix from a million on.
func number(v float64) string {
	prefixes := []string{" M", " G", " T"}
	switch size := math.Abs(v); {
	case size < 1e3:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case size < 1e6:
		return columns.Rounded(v)
	}
	for v /= 1e6; math.Abs(v) >= 1000 && len(prefixes) > 1; v /= 1000 {
		prefixes = prefixes[1:]
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + prefixes[0]
}

// duration writes seconds in the unit that suits them.
func duration(seconds float64) string {
	for _, unit := range []struct {
		name                string
		seconds, from, each float64 // from how many seconds on, if they are a multiple
	}{
		{" d", 86400, 86400, 86400}, {" h", 3600, 3600, 1800}, {" min", 60, 60, 30}, {" s", 1, 1, 0}, {" ms", 1e-3, 1e-3, 0},
	} {
		if math.Abs(seconds) >= unit.from && (unit.each == 0 || math.Mod(seconds, unit.each) == 0) {
			return number(seconds/unit.seconds) + unit.name
		}
	}
	if seconds == 0 {
		return "0"
	}
	return number(seconds*1e6) + " µs"
}
