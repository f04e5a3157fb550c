package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/events"
)

const (
	// DefaultCheckFeatures and DefaultCheckHits are the most that a check plays.
	DefaultCheckFeatures = 1_000_000
	DefaultCheckHits     = 4_000_000
	// Tolerance is by how much a plan may be off.
	Tolerance = 0.15
	// calibrated is the part of a check's features that CPU times are measured with.
	calibrated = 0.25
	// minSpan is the least of a day that can be played: it takes some seconds, in which
	// nothing may expire.
	minSpan = time.Minute
)

// CheckConfig is how a plan is held against real servers.
type CheckConfig struct {
	Plan      Config
	Memcached string // the program
	Features  int    // most of them to play; 0: DefaultCheckFeatures
	Hits      int    // most hits to play; 0: DefaultCheckHits
	Seed      uint64
	Progress  func(stage string, hits int) // is told of each stage; nil: nobody
	Done      func(hits int)               // and of what is done of it, from any goroutine
}

// Checked is a plan beside what was measured.
type Checked struct {
	Features float64 `json:"features"`
	Hits     int     `json:"hits"`
	Span     string  `json:"span"` // of the day, that was played
	Servers  int     `json:"servers"`
	Replicas int     `json:"replicas"`
	Denied   int     `json:"denied"` // hits that a limit denied, which the plan knows nothing of
	Rows     []Row   `json:"rows"`
	Plan     *Report `json:"plan"` // of what was played
}

// Row is one figure.
type Row struct {
	Name     string  `json:"name"`
	Planned  float64 `json:"planned"`
	Measured float64 `json:"measured"`
	Ratio    float64 `json:"ratio"` // measured to planned
	Timed    bool    `json:"timed"` // it depends on the machine and the day
}

// Off returns the rows that are further off than the tolerance, but for those that are
// timed.
func (c *Checked) Off() (rows []Row) {
	for _, row := range c.Rows {
		if !row.Timed && math.Abs(row.Ratio-1) > Tolerance {
			rows = append(rows, row)
		}
	}
	return rows
}

// RunCheck plays the traffic of a day, or of as much of it as the finest buckets live, to
// Memcached servers of its own, and returns planned and measured figures. Where there is
// more traffic than it may play it plays a part: fewer features that do as much each.
func RunCheck(ctx context.Context, config CheckConfig) (*Checked, error) {
	played, err := config.played()
	if err != nil {
		return nil, err
	}
	if costs := played.config.Costs; costs.MemcachedHit == 0 || costs.CounterdHit == 0 {
		if played.config.Costs, err = config.calibrate(ctx, played); err != nil {
			return nil, err
		}
	}
	report, err := played.plan()
	if err != nil {
		return nil, err
	}
	took, err := config.fill(ctx, "filling Memcached", played)
	if err != nil {
		return nil, err
	}
	return played.compare(report, took), nil
}

// Calibrate measures what a hit of the config's traffic costs on this machine, at full
// load: Memcached, and the engine, to which the request of DefaultCosts is added.
func Calibrate(ctx context.Context, config CheckConfig) (Costs, error) {
	played, err := config.played()
	if err != nil {
		return Costs{}, err
	}
	costs, err := config.calibrate(ctx, played)
	if err != nil {
		return Costs{}, err
	}
	costs.From = fmt.Sprintf("CPU times of a hit were measured here, at full load: %s of Memcached and %s of the engine; what HTTP takes of counterd, %s, is that of docs/performance.md.",
		cpuText(costs.MemcachedHit.Seconds()), cpuText(costs.CounterdHit.Seconds()), cpuText(costs.Request.Seconds()))
	costs.CounterdHit += costs.Request
	return costs, nil
}

func (c CheckConfig) calibrate(ctx context.Context, whole played) (Costs, error) {
	part, err := whole.scaled(calibrated)
	if err != nil {
		return Costs{}, err
	}
	took, err := c.fill(ctx, "measuring CPU times", part)
	if err != nil {
		return Costs{}, err
	}
	costs := whole.config.Costs
	costs.MemcachedHit = took.stats.CPU / time.Duration(took.hits)
	costs.CounterdHit = took.own / time.Duration(took.hits)
	return costs, nil
}

// played is what a check plays.
type played struct {
	config  Config
	event   *events.Event
	crowd   crowd
	span    time.Duration
	hits    int
	servers int
}

// Check returns what is wrong with the config, or why its traffic cannot be played.
func (c CheckConfig) Check() error {
	_, err := c.played()
	return err
}

