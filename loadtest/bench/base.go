package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/progress"
)

// CompareRounds is the default number of rounds of Compare.
const CompareRounds = 20

// A row is slower if the interval of its ratio to the base ends below slowerBelow.
const slowerBelow = 0.97

// Build is a loadtest program, and the counterd program of the same code.
type Build struct {
	Loadtest, Counterd string
}

// Comparison is the result of Compare.
type Comparison struct {
	Machine  string   `json:"machine"`
	Base     string   `json:"base"` // the loadtest program
	Rounds   int      `json:"rounds"`
	Duration string   `json:"duration"` // of a slice
	Seconds  float64  `json:"seconds"`  // of the whole comparison
	Rows     []Pair   `json:"rows"`
	OnlyThis []string `json:"only_this,omitempty"` // matching rows that the base lacks
	OnlyBase []string `json:"only_base,omitempty"` // matching rows that this build lacks
}

// Slower reports whether a row is slower in this build.
func (c *Comparison) Slower() bool {
	return slices.ContainsFunc(c.Rows, func(p Pair) bool { return p.Slower })
}

// Pair is a row as measured in both builds.
type Pair struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Base   Spread   `json:"base"` // operations a second
	This   Spread   `json:"this"` // operations a second
	Ratio  Interval `json:"ratio"`
	Slower bool     `json:"slower"`
}

// Interval is a geometric mean with its 95% confidence interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Compare measures the rows that match config.Rows in this build and in the base. In each round it
// runs a process of each build for each row, one right after the other. Every second round swaps
// the builds, which cancels drift in the speed of the machine. This build runs in child processes,
// like the base: a process that has already measured rows has warm caches and a grown heap, and
// would be faster.
func Compare(ctx context.Context, config Config, this, base Build) (*Comparison, error) {
	began := time.Now()
	help, err := base.run(ctx, "-h")
	if err != nil {
		return nil, fmt.Errorf("bench: the base: %w", err)
	}
	c := &Comparison{
		Machine: machineOf(ctx), Base: base.Loadtest, Rounds: config.Rounds, Duration: config.Duration.String(),
	}
	rows := c.commonRows(config, string(help))
	if len(rows) == 0 {
		return nil, fmt.Errorf("bench: %s bench -h lists none of the rows", base.Loadtest)
	}
	measure := func(r row, ofBase bool) (float64, error) {
		if ofBase {
			return base.measure(ctx, config, r)
		}
		return this.measure(ctx, config, r)
	}
	c.Rows, err = comparePairs(rows, config.Rounds, progress.Or(config.Progress), measure)
	if err != nil {
		return nil, err
	}
	c.Seconds = time.Since(began).Seconds()
	return c, nil
}

// EstimateCompare returns about how long Compare takes.
func (c Config) EstimateCompare() (total time.Duration) {
	const start = 2 * time.Second
	for _, r := range c.matching() {
		slice := Config{Rounds: 1, Duration: c.Duration, Rows: r.pattern(), Peer: c.Peer}
		total += time.Duration(2*c.Rounds) * (slice.Estimate() + start)
	}
	return total
}

// matching returns the rows that match. It omits rows that are chosen only because another row needs them.
func (c Config) matching() []row {
	return slices.DeleteFunc(c.chosen(), func(r row) bool { return !c.matches(r.title()) })
}

// pattern returns the expression that matches this row alone.
func (r row) pattern() *regexp.Regexp { return regexp.MustCompile("^" + r.id + " ") }

var helpRow = regexp.MustCompile(`(?m)^  ([A-Z]\d+) +(.+)$`)

// commonRows returns the rows that match and that both builds list with the same ID and name.
// It sets OnlyThis and OnlyBase to the other matching rows.
func (c *Comparison) commonRows(config Config, help string) (rows []row) {
	var inBase []string
	for _, line := range helpRow.FindAllStringSubmatch(help, -1) {
		title := line[1] + " " + line[2]
		inBase = append(inBase, title)
		inThis := slices.ContainsFunc(allRows(), func(r row) bool { return r.title() == title })
		if !inThis && config.matches(title) {
			c.OnlyBase = append(c.OnlyBase, title)
		}
	}
	for _, r := range config.matching() {
		if slices.Contains(inBase, r.title()) {
			rows = append(rows, r)
		} else {
			c.OnlyThis = append(c.OnlyThis, r.title())
		}
	}
	return rows
}

