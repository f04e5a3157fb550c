package page

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// Unit is the unit of an axis.
type Unit string

const (
	Plain   Unit = ""
	Percent Unit = "%"
	Moment  Unit = "moment" // Unix time in seconds, shown in UTC
)

// scale is an axis with its range, and the distance between its marks: of a logarithmic one in
// powers of ten.
type scale struct {
	Axis
	low, high, step float64
}

// scaleOf returns the scale of values, with about so many marks.
func (a Axis) scaleOf(values []float64, marks float64) scale {
	if len(values) == 0 {
		values = []float64{1}
	}
	low, high := slices.Min(values), slices.Max(values)
	switch {
	case a.Log:
		from := math.Floor(math.Log10(low) + 1e-9)
		to := max(math.Ceil(math.Log10(high)-1e-9), from+1)
		return scale{a, math.Pow10(int(from)), math.Pow10(int(to)), math.Ceil((to - from) / marks)}
	case a.Unit == Moment:
		high = max(high, low+1)
		return scale{a, low, high, stepOfTime((high - low) / marks)}
	}
	step := stepOf(max(high, 1) / marks)
	return scale{a, 0, math.Ceil(max(high, 1)/step) * step, step}
}

// stepOf returns a round distance between marks, a whole number, at least the wanted one.
func stepOf(wanted float64) float64 {
	for power := 1.0; ; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if digit*power >= wanted {
				return digit * power
			}
		}
	}
}

// stepOfTime is stepOf for seconds: a part of a minute, an hour or a day, or days.
func stepOfTime(wanted float64) float64 {
	const day = 86400
	for _, step := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200} {
		if step >= wanted {
			return step
		}
	}
	return day * stepOf(wanted/day)
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
	for v := math.Ceil(s.low/s.step) * s.step; v <= s.high; v += s.step {
		list = append(list, v)
	}
	return list
}

// label writes a mark. Those of moments say as much as tells them apart.
func (s scale) label(v float64) string {
	if s.Unit != Moment {
		return s.Unit.text(v)
	}
	layout := "15:04:05"
	switch {
	case s.step >= 86400:
		layout = "2 Jan"
	case s.high-s.low > 86400:
		layout = "2 Jan 15:04"
	case s.step >= 60:
		layout = "15:04"
	}
	return time.Unix(int64(v), 0).UTC().Format(layout)
}

// text writes a value with its unit; one of no moments.
func (u Unit) text(v float64) string {
	if v < 1000 {
		return strconv.FormatFloat(v, 'g', 4, 64) + string(u)
	}
	return columns.Rounded(v) + string(u)
}
