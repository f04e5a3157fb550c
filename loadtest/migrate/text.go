package migrate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/loadtest/columns"
)

// noLimit stands for a limit that is not named.
const noLimit = "no limit"

// String returns the answer in words.
func (a Answer) String() string {
	text := a.Verdict
	if a.failed() {
		return text
	}
	if a.Limit == "" {
		return text + ", " + noLimit
	}
	text += fmt.Sprintf(", %d of %s", a.Remaining, a.Limit)
	if a.Reset > 0 {
		text += fmt.Sprintf(", reset in %ds", a.Reset)
	}
	return text
}

// WriteText writes the report as text.
func (r *Report) WriteText(out io.Writer) error {
	var t strings.Builder
	row := func(name, text string) { fmt.Fprintf(&t, "%-10s %s\n", name, text) }
	row("-from", r.From)
	row("-to", r.To)
	row("domain", r.Domain)
	row("traffic", r.Traffic)
	interrupted := ""
	if r.Interrupted {
		interrupted = "; interrupted"
	}
	row("requests", columns.Grouped(r.Requests)+interrupted)
	row("same", fmt.Sprintf("%s admitted, %s denied by both", columns.Grouped(r.Admitted), columns.Grouped(r.Denied)))
	if r.Failed > 0 {
		row("failed", columns.Grouped(r.Failed)+" without a verdict of either")
	}
	if r.NoLimit > 0 {
		row("no limit", columns.Grouped(r.NoLimit)+" of these: neither has a limit for them")
	}
	if r.OtherLimit > 0 {
		row("limits", fmt.Sprintf("%s of the same verdict by different limits, such as %s and %s", columns.Grouped(r.OtherLimit), r.Example[0], r.Example[1]))
	}
	row("different", columns.Grouped(r.Different))
	for _, c := range r.Causes {
		row("", columns.Grouped(c.Requests)+" × "+c.Cause)
	}
	if len(r.Differences) > 0 {
		t.WriteString("\n")
		table := tabwriter.NewWriter(&t, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "request\tasked\tdescriptor\thits\t-from\t-to\tcause")
		for _, d := range r.Differences {
			asked := d.Asked.UTC().Format(time.TimeOnly)
			if !d.Logged.IsZero() {
				asked += ", logged " + d.Logged.UTC().Format(time.DateTime)
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", d.Number, asked, d.Descriptor, d.Cost, d.From, d.To, d.Cause)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if more := r.Different - int64(len(r.Differences)); more > 0 {
			fmt.Fprintf(&t, "and %s more\n", columns.Grouped(more))
		}
	}
	_, err := io.WriteString(out, t.String())
	return err
}
