package whatif

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/page"
	"github.com/counterd/counterd/loadtest/share"
)

// Suggestion is what a log suggests.
type Suggestion struct {
	Event string      `json:"event"`
	Log   string      `json:"log"`
	Deny  share.Share `json:"deny_percent"` // of the features at the most
	// Failures reports whether the log is of failures: the rules file has the limits of Attack.
	Failures bool    `json:"failures"`
	Kinds    []Kind  `json:"kinds"`
	Rules    string  `json:"rules"`   // the rules file
	WhatIf   *Report `json:"what_if"` // what it would have done
}

// Kind is what features of one kind did.
type Kind struct {
	Kind     string   `json:"kind"`
	Features int      `json:"features"`
	Hits     int      `json:"hits"`
	Missing  int      `json:"missing"` // lines without such a feature
	Windows  []Window `json:"windows"`
	Denied   int      `json:"denied"` // features that the suggested limits together would have denied at some time
	// Traffic is what the hits cost together, and DeniedTraffic that of the denied features.
	Traffic       int64  `json:"traffic"`
	DeniedTraffic int64  `json:"denied_traffic"`
	Attack        Attack `json:"attack"`
}

// Attack is what is suggested for a log of failures, as of logins, or of an attack: limits that
// deny the features that made most of it, and hardly any other.
type Attack struct {
	Features      int      `json:"features"`       // the fewest that made 90% of the traffic
	Rates         []string `json:"rates"`          // the smallest, from 5, that together deny at most as many; none: they would deny none of them, and the log is not of failures
	Denied        int      `json:"denied"`         // features that these would have denied at some time
	DeniedTraffic int64    `json:"denied_traffic"` // of these features
}

// Window is how the largest counts of the features in any window of that length are
// distributed, and the limits for it. A quantile is the smallest count that so large a
// share of the features does not exceed.
type Window struct {
	Window string `json:"window"` // second, minute, hour or day
	P50    int64  `json:"p50"`
	P90    int64  `json:"p90"`
	P99    int64  `json:"p99"`
	P999   int64  `json:"p99_9"`
	Max    int64  `json:"max"`
	// Alone is the smallest limit that by itself denies no more features than it may, and
	// AloneDenied how many it denies.
	Alone       int64 `json:"alone"`
	AloneDenied int   `json:"alone_denied"`
	// Chosen is the limit that together with those of the other windows denies no more
	// than it may; 0 where the log is too short for it.
	Chosen  int64  `json:"chosen"`
	Rate    string `json:"rate"`     // as the rules file has it; empty where it is left out
	LeftOut string `json:"left_out"` // why
	// Burst is the smallest of a token bucket to which Alone tokens return in the window that by itself denies no
	// more features than it may, and BurstDenied how many it denies; 0 where the log is too short for it.
	Burst       int64 `json:"burst"`
	BurstDenied int   `json:"burst_denied"`
	// AttackRate is the limit where the log is of failures or of an attack; empty where it is
	// left out, for the same reasons, or where these limits would deny no feature.
	AttackRate string `json:"attack_rate"`

	counts []int64 // sorted
}

// WriteText writes the report as text, without the rules file.
func (r *Suggestion) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d lines, from %s to %s\n", oneLine(r.Log), r.WhatIf.Lines, moment(r.WhatIf.From), moment(r.WhatIf.To))
	for _, left := range r.WhatIf.unread() {
		fmt.Fprintf(&b, "%s\n", left)
	}
	for _, k := range r.Kinds {
		fmt.Fprintf(&b, "\n%s: %s\n\n", k.Kind, k.summary(r.WhatIf.Lines))
		columns.Write(&b, 1, append([][]string{k.head()}, k.rows()...))
		fmt.Fprintf(&b, "\n%s\n", r.verdict(&k))
	}
	fmt.Fprintf(&b, "\nTried with the engine:\n\n")
	if err := r.WhatIf.WriteText(&b); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (k *Kind) summary(lines int) string {
	text := fmt.Sprintf("%d features with %d hits", k.Features, k.Hits)
	if k.Missing > 0 {
		text += fmt.Sprintf("; of %d lines %d have none", lines, k.Missing)
	}
	return text + "; the largest count of each in any"
}

func (k *Kind) head() []string {
	return []string{"", "p50", "p90", "p99", "p99.9", "max", "limit alone", "denies", "", "burst", "together", "attack"}
}

