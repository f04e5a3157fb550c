package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is what the values of an axis are counted in. Any other one than these is put
// behind the number.
type Unit string

const (
	Plain        Unit = ""
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Bytes        Unit = "B"
	Percent      Unit = "%"
	PerSecond    Unit = "/s"
	// Moment is Unix time in seconds, shown in UTC.
	Moment Unit = "moment"
	// Nines shows quantiles with as much room for the last thousandth as for the last
	// tenth: the value of a quantile q is 1/(1-q), and the axis is logarithmic.
	Nines Unit = "nines"
)

// text writes a value so that it can be read.
func (u Unit) text(v float64) string {
	switch u {
	case Plain:
		return number(v)
	case Seconds:
		return duration(v)
	case Milliseconds:
		return duration(v / 1000)
	case Bytes:
		return prefixed(v, "B")
	case Percent:
		return number(v) + "%"
	case PerSecond:
		return number(v) + "/s"
	case Moment:
		return moment(v).Format("2006-01-02 15:04:05")
	case Nines:
		return nines(v)
	}
	return number(v) + " " + string(u)
}

// number has commas between thousands, and a prefix from a million on.
func number(v float64) string {
	if math.Abs(v) >= 1e6 {
		return prefixed(v, "")
	}
	text := digits(v)
	if strings.Contains(text, "e") {
		return text
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	whole, rest, _ := strings.Cut(text, ".")
	if len(whole) > 3 {
		whole = whole[:len(whole)-3] + "," + whole[len(whole)-3:]
	}
	if rest != "" {
		rest = "." + rest
	}
	return sign + whole + rest
}

// digits are four that count, without zeros at the end.
func digits(v float64) string {
	if size := math.Abs(v); size >= 1e7 || size < 1e-4 && size > 0 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	places := 0
	if v != 0 {
		places = max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func prefixed(v float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for math.Abs(v) >= 1000 && i < len(prefixes)-1 {
		v, i = v/1000, i+1
	}
	return strings.TrimSpace(digits(v) + " " + prefixes[i] + unit)
}

func duration(seconds float64) string {
	size := math.Abs(seconds)
	switch {
	case size == 0:
		return "0"
	case size < 1e-3:
		return number(seconds*1e6) + " µs"
	case size < 1:
		return number(seconds*1e3) + " ms"
	case size >= 86400 && math.Mod(size, 86400) == 0:
		return number(seconds/86400) + " d"
	case size >= 3600 && math.Mod(size, 1800) == 0:
		return number(seconds/3600) + " h"
	case size >= 60 && math.Mod(size, 30) == 0:
		return number(seconds/60) + " min"
	}
	return number(seconds) + " s"
}

func nines(v float64) string {
	if v < 1 || v > 1e12 {
		return digits(v)
	}
	// What is left is short, and written exactly; a quotient such as 99.9 may not be.
	left := 100 / v
	places := max(0, int(math.Ceil(-math.Log10(left)-1e-9)))
	return fmt.Sprintf("%.*f%%", places, 100-left)
}

// moment keeps to the years that have four digits.
func moment(v float64) time.Time {
	const last = 253402300799
	return time.Unix(int64(min(max(v, 0), last)), 0).UTC()
}
