package page

import (
	"math"
	"slices"
)

// scale is an axis with its range.
type scale struct {
	Axis
	low, high float64
}

// mark is a tick of an axis.
type mark struct {
	value float64
	label string
}

const (
	largest       = 1e300 // differences of figures within it do not overflow
	verticalMarks = 5     // texts beside a plot, about
)

// scaleOf returns the scale of all points of the lines.
func (a Axis) scaleOf(vertical bool, lines []Line) scale {
	a.Log = a.Log || a.Unit == Nines
	s := scale{Axis: a, low: math.Inf(1), high: math.Inf(-1)}
	for _, l := range lines {
		values := l.X
		if vertical {
			values = l.Y
		}
		for _, v := range values {
			if s.has(v) {
				s.low, s.high = min(s.low, v), max(s.high, v)
			}
		}
	}
	switch {
	case s.low > s.high && a.Log:
		s.low, s.high = 1, 10
	case s.low > s.high:
		s.low, s.high = 0, 1
	case a.Log:
		s.roundLog()
	default:
		s.roundLinear(vertical)
	}
	return s
}

// place returns where a value is between the ends of the axis, 0 and 1.
func (s scale) place(v float64) float64 {
	if s.Log {
		return (math.Log(v) - math.Log(s.low)) / (math.Log(s.high) - math.Log(s.low))
	}
	return (v - s.low) / (s.high - s.low)
}

// has reports whether a value has a place.
func (s scale) has(v float64) bool {
	return math.Abs(v) <= largest && (!s.Log || v >= 1/largest)
}

// roundLog extends the range to the next 1, 2 or 5.
func (s *scale) roundLog() {
	low, high := 0.0, math.Inf(1)
	for _, v := range oneTwoFive(s.low, s.high) {
		if v <= s.low*(1+1e-9) {
			low = max(low, v)
		}
		if v >= s.high*(1-1e-9) {
			high = min(high, v)
		}
	}
	if low == high {
		low, high = low/10, high*10
	}
	s.low, s.high = min(low, s.low), max(high, s.high)
}

// oneTwoFive returns the 1, 2 and 5 times powers of ten around a range.
func oneTwoFive(low, high float64) (list []float64) {
	from, to := int(math.Floor(math.Log10(low)))-1, int(math.Ceil(math.Log10(high)))+1
	for power := from; power <= to; power++ {
		for _, digit := range []float64{1, 2, 5} {
			list = append(list, digit*math.Pow10(power))
		}
	}
	return list
}

// roundLinear extends a vertical range to the next mark, and a very small one by some room.
func (s *scale) roundLinear(vertical bool) {
	atZero := vertical && s.Unit != Moment && s.low >= 0
	if atZero {
		s.low = 0
	}
	if size := max(math.Abs(s.low), math.Abs(s.high)); s.high-s.low <= max(size*1e-9, 1/largest) {
		room := max(size*1e-3, 1)
		s.low, s.high = s.low-room, s.high+room
		if atZero {
			s.low = 0
		}
	}
	if vertical {
		step := s.step(verticalMarks)
		s.low, s.high = math.Floor(s.low/step)*step, math.Ceil(s.high/step-1e-9)*step
	}
}

// step returns the distance between marks, at most count.
func (s scale) step(count int) float64 {
	wanted := (s.high - s.low) / float64(count)
	if s.Unit == Seconds || s.Unit == Moment {
		for _, step := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400} {
			if wanted > 0.5 && step >= wanted {
				return step
			}
		}
		if wanted > 86400 {
			return 86400 * niceStep(wanted/86400)
		}
	}
	return niceStep(wanted)
}

// niceStep returns the least 1, 2 or 5 times a power of ten that is not below.
func niceStep(wanted float64) float64 {
	power := math.Pow10(int(math.Floor(math.Log10(wanted))))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= wanted*(1-1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

// marks returns the ticks of the axis, about count.
func (s scale) marks(count int) (list []mark) {
	if s.Log {
		return s.logMarks(count)
	}
	step := s.step(count)
	for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high+step*1e-9 && len(list) <= 2*count; i++ {
		v := min(max(i*step, s.low), s.high)
		list = append(list, mark{v, s.label(v, step)})
	}
	return list
}

// logMarks are at every power of ten, or at every second, third and so on; also at 2 and 5 if
// they are few.
func (s scale) logMarks(count int) (list []mark) {
	all := slices.DeleteFunc(oneTwoFive(s.low, s.high), func(v float64) bool { return v < s.low*(1-1e-9) || v > s.high*(1+1e-9) })
	stride := int(max(1, math.Ceil(math.Log10(s.high/s.low)/float64(count))))
	for _, v := range all {
		power := math.Log10(v)
		whole := math.Round(power)
		if len(all) <= count && s.Unit != Nines || math.Abs(power-whole) < 1e-9 && int(whole)%stride == 0 {
			list = append(list, mark{min(max(v, s.low), s.high), s.label(v, 0)})
		}
	}
	return list
}

func (s scale) label(v, step float64) string {
	if math.Abs(v) < step*1e-9 {
		v = 0
	}
	if s.Unit != Moment {
		return s.Unit.text(v)
	}
	switch at := moment(v); {
	case step >= 86400:
		return at.Format("2 Jan")
	case s.high-s.low > 86400:
		return at.Format("2 Jan 15:04")
	case step >= 60:
		return at.Format("15:04")
	default:
		return at.Format("15:04:05")
	}
}