func (k *Kind) rows() [][]string {
	var rows [][]string
	for _, w := range k.Windows {
		row := []string{w.Window}
		for _, n := range []int64{w.P50, w.P90, w.P99, w.P999, w.Max, w.Alone} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, append(row, strconv.Itoa(w.AloneDenied), percent(int64(w.AloneDenied), int64(k.Features)),
			cmp.Or(strings.TrimPrefix(strconv.FormatInt(w.Burst, 10), "0"), "-"), cmp.Or(w.Rate, "-"), cmp.Or(w.AttackRate, "-")))
	}
	return rows
}

// verdict says what the limits do, and which are left out.
func (r *Suggestion) verdict(k *Kind) string {
	if r.Failures {
		return fmt.Sprintf("Of failures the rules are those of the column attack, [%s]: %s",
			strings.Join(k.Attack.Rates, ", "), k.attackers())
	}
	deny := r.Deny
	text := fmt.Sprintf("Together the limits would have denied %s; %s%% are %d.", k.caught(k.Denied, k.DeniedTraffic), deny, deny.Of(k.Features))
	if deny.Of(k.Features) == 0 {
		text += "\nSo few features say little: the limits are the largest counts that were seen."
	}
	if k.Denied == 0 {
		text += "\nThese limits catch nothing in this log: they are for a log in which all is as it should be." +
			"\nElse let more features be denied, with a larger -deny"
		if one := (100 + k.Features - 1) / k.Features; deny.Of(k.Features) == 0 && one < 100 {
			text += fmt.Sprintf(" (%d%% is one)", one)
		}
		if k.Attack.Denied > 0 {
			text += ", or take the column attack (-failures)"
		}
		text += "."
	}
	if k.Attack.Denied > 0 {
		text += fmt.Sprintf("\nOf a log of failures or of an attack -failures takes the column attack, [%s]: %s",
			strings.Join(k.Attack.Rates, ", "), k.attackers())
	}
	if w := k.bucket(); w.Burst > 0 {
		text += fmt.Sprintf("\nThe hits of a %s do not come at once: a token bucket, %s, would have denied %d of %d features.",
			w.Window, k.bucketRule(w), w.BurstDenied, k.Features)
	}
	for _, w := range k.Windows {
		if w.LeftOut != "" && w.Chosen == 0 {
			text += fmt.Sprintf("\nLeft out: one for the %s: %s.", w.Window, w.LeftOut)
		} else if w.LeftOut != "" {
			text += fmt.Sprintf("\nLeft out: %d in any %s: %s.", w.Chosen, w.Window, w.LeftOut)
		}
	}
	return text
}

// attackers says who made most of the traffic, and what the limits against them do.
func (k *Kind) attackers() string {
	return fmt.Sprintf("%d features made %d%% of the traffic;\nthese limits, from %d, would have denied %s.",
		k.Attack.Features, attackPercent, attackFloor, k.caught(k.Attack.Denied, k.Attack.DeniedTraffic))
}

// bucket returns the window whose token bucket has the smallest burst beside the limit alone, at most half of it;
// the zero Window if there is none.
func (k *Kind) bucket() (best Window) {
	for _, w := range k.Windows {
		if w.Burst > 0 && 2*w.Burst <= w.Alone && (best.Burst == 0 || w.Burst*best.Alone < best.Burst*w.Alone) {
			best = w
		}
	}
	return best
}

// bucketRule returns the rule of the window's token bucket, as a rules file has it.
func (k *Kind) bucketRule(w Window) string {
	return fmt.Sprintf("{per: %s, rate: %d/%s, burst: %d}", k.Kind, w.Alone, unitOf(w.Window), w.Burst)
}

func unitOf(window string) string {
	all := spans()
	return all[slices.IndexFunc(all, func(s span) bool { return s.name == window })].unit
}

// caught says how many features are denied, and how much of the traffic they made.
func (k *Kind) caught(features int, traffic int64) string {
	return fmt.Sprintf("%d of %d features at some time (%s), with %s of the traffic",
		features, k.Features, percent(int64(features), int64(k.Features)), percent(traffic, k.Traffic))
}