// played returns what the check plays.
func (c CheckConfig) played() (played, error) {
	config := c.Plan
	switch {
	case config.Log != nil:
		return played{}, errors.New("a check plays features and events, and no log")
	case c.Features < 0 || c.Hits < 0:
		return played{}, errors.New("a check plays more than 0 features and hits")
	}
	if err := config.Check(); err != nil {
		return played{}, err
	}
	config = config.withDefaults()
	chosen, err := config.chosen()
	if err != nil {
		return played{}, err
	}
	if len(chosen) != 1 || len(chosen[0].Rules) == 0 || shut(chosen[0]) {
		return played{}, errors.New("a check plays hits on one event that has limits, none of which is 0: say which")
	}
	// The peak is of no use here: all comes as fast as it can.
	config.Peak, config.Processes, config.Event = 1, callers, chosen[0].Name
	p := played{config: config, event: chosen[0], servers: 1}
	if config.Replicas > 1 {
		p.servers = config.Replicas + 1
	}
	p.span = p.playable()
	if p.span < minSpan {
		return played{}, fmt.Errorf("the finest buckets live for %s: they would expire while the check goes on", p.span)
	}
	p.crowd = crowdOf(config, p.event)
	perDay, _ := config.Events.of(p.event.Name, "")
	features, hits := c.Features, c.Hits
	if features == 0 {
		features = DefaultCheckFeatures
	}
	if hits == 0 {
		hits = DefaultCheckHits
	}
	part := min(1, float64(features)/p.crowd.actors, float64(hits)/(perDay*p.span.Hours()/24))
	return p.scaled(part)
}

// playable returns how much of a day can be played before the first bucket expires.
func (p played) playable() time.Duration {
	span := 24 * time.Hour
	for _, counter := range countersOf(p.event) {
		span = min(span, counter.life(counter.finest, p.config.Grace))
	}
	return span
}

// scaled returns that part of what is played: of its features.
func (p played) scaled(part float64) (played, error) {
	perDay, _ := p.config.Events.of(p.event.Name, "")
	perDay *= part
	p.crowd = p.crowd.scaled(part)
	p.hits = int(math.Round(perDay * p.span.Hours() / 24))
	if p.hits < 100 {
		return p, fmt.Errorf("a check plays a hundred hits at least, not %d", p.hits)
	}
	p.config.Events = Amounts{"": perDay}
	p.config.Features = Amounts{}
	for _, counter := range countersOf(p.event) {
		if !counter.whole() {
			p.config.Features[counter.per] = min(p.crowd.together(counter.kinds), perDay)
		}
	}
	p.config.filled = p.span
	return p, nil
}

// plan plans for what is played.
func (p played) plan() (*Report, error) { return Run(context.Background(), p.config) }

// compare sets planned beside measured.
func (p played) compare(report *Report, took taken) *Checked {
	hits, total := float64(took.hits), report.Total
	a := total.Average
	each := func(rate float64) float64 { return rate / a.Hits }
	c := &Checked{
		Features: p.crowd.actors, Hits: took.hits, Span: p.span.String(), Servers: p.servers, Replicas: p.config.Replicas,
		Denied: took.denied, Plan: report,
	}
	planned := p.planning(report)
	row := func(name string, planned, measured float64, timed bool) {
		c.Rows = append(c.Rows, Row{name, planned, measured, measured / planned, timed})
	}
	row("items", total.Items, float64(took.memory.Items), false)
	row("item bytes", total.ItemBytes, float64(took.memory.ItemBytes), false)
	row("bytes of their pages", planned.slabs, float64(took.memory.SlabBytes), false)
	row("bytes of the tables", planned.hash, float64(took.memory.HashBytes), false)
	row("trips a hit", each(a.Trips), float64(took.trips)/hits, false)
	row("adds a hit", each(a.Adds), float64(took.adds)/hits, false)
	row("reads a hit", each(a.Reads), float64(took.reads)/hits, false)
	row("bytes on the wire a hit", each(a.WireBytes), float64(took.stats.Bytes)/hits, false)
	row("Memcached's CPU time a hit, µs", each(a.MemcachedCPU)*1e6, float64(took.stats.CPU.Microseconds())/hits, true)
	row("the engine's CPU time a hit, µs", each(a.CounterdCPU)*1e6, float64(took.own.Microseconds())/hits, true)
	return c
}

// planning returns what the servers of the check have together.
func (p played) planning(report *Report) (s share) {
	making := planning{config: p.config, report: *report}
	for _, e := range report.Events {
		for _, counter := range e.Counters {
			for _, level := range counter.Levels {
				making.items[0] += level.Items
			}
		}
	}
	each := making.items.each(p.servers)
	s.slabs = each.slabBytes() * float64(p.servers)
	s.hash = hashBytes(each.all()) * float64(p.servers)
	return s
}

// WriteText writes the comparison for people.
func (c *Checked) WriteText(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s features, %s hits, %s of a day, on %d Memcached servers, %s\n\n",
		amount(c.Features), amount(float64(c.Hits)), c.Span, c.Servers, copiesText(c.Replicas))
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\tplanned\tmeasured\tratio\t\n")
	for _, row := range c.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.3f\t\n", row.Name, amount(row.Planned), amount(row.Measured), row.Ratio)
	}
	table.Flush()
	if c.Denied > 0 {
		fmt.Fprintf(&text, "\n%s hits were denied: the plan takes all to be far from their limits.\n", amount(float64(c.Denied)))
	}
	if off := c.Off(); len(off) > 0 {
		fmt.Fprintf(&text, "\nmore than %.0f%% off: %d of them\n", Tolerance*100, len(off))
	}
	_, err := io.WriteString(out, text.String())
	return err
}
