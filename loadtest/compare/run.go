package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/progress"
)

// Config says what is compared. Traffic and Limit are needed.
type Config struct {
	Traffic *Traffic
	Limit   events.Limit // for each feature; its name is of no matter
	// Exactly has all but counterd see the nanosecond of a hit, and judges by it.
	Exactly bool
	// Processes is how many of them, 1 or more, decide at once where nothing keeps them
	// from it; 0: DefaultProcesses.
	Processes int
	Progress  progress.Progress
}

// DefaultProcesses is how many processes decide at once.
const DefaultProcesses = 16

// Check finds what is wrong with the config.
func (c Config) Check() error {
	faults := []error{checkLimit(c.Limit)}
	if c.Processes < 0 {
		faults = append(faults, errors.New("compare: at least 1 process decides"))
	}
	return errors.Join(faults...)
}

// contender is a way of limiting that takes part.
type contender struct {
	name string
	make func() (algorithm, error)
}

// contenders returns the ways that take part, counterd first.
func (c Config) contenders() (list []contender) {
	for _, precision := range precisionsOf(c.Limit) {
		list = append(list, contender{nameOf(precision), func() (algorithm, error) {
			return newHierarchical(c.Limit, c.Traffic.kind, precision)
		}})
	}
	for _, r := range references(cmp.Or(c.Processes, DefaultProcesses)) {
		list = append(list, contender{r.name, func() (algorithm, error) { return r.make(limitOf(c.Limit)), nil }})
	}
	return list
}

// precisionsOf returns the precisions of a rule with that limit, but for the hour's.
func precisionsOf(l events.Limit) []events.Precision {
	if l.Window < time.Minute {
		return []events.Precision{events.Second}
	}
	return []events.Precision{events.Second, events.Minute}
}

// nameOf returns counterd's name with that precision.
func nameOf(precision events.Precision) string {
	if precision == events.Second {
		return "counterd"
	}
	return "counterd, precision: " + precision.String()
}

// reference is an implementation for comparison.
type reference struct {
	name  string
	sound bool // for several processes, if each writes only over what it has read
	make  func(limit) algorithm
}

func references(processes int) []reference {
	return []reference{
		{"sliding log", true, func(l limit) algorithm { return newSlidingLog(l) }},
		{"two windows", true, func(l limit) algorithm { return newTwoWindows(l) }},
		{"fixed window", true, func(l limit) algorithm { return newFixed(l) }},
		{"token bucket", true, func(l limit) algorithm { return newBucket(l) }},
		{"GCRA", true, func(l limit) algorithm { return newGCRA(l) }},
		{fmt.Sprintf("log, %d at once", processes), false, func(l limit) algorithm { return newRacing(l, processes) }},
	}
}

// Run sends the traffic through each way of limiting.
func Run(ctx context.Context, c Config) (*Comparison, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	found := &Comparison{
		Traffic: c.Traffic.Name, Hits: c.Traffic.Hits(), Features: c.Traffic.Features(), Malformed: c.Traffic.Malformed,
		Limit: events.FormatRate(c.Limit), Resolution: wholeSeconds,
	}
	if c.Exactly {
		found.Resolution = nanoseconds
	}
	all := c.contenders()
	c.Progress = progress.Or(c.Progress)
	c.Progress.Start("deciding", len(all)*len(c.Traffic.hits))
	found.Rows = make([]Row, len(all))
	// They have nothing in common but the traffic, which none of them changes.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, who := range all {
		group.Go(func() (err error) {
			found.Rows[i], err = c.try(ctx, who)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return found, nil
}

// stride is how many hits are decided between two looks at the context.
const stride = 1000

// try sends the traffic through one way of limiting.
func (c Config) try(ctx context.Context, who contender) (Row, error) {
	a, err := who.make()
	if err != nil {
		return Row{}, err
	}
	judge := newJudge(limitOf(c.Limit))
	most := make([]int64, len(c.Traffic.features))
	for i, h := range c.Traffic.hits {
		if i%stride == 0 {
			if err := ctx.Err(); err != nil {
				return Row{}, err
			}
			c.Progress.Add(min(stride, len(c.Traffic.hits)-i))
		}
		now, feature := h.at, c.Traffic.features[h.feature]
		if !c.Exactly {
			now -= now % second
		}
		admitted, err := a.decide(ctx, feature, now, h.cost)
		if err != nil {
			return Row{}, fmt.Errorf("%s: %w", who.name, err)
		}
		judge.see(feature, now, h.cost, admitted)
		most[h.feature] = max(most[h.feature], bytesOf(a.items(feature)))
	}
	return newRow(who.name, c.Limit.N, judge.verdict, a.asked(), most), nil
}
