package plan

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/counterd/counterd/loadtest/columns"
)

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var text strings.Builder
	if l := r.Log; l != nil {
		fmt.Fprintf(&text, "measured: %s hits, and %s that no rule applies to, %s on a deny list\n\n",
			amount(float64(l.Hits)), amount(float64(l.Skipped)), amount(float64(l.Denied)))
	}
	for _, e := range r.Events {
		e.write(&text)
	}
	r.writeTotal(&text)
	r.writeServers(&text)
	text.WriteString("Assumed:\n")
	for _, a := range r.Assumptions {
		text.WriteString(wrap("- "+a, "  "))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (e Event) write(text *strings.Builder) {
	fmt.Fprintf(text, "%s: %s hits/s, %s at the peak\n\n", e.Name, amount(e.Total.Average.Hits), amount(e.Total.Peak.Hits))
	for _, c := range e.Counters {
		c.write(text)
	}
}

func (c Counter) write(text *strings.Builder) {
	fmt.Fprintf(text, "per %s", c.Per)
	if len(c.Limits) > 0 {
		fmt.Fprintf(text, " (%s)", strings.Join(c.Limits, " "))
	}
	fmt.Fprintf(text, ", remembered for %s: %s a day\n", c.Retention, amount(c.FeaturesADay))
	if c.Shut {
		text.WriteString("  a limit of 0 denies every hit: nothing is added\n\n")
		return
	}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "buckets\tlive\ta feature a day\titems at the peak\t\n")
	for _, l := range c.Levels {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\n", l.Level, l.Lives, amount(l.ADay), amount(l.Items))
	}
	table.Flush()
	f := c.Total
	fmt.Fprintf(text, "  %s counters, %s items, %s in pages; at the peak %s trips/s, %s adds/s, %s reads/s\n\n", amount(f.Counters),
		amount(f.Items), bytesText(f.SlabBytes), amount(f.Peak.Trips), amount(f.Peak.Adds), amount(f.Peak.Reads))
}

func (r *Report) writeTotal(text *strings.Builder) {
	fmt.Fprintf(text, "In all, %s:\n\n", copiesText(r.Replicas))
	t := r.Total
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "counters\t%s\thave an item, at the most\n", amount(t.Counters))
	fmt.Fprintf(table, "items\t%s\tat the peak\n", amount(t.Items))
	fmt.Fprintf(table, "item bytes\t%s\twhat Memcached's stats call bytes\n", bytesText(t.ItemBytes))
	fmt.Fprintf(table, "memory of items\t%s\tin pages, of -m\n", bytesText(t.SlabBytes))
	table.Flush()
	text.WriteString("\n")
	table = tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "a second\taverage\tpeak\t\n")
	for _, row := range []struct {
		name string
		of   func(Rates) string
	}{
		{"hits", func(r Rates) string { return amount(r.Hits) }},
		{"trips", func(r Rates) string { return amount(r.Trips) }},
		{"adds", func(r Rates) string { return amount(r.Adds) }},
		{"reads", func(r Rates) string { return amount(r.Reads) }},
		{"bytes to and from Memcached", func(r Rates) string { return bytesText(r.WireBytes) }},
		{"CPU time of Memcached", func(r Rates) string { return cpuText(r.MemcachedCPU) }},
		{"CPU time of counterd", func(r Rates) string { return cpuText(r.CounterdCPU) }},
	} {
		fmt.Fprintf(table, "%s\t%s\t%s\t\n", row.name, row.of(t.Average), row.of(t.Peak))
	}
	table.Flush()
	text.WriteString("\n")
}

func (r *Report) writeServers(text *strings.Builder) {
	s := r.Servers
	fmt.Fprintf(text, "Memcached servers: %d, each with memcached -m %d\n\n", s.Needed, s.Megabytes)
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "by memory\t%d\n", s.ByMemory)
	fmt.Fprintf(table, "by CPU time\t%d\n", s.ByCPU)
	fmt.Fprintf(table, "to survive a loss\t%d\t%s\n", s.ByLoss, s.Reason)
	table.Flush()
	fmt.Fprintf(text, `
With one gone each of the others has %s items, %s of them in pages, and a table of
%s, and takes %s of memory; at the peak %s of CPU time and %s each second.
counterd takes %.1f cores at the peak, in two processes at least, that one may be gone.

`, amount(s.Items), bytesText(s.SlabBytes), bytesText(s.HashBytes), bytesText(s.MemoryBytes), cpuText(s.PeakCPU), bytesText(s.PeakWire), s.CounterdCores)
}

func copiesText(n int) string {
	if n == 1 {
		return "with one copy of each counter"
	}
	return fmt.Sprintf("with %d copies of each counter", n)
}

// amount writes a number with three places that mean something, or in whole with commas.
func amount(n float64) string {
	if n < 999.5 {
		return strconv.FormatFloat(n, 'g', 3, 64)
	}
	return columns.Grouped(int64(math.RoundToEven(n)))
}

// bytesText writes bytes in the unit that suits them.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for len(units) > 1 && n >= 1024 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatFloat(n, 'g', max(3, len(strconv.Itoa(int(n)))), 64) + " " + units[0]
}

// cpuText writes a CPU time of a second, in seconds or in parts of one.
func cpuText(seconds float64) string {
	switch {
	case seconds < 0.001:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// wrap breaks a line between words; those that follow begin with the indent.
func wrap(line, indent string) string {
	const width = 96
	var text strings.Builder
	length := 0
	for i, word := range strings.Fields(line) {
		switch {
		case i == 0:
		case length+1+len(word) > width:
			text.WriteString("\n" + indent)
			length = len(indent)
		default:
			text.WriteString(" ")
			length++
		}
		text.WriteString(word)
		length += len(word)
	}
	return text.String() + "\n"
}
