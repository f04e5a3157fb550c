package whatif

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/counterd/counterd/loadtest/columns"
)

// Report is what the rules would have done.
type Report struct {
	Event       string    `json:"event"`
	Lines       int       `json:"lines"`
	Filtered    int       `json:"filtered"`     // lines that the format leaves out
	Malformed   int       `json:"malformed"`    // lines that cannot be read
	Unlimited   int       `json:"unlimited"`    // lines without the features of any rule; not decided
	Refused     int       `json:"refused"`      // lines with a feature that is none; not decided
	WithoutCost int       `json:"without_cost"` // lines without a cost; not decided
	Missing     []Missing `json:"missing"`      // lines in which a feature is missing that some rule names
	From        time.Time `json:"from"`         // second of the first event
	To          time.Time `json:"to"`           // of the last

	All      Score    `json:"all"` // of all limits together; a feature is what a hit was counted by, together
	Limits   []Limit  `json:"limits"`
	Timeline Timeline `json:"timeline"`
}

// Missing is how many lines lack a feature.
type Missing struct {
	Kind  string `json:"kind"`
	Lines int    `json:"lines"`
}

// Score is what became of hits.
type Score struct {
	Hits            int64     `json:"hits"`
	Admitted        int64     `json:"admitted"`
	Denied          int64     `json:"denied"`
	Features        int       `json:"features"`          // that had hits
	EverDenied      int       `json:"ever_denied"`       // of them
	EverDeniedShare float64   `json:"ever_denied_share"` // 0 to 1
	MostDenied      []Feature `json:"most_denied"`       // by denied hits, then by hits
}

// Limit is what one limit did. It admits what it does not deny, whatever other limits say.
type Limit struct {
	Name   string   `json:"name"`
	Per    []string `json:"per"`
	Rate   string   `json:"rate"`
	Shadow bool     `json:"shadow"` // its denials are not enforced
	Score
	Alone int64 `json:"alone"` // denied hits that no other enforced limit denied
	Over  int64 `json:"over"`  // hits that were admitted above N
}

// Feature is how a feature fared.
type Feature struct {
	Feature string    `json:"feature"`
	Hits    int64     `json:"hits"`
	Denied  int64     `json:"denied"`
	First   time.Time `json:"first"` // denial
	Last    time.Time `json:"last"`
}

// Timeline is what was admitted and denied over time.
type Timeline struct {
	From     time.Time `json:"from"`
	Step     int64     `json:"step"` // seconds
	Admitted []int64   `json:"admitted"`
	Denied   []int64   `json:"denied"`
}

// WriteText writes the report as text.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d hits, from %s to %s\n", r.Event, r.All.Hits, moment(r.From), moment(r.To))
	for _, left := range r.leftOut() {
		fmt.Fprintf(&b, "%s\n", left)
	}
	fmt.Fprintln(&b)
	columns.Write(&b, 1, append([][]string{limitsHead()}, r.limitRows()...))
	r.writeDenials(&b, "all limits together", &r.All)
	if len(r.Limits) > 1 {
		for i := range r.Limits {
			if l := &r.Limits[i]; l.sameAs(&r.All) {
				fmt.Fprintf(&b, "\n%s: the same\n", l.title())
			} else {
				r.writeDenials(&b, l.title(), &l.Score)
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// leftOut says which lines were not decided, or not by all rules.
func (r *Report) leftOut() []string {
	left := r.unread()
	for _, m := range r.Missing {
		left = r.less(left, m.Lines, "without "+m.Kind)
	}
	left = r.less(left, r.Unlimited, "without the features of any limit: not decided")
	left = r.less(left, r.Refused, "with a feature that is refused: not decided")
	return r.less(left, r.WithoutCost, "without a cost: not decided")
}

// unread says which lines have no event.
func (r *Report) unread() []string {
	return r.less(r.less(nil, r.Filtered, "filtered"), r.Malformed, "malformed")
}

func (r *Report) less(left []string, lines int, why string) []string {
	if lines > 0 {
		left = append(left, fmt.Sprintf("of %d lines %d %s", r.Lines, lines, why))
	}
	return left
}

func limitsHead() []string {
	return []string{"", "hits", "admitted", "denied", "alone", "over", "features", "ever denied", ""}
}

// limitRows returns a row for each limit, and one for all.
func (r *Report) limitRows() [][]string {
	var rows [][]string
	for i := range r.Limits {
		l := &r.Limits[i]
		rows = append(rows, l.Score.row(l.title(), strconv.FormatInt(l.Alone, 10), strconv.FormatInt(l.Over, 10)))
	}
	return append(rows, r.All.row("all together", "", ""))
}

func (l *Limit) title() string {
	if l.Shadow {
		return l.Name + " (shadow)"
	}
	return l.Name
}

func (s *Score) row(name, alone, over string) []string {
	return []string{name, strconv.FormatInt(s.Hits, 10), strconv.FormatInt(s.Admitted, 10), strconv.FormatInt(s.Denied, 10), alone, over,
		strconv.Itoa(s.Features), strconv.Itoa(s.EverDenied), fmt.Sprintf("%.2f%%", 100*s.EverDeniedShare)}
}

func (r *Report) writeDenials(b *strings.Builder, name string, s *Score) {
	if len(s.MostDenied) > 0 {
		fmt.Fprintf(b, "\n%s\n", name)
		columns.Write(b, 1, append([][]string{featuresHead()}, s.featureRows()...))
	}
}

// sameAs reports whether both name the same denials, of which there are some.
func (s *Score) sameAs(other *Score) bool {
	return len(s.MostDenied) > 0 && s.Denied == other.Denied && slices.Equal(s.MostDenied, other.MostDenied)
}

func featuresHead() []string {
	return []string{"most denied", "hits", "denied", "first denial", "last denial"}
}

func (s *Score) featureRows() [][]string {
	var rows [][]string
	for _, f := range s.MostDenied {
		rows = append(rows, []string{shown(f.Feature), strconv.FormatInt(f.Hits, 10), strconv.FormatInt(f.Denied, 10), moment(f.First), moment(f.Last)})
	}
	return rows
}

// maxShown is how much of a feature is shown.
const maxShown = 60

// shown returns a feature as a report has it, on one line.
func shown(feature string) string {
	if runes := []rune(feature); len(runes) > maxShown {
		feature = string(runes[:maxShown]) + "…"
	}
	return cmp.Or(oneLine(feature), "the whole event")
}

// oneLine returns the text so that it ends no line.
func oneLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
