package plan

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// WriteText writes the report as a text.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	if l := r.Log; l != nil {
		fmt.Fprintf(&b, "measured: %s hits; %s that no rule applies to, %s on a deny list\n\n",
			amount(float64(l.Hits)), amount(float64(l.Skipped)), amount(float64(l.Denied)))
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, "%s: %s hits/s, %s at the peak\n\n", e.Name, amount(e.Total.Average.Hits), amount(e.Total.Peak.Hits))
		for _, c := range e.Counters {
			c.write(&b)
		}
	}
	t, s := r.Total, r.Servers
	fmt.Fprintf(&b, "In all, replicas of each counter: %d\n\n", r.Replicas)
	writeTable(&b, 0, [][]string{
		{"counters", amount(t.Counters), "have an item, at most"},
		{"items", amount(t.Items), "at the peak"},
		{"item bytes", bytesText(t.ItemBytes), "as Memcached's stats count them"},
		{"memory of items", bytesText(t.SlabBytes), "in pages, of -m"},
	})
	b.WriteString("\n")
	rows := [][]string{{"a second", "average", "peak", ""}}
	for _, row := range []struct {
		name string
		text func(float64) string
		of   func(Rates) float64
	}{
		{"hits", amount, func(r Rates) float64 { return r.Hits }},
		{"trips", amount, func(r Rates) float64 { return r.Trips }},
		{"adds", amount, func(r Rates) float64 { return r.Adds }},
		{"reads", amount, func(r Rates) float64 { return r.Reads }},
		{"bytes to and from Memcached", bytesText, func(r Rates) float64 { return r.WireBytes }},
		{"CPU time of Memcached", cpuText, func(r Rates) float64 { return r.MemcachedCPU }},
		{"CPU time of counterd", cpuText, func(r Rates) float64 { return r.CounterdCPU }},
	} {
		rows = append(rows, []string{row.name, row.text(row.of(t.Average)), row.text(row.of(t.Peak)), ""})
	}
	writeTable(&b, tabwriter.AlignRight, rows)
	fmt.Fprintf(&b, "\nMemcached servers: %d, each with memcached -m %d: %d by memory, %d by CPU time, and one that may be lost\n",
		s.Needed, s.Megabytes, s.ByMemory, s.ByCPU)
	fmt.Fprintf(&b, `
After a loss each of the others has %s items, %s of them in pages, a table of %s,
and takes %s of memory; at the peak %s of CPU time and %s each second.
counterd takes %.1f cores at the peak, in two processes at least, to survive a loss.

Assumed:
`, amount(s.Items), bytesText(s.SlabBytes), bytesText(s.HashBytes), bytesText(s.MemoryBytes), cpuText(s.PeakCPU), bytesText(s.PeakWire), s.CounterdCores)
	for _, a := range r.Assumptions {
		b.WriteString("- " + a + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (c Counter) write(b *strings.Builder) {
	fmt.Fprintf(b, "per %s", c.Per)
	if len(c.Limits) > 0 {
		fmt.Fprintf(b, " (%s)", strings.Join(c.Limits, " "))
	}
	fmt.Fprintf(b, ", retention %s: %s a day\n", c.Retention, amount(c.FeaturesADay))
	rows := [][]string{{"buckets", "live", "a feature a day", "items at the peak", ""}}
	for _, l := range c.Levels {
		rows = append(rows, []string{l.Level, l.Lives, amount(l.ADay), amount(l.Items), ""})
	}
	writeTable(b, tabwriter.AlignRight, rows)
	f := c.Total
	fmt.Fprintf(b, "  %s counters, %s items, %s in pages; at the peak %s trips/s, %s adds/s, %s reads/s\n\n", amount(f.Counters),
		amount(f.Items), bytesText(f.SlabBytes), amount(f.Peak.Trips), amount(f.Peak.Adds), amount(f.Peak.Reads))
}

func writeTable(b *strings.Builder, flags uint, rows [][]string) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
}

// assumptions returns what a plan from numbers rests on.
func (c Config) assumptions() []string {
	return append([]string{
		"Every day is like every other; its features are those of the day before, or new ones.",
		"All features have equally many events, anywhere in the day, each for itself, which makes the most items. Sessions make fewer: a log shows them.",
		fmt.Sprintf("The peak is %g times the average, and lasts until the day's events have come; items are counted at its end.", c.Peak),
		"A hit has a feature of each kind of the event's rules. Kinds together without a number are as many as the most numerous kind.",
	}, c.commonAssumptions()...)
}

// assumptionsOfLog returns what a plan from a log rests on.
func (c Config) assumptionsOfLog(log Log, longest time.Duration) []string {
	length := time.Duration(log.seconds()) * time.Second
	list := []string{fmt.Sprintf("The traffic is the log's, from %s for %s. Items are the most of any second; the peak is the minute from %s.",
		log.First.Format(time.RFC3339), length, log.PeakAt.Format(time.RFC3339))}
	if length < longest {
		list = append(list, fmt.Sprintf("Buckets live for up to %s, longer than the log: in the end there are more items than it shows.", longest))
	}
	return append(list, c.commonAssumptions()...)
}

func (c Config) commonAssumptions() []string {
	list := []string{
		"Hits are far from their limits, also those of an event that a limit of 0 closes. Near one a counter costs a trip more, once a second in each process; a denial about six, and no items.",
		fmt.Sprintf("Hits come one by one, to %d processes; hits of a batch, and simultaneous hits on a counter, share trips.", processes),
		"CPU times are of the machine of docs/performance.md at half load, where a hit costs about twice that of row B2.",
		fmt.Sprintf("Memcached 1.6 with its default chunks (-n, -f); %g%% of the items' memory kept free, for expired items; %s beside -m and the hash table; at most %g%% of %g cores busy at the peak.",
			100*headroom, bytesText(baseMemory), 100*busy, c.Server.Cores),
	}
	if c.Rules.UseLogs() {
		list = append(list, "Hits on logs have cost 1, and let them grow until a rewrite; leases end by themselves. Logs that all begin at once leave pages of smaller chunks behind.")
	}
	return list
}

// amount writes a number with three significant digits, or whole with commas.
func amount(n float64) string {
	if n < 999.5 {
		return strconv.FormatFloat(n, 'g', 3, 64)
	}
	return columns.Grouped(int64(math.RoundToEven(n)))
}

// bytesText writes bytes in their unit.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for len(units) > 1 && n >= 1024 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatFloat(n, 'g', max(3, len(strconv.Itoa(int(n)))), 64) + " " + units[0]
}

// cpuText writes the CPU time of a second.
func cpuText(seconds float64) string {
	switch {
	case seconds < 0.001:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
