package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/columns"
)

// report writes the tables in Markdown. Speed is compared with the first row.
func report(config Config, rows []*Row, now time.Time) string {
	var text strings.Builder
	cores := runtime.NumCPU()
	fmt.Fprintf(&text, "Measured on %s, on %d shared cores, %s/%s, %s, seed %d.\n", now.UTC().Format(time.DateOnly), cores,
		runtime.GOOS, runtime.GOARCH, runtime.Version(), config.Seed)
	head := []string{"", "its promise"}
	for _, l := range config.Limits {
		head = append(head, "most in "+events.FormatDuration(l.Window))
	}
	head = append(head, "beyond its promise", "false denials", "retry_after true", "too early", "too late", "undecided")
	exact := [][]string{head}
	cost := [][]string{{"", "store", "bytes a user", "hits a second", "ratio"}}
	versions := [][]string{{"", "version"}}
	var missing, faults []string
	for _, row := range rows {
		if row.Missing != "" {
			missing = append(missing, fmt.Sprintf("- %s: not measured: %s\n", row.Name, row.Missing))
			continue
		}
		if row.Fault != nil {
			faults = append(faults, fmt.Sprintf("- %s: %s\n", row.Name, strings.Join(strings.Fields(row.Fault.Error()), " ")))
		}
		if !row.started {
			continue
		}
		exact = append(exact, row.exactCells(config.Limits))
		cost = append(cost, row.costCells(rows[0]))
		name, _, _ := strings.Cut(row.Name, ",")
		if !slices.ContainsFunc(versions, func(v []string) bool { return v[0] == name && v[1] == row.Version }) {
			versions = append(versions, []string{name, row.Version})
		}
	}
	text.WriteString("\n### Exactness\n\n" + table(exact) + "\n### Cost\n\n" + table(cost))
	text.WriteString("\n### Where counterd loses\n\n" + strings.Join(losses(config.Limits, rows), ""))
	text.WriteString("\n### Versions\n\n" + table(versions))
	if len(missing) > 0 {
		text.WriteString("\n### Not measured\n\n" + strings.Join(missing, ""))
	}
	if len(faults) > 0 {
		text.WriteString("\n### First errors\n\n" + strings.Join(faults, ""))
	}
	return text.String()
}

func (r *Row) exactCells(limits []Limit) []string {
	cells := []string{r.Name, r.Promise.String()}
	var all Judgment
	for _, l := range limits {
		j := r.Judgments[l.Name]
		all.add(j)
		cells = append(cells, fmt.Sprintf("%.2f", j.Worst))
	}
	share, judged := r.Retries.True()
	retry := []string{"–", "–", "–"}
	if r.Retries.Silent > 0 {
		retry[0] = "silent"
	}
	if judged {
		retry = []string{
			fmt.Sprintf("%.0f%%", 100*share),
			fmt.Sprintf("%d of %d", r.Retries.TooEarly, r.Retries.TooEarly+r.Retries.Punctual),
			fmt.Sprintf("%d of %d", r.Retries.TooLate, r.Retries.TooLate+r.Retries.Premature),
		}
	}
	denials := fmt.Sprintf("%s of %s", columns.Grouped(int64(all.FalseDenials)), columns.Grouped(int64(all.Denied)))
	cells = append(cells, columns.Grouped(all.Broken), denials)
	return append(append(cells, retry...), columns.Grouped(int64(all.Undecided)))
}

func (r *Row) costCells(first *Row) []string {
	cells := []string{r.Name, r.Where, columns.Rounded(r.Bytes), "–", "–"}
	if len(r.Rates) > 0 {
		least, most := columns.Rounded(slices.Min(r.Rates)), columns.Rounded(slices.Max(r.Rates))
		cells[3] = fmt.Sprintf("%s (%s–%s)", columns.Rounded(median(r.Rates)), least, most)
		if each := ratios(r.Rates, first.Rates); r != first && len(each) > 0 {
			cells[4] = fmt.Sprintf("%.2f× (%.2f–%.2f)", median(each), slices.Min(each), slices.Max(each))
		}
	}
	return cells
}

// losses lists, for each measure, which others do better than the first row, counterd; of hits a second, than each row of
// counterd. A contender that admits no hit is better at none.
func losses(limits []Limit, rows []*Row) (lines []string) {
	type measure struct {
		name string
		of   func(*Row) (figure float64, text string, measured bool) // the smaller the better
	}
	var measures []measure
	for _, l := range limits {
		measures = append(measures, measure{"the most in " + events.FormatDuration(l.Window), func(r *Row) (float64, string, bool) {
			worst := r.Judgments[l.Name].Worst
			return worst, fmt.Sprintf("%.2f", worst), worst > 0
		}})
	}
	for _, measure := range append(measures, []measure{
		{"false denials", func(r *Row) (float64, string, bool) {
			return float64(r.all().FalseDenials), columns.Grouped(int64(r.all().FalseDenials)), true
		}},
		{"true retry_after", func(r *Row) (float64, string, bool) {
			share, judged := r.Retries.True()
			return -share, fmt.Sprintf("%.0f%%", 100*share), judged
		}},
		{"bytes a user", func(r *Row) (float64, string, bool) { return r.Bytes, columns.Rounded(r.Bytes), r.Bytes > 0 }},
		{hitsASecond, func(r *Row) (float64, string, bool) {
			return -median(r.Rates), columns.Rounded(median(r.Rates)), len(r.Rates) > 0
		}},
	}...) {
		for i, ours := range rows {
			own, text, measured := measure.of(ours)
			if !measured || !ours.started || !isCounterd(ours) || i > 0 && measure.name != hitsASecond {
				continue
			}
			var better []string
			for _, row := range rows {
				figure, text, measured := measure.of(row)
				if measured && figure < own && row.all().Admitted > 0 && !isCounterd(row) {
					better = append(better, fmt.Sprintf("%s (%s)", row.Name, text))
				}
			}
			if len(better) == 0 {
				better = []string{"none"}
			}
			lines = append(lines, fmt.Sprintf("- %s, of %s %s: %s\n", measure.name, ours.Name, text, strings.Join(better, "; ")))
		}
	}
	return lines
}

const hitsASecond = "hits a second"

func isCounterd(r *Row) bool { return strings.HasPrefix(r.Name, "counterd") }

// all returns the judgments of all limits together.
func (r *Row) all() (sum Judgment) {
	for _, j := range r.Judgments {
		sum.add(j)
	}
	return sum
}

// table writes a table in Markdown. All columns but the first are on the right.
func table(rows [][]string) string {
	var text strings.Builder
	for i, row := range rows {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			text.WriteString("| --- |" + strings.Repeat(" ---: |", len(row)-1) + "\n")
		}
	}
	return text.String()
}

// The lines around the tables of a page.
const (
	tablesBegin = "<!-- league: written by make league -->\n"
	tablesEnd   = "<!-- /league -->\n"
)

// writeInto replaces the text between the marks of a page.
func writeInto(file, tables string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(tablesBegin))
	_, after, closed := bytes.Cut(rest, []byte(tablesEnd))
	if !found || !closed {
		return errors.New(file + " has no lines " + strings.TrimSpace(tablesBegin) + " and " + strings.TrimSpace(tablesEnd))
	}
	page = slices.Concat(before, []byte(tablesBegin+"\n"+tables+"\n"+tablesEnd), after)
	return os.WriteFile(file, page, 0o644)
}