// Page returns the report as a page, with a plot of each distribution.
func (r *Suggestion) Page() page.Page {
	p := page.Page{
		Title:    "Limits suggested by " + oneLine(r.Log),
		Subtitle: fmt.Sprintf("%d lines from %s to %s", r.WhatIf.Lines, moment(r.WhatIf.From), moment(r.WhatIf.To)),
	}
	for _, k := range r.Kinds {
		p.Sections = append(p.Sections, page.Section{
			Title: "Per " + k.Kind,
			Text:  k.summary(r.WhatIf.Lines) + " of these windows:\n\n" + r.verdict(&k),
			Table: &page.Table{Head: k.head(), Rows: k.rows()},
			Plot:  k.plot(r.Deny),
		})
	}
	p.Sections = append(p.Sections, r.WhatIf.Page().Sections...)
	return p
}

// plot draws which share of the features exceeds a count in some window: what a limit of
// it would deny.
func (k *Kind) plot(deny share.Share) *page.Plot {
	plot := &page.Plot{
		Title: "Share of features that exceed a count in some window",
		X:     page.Axis{Label: "largest count", Log: true},
		Y:     page.Axis{Label: "share of features above it", Log: true, Unit: page.Percent},
	}
	most := float64(1)
	for _, w := range k.Windows {
		line := page.Line{Name: "in any " + w.Window}
		line.X, line.Y = exceeding(w.counts)
		plot.Lines = append(plot.Lines, line)
		most = max(most, float64(w.Max))
	}
	least := 100 / float64(k.Features)
	for _, w := range k.Windows {
		if w.Rate != "" {
			at := float64(w.Chosen)
			plot.Lines = append(plot.Lines, page.Line{Name: "limit " + w.Rate, X: []float64{at, at}, Y: []float64{least, 100}})
		}
	}
	if deny > 0 {
		part := 100 * float64(deny) / float64(share.Whole)
		plot.Lines = append(plot.Lines, page.Line{Name: "at most " + deny.String() + "%", X: []float64{1, most}, Y: []float64{part, part}})
	}
	return plot
}

// exceeding returns each of the sorted counts, and the share of them that exceeds it, in
// percent. Before the least all do. The last share above zero ends with the greatest.
func exceeding(sorted []int64) (x, y []float64) {
	n := len(sorted)
	last := 100.0
	for i, count := range sorted {
		if i < n-1 && sorted[i+1] == count {
			continue
		}
		if share := 100 * float64(n-1-i) / float64(n); share > 0 {
			last = share
		}
		x, y = append(x, float64(count)), append(y, last)
	}
	return x, y
}

// rates returns the suggested limits.
func (k *Kind) rates() string {
	var rates []string
	for _, w := range k.Windows {
		if w.Rate != "" {
			rates = append(rates, w.Rate)
		}
	}
	return strings.Join(rates, ", ")
}

// file returns the rules as a file, with token buckets in comments, and no other ones. Hits that another rule denies
// count as failures, too.
func (r *Suggestion) file() string {
	text := "events:\n  " + r.Event + ":\n    limits:\n"
	for _, k := range r.Kinds {
		if r.Failures {
			text += fmt.Sprintf("      - per: %s\n        rate: [%s]\n        count: all\n",
				k.Kind, strings.Join(k.Attack.Rates, ", "))
			continue
		}
		text += fmt.Sprintf("      - per: %s\n        rate: [%s]\n", k.Kind, k.rates())
		if w := k.bucket(); w.Burst > 0 {
			text += fmt.Sprintf("      # - %s # in its place: a token bucket\n", k.bucketRule(w))
		}
	}
	return text
}

// comments says where a rules file comes from, and what its limits do.
func (r *Suggestion) comments() string {
	text := fmt.Sprintf("Suggested by loadtest replay -suggest -deny %s, from %s:\n%d lines from %s to %s.",
		r.Deny, oneLine(r.Log), r.WhatIf.Lines, moment(r.WhatIf.From), moment(r.WhatIf.To))
	attacked := false
	for _, k := range r.Kinds {
		text += "\n" + k.Kind + ": " + r.verdict(&k)
		attacked = attacked || k.Attack.Denied > 0
	}
	if r.Failures {
		text += "\nReserve a hit before each try, and release it after a success: so only failures count, and tries" +
			"\nthat come at once cannot pass together, as between a check and a later hit (docs/limits.md, Login)."
	}
	if attacked && len(r.Kinds) > 1 && !r.Failures {
		text += "\nAgainst an attack give each rule count: all, too: else hits that another rule denies do not" +
			"\ncount, and fewer features are denied than said here."
	}
	return "# " + strings.ReplaceAll(text, "\n", "\n# ") + "\n"
}

func percent(n, of int64) string {
	if of == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(n)/float64(of))
}