// comparePairs measures each row in both builds, round by round.
func comparePairs(
	rows []row, rounds int, steps progress.Progress, measure func(r row, ofBase bool) (float64, error),
) (pairs []Pair, err error) {
	base, this := make([][]float64, len(rows)), make([][]float64, len(rows))
	steps.Start("both builds", 2*rounds*len(rows))
	for round := range rounds {
		for i, r := range rows {
			for turn := range 2 {
				ofBase, rates := turn == round%2, this
				if ofBase {
					rates = base
				}
				rate, err := measure(r, ofBase)
				if err != nil {
					return nil, fmt.Errorf("bench: %s, round %d: %w", r.title(), round+1, err)
				}
				rates[i] = append(rates[i], rate)
				steps.Add(1)
			}
		}
	}
	for i, r := range rows {
		ratio := intervalFrom(this[i], base[i])
		pairs = append(pairs, Pair{
			ID: r.id, Name: r.name, Base: spreadOf(base[i]), This: spreadOf(this[i]),
			Ratio: ratio, Slower: ratio.High < slowerBelow,
		})
	}
	return pairs, nil
}

// measure returns the rate of the row in one slice of the build. It uses only flags that older
// builds also have.
func (b Build) measure(ctx context.Context, config Config, r row) (float64, error) {
	out, err := b.run(ctx, "-json", "-rounds", "1", "-duration", config.Duration.String(),
		"-rows", r.pattern().String(), "-counterd", b.Counterd, "-peer", config.Peer)
	if err != nil {
		return 0, err
	}
	var report Report
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("%s prints no report: %w", b.Loadtest, err)
	}
	for _, measured := range report.Rows {
		if measured.ID == r.id && measured.PerSecond.Median > 0 {
			return measured.PerSecond.Median, nil
		}
	}
	return 0, fmt.Errorf("the report of %s lacks the rate", b.Loadtest)
}

// run runs loadtest bench of the build, and returns its standard output.
func (b Build) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := child.Command(ctx, b.Loadtest, append([]string{"bench"}, args...)...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(complaints.String()))
		return nil, cmp.Or(ctx.Err(), err)
	}
	return out.Bytes(), nil
}

// intervalFrom returns the interval of the ratio of this build to the base, given their rates of two
// or more rounds. It assumes that the logarithm of the ratio is normally distributed.
func intervalFrom(this, base []float64) Interval {
	n := float64(len(this))
	var sum, squares float64
	for i := range this {
		sum += math.Log(this[i] / base[i])
	}
	mean := sum / n
	for i := range this {
		squares += math.Pow(math.Log(this[i]/base[i])-mean, 2)
	}
	half := student975(len(this)-1) * math.Sqrt(squares/(n-1)/n)
	return Interval{Mean: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half)}
}

// student975 returns the 97.5% quantile of Student's t distribution. Above 9 degrees of freedom it is
// the expansion 26.7.5 of Abramowitz and Stegun.
func student975(freedom int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	const (
		z  = 1.959964
		z3 = z * z * z
		z5 = z3 * z * z
		z7 = z5 * z * z
	)
	v := float64(freedom)
	return z + (z3+z)/(4*v) + (5*z5+16*z3+3*z)/(96*v*v) + (3*z7+19*z5+17*z3-15*z)/(384*v*v*v)
}

// WriteText writes the comparison as Markdown.
func (c *Comparison) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nThis build and the base %s, %d rounds of %s, %.0f s in all.\n", c.Machine, c.Base, c.Rounds, c.Duration, c.Seconds)
	fmt.Fprintf(&b, `Base and this: operations a second, median (least–greatest). Ratio: this build divided by the base, geometric mean of the
rounds; above 1 this build is faster. A row is slower if its interval ends below %.2f.

`, slowerBelow)
	lines := [][]string{
		{"|  ", "|  ", "|", "base |", "this |", "ratio |", "95% interval |", " |"},
		{"| --- ", "| --- ", "|", "---: |", "---: |", "---: |", "---: |", "--- |"},
	}
	for _, p := range c.Rows {
		verdict := ""
		if p.Slower {
			verdict = "slower"
		}
		lines = append(lines, []string{
			"| " + p.ID + " ", "| " + p.Name + " ", "|",
			p.Base.text(columns.Rounded, "") + " |", p.This.text(columns.Rounded, "") + " |",
			fmt.Sprintf("%.3f× |", p.Ratio.Mean), fmt.Sprintf("%.3f–%.3f |", p.Ratio.Low, p.Ratio.High), verdict + " |",
		})
	}
	columns.Write(&b, 3, lines)
	for _, title := range c.OnlyThis {
		fmt.Fprintf(&b, "\nOnly in this build: %s\n", title)
	}
	for _, title := range c.OnlyBase {
		fmt.Fprintf(&b, "\nOnly in the base: %s\n", title)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
