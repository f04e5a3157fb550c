package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// Unit is the unit of an axis. Any other text than these follows the number.
type Unit string

const (
	Plain        Unit = ""
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Bytes        Unit = "B"
	Percent      Unit = "%"
	PerSecond    Unit = "/s"
	Moment       Unit = "moment" // Unix time in seconds, shown in UTC
	// Nines shows a quantile q as the value 1/(1-q), on a logarithmic axis: the last
	// thousandth has as much room as the last tenth.
	Nines Unit = "nines"
)

// text writes a value with its unit.
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
	case Percent, PerSecond:
		return number(v) + string(u)
	case Moment:
		return moment(v).Format("2006-01-02 15:04:05")
	case Nines:
		return nines(v)
	}
	return number(v) + " " + string(u)
}

// number writes commas between thousands, and a prefix from a million on.
func number(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1e6:
		return prefixed(v, "")
	case size >= 1e3:
		return columns.Rounded(v)
	}
	return digits(v)
}

// digits writes four significant digits, without zeros at the end.
func digits(v float64) string {
	size := math.Abs(v)
	if size >= 1e7 || size < 1e-4 && size > 0 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	places := 0
	if v != 0 {
		places = max(0, 3-int(math.Floor(math.Log10(size))))
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if places > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func prefixed(v float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	for math.Abs(v) >= 1000 && len(prefixes) > 1 {
		v, prefixes = v/1000, prefixes[1:]
	}
	return strings.TrimSpace(digits(v) + " " + prefixes[0] + unit)
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

// nines writes the quantile of which v is 1/(1-q).
func nines(v float64) string {
	if v < 1 || v > 1e12 {
		return digits(v)
	}
	left := 100 / v // exact, unlike the quotient
	places := max(0, int(math.Ceil(-math.Log10(left)-1e-9)))
	return fmt.Sprintf("%.*f%%", places, 100-left)
}

// moment returns a time in a year of four digits.
func moment(v float64) time.Time {
	const last = 253402300799
	return time.Unix(int64(min(max(v, 0), last)), 0).UTC()
}
