// Package compare sends the same traffic through several ways of limiting, and holds each
// against an exact log: counterd's engines on its embedded store, and reference implementations
// of a sliding log, two windows, fixed windows, the token bucket and GCRA. Time is the
// traffic's own: nothing waits, and the same traffic gives the same figures.
//
// Each way is judged by the hits that it admitted itself. With a limit of N in a window of W,
// the window that ends with a hit at the time t is (t-W, t]. An admission is wrong if it then
// holds more than N, the hit included; a denial, if the hit would have fitted.
//
// Token buckets are judged by their own rule, too: none lacks more than it holds.
//
// All see the whole second of a hit, as counterd stamps it and access logs have it. With
// Config.Exactly each but counterd, and the judge, see the nanosecond.
//
// Trips, reads and writes are of a store elsewhere. A reference reads its state in one trip, and
// writes it in another if it admits. Of counterd they are what the engine asks of its store.
// Bytes are those of the chunks of Memcached that the state takes, at the most that it ever takes.
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
	algorithms "github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/progress"
)

// Config says what is compared. Traffic, Kind and Limit are needed.
type Config struct {
	Name    string         // of the traffic
	Traffic *accesslog.Log // whose events are hits
	Kind    string         // of the features that hit
	Limit   events.Limit   // for each feature; its name is of no matter
	// Exactly has all but counterd see the time of a hit as it is, and judges by it.
	Exactly  bool
	Progress progress.Progress

	processes int // that decide at once where nothing keeps them from it; 0: defaultProcesses
}

const defaultProcesses = 16

// maxN keeps the products of a cost and an interval within an int64.
const maxN = 1_000_000_000

// Check finds what is wrong with the config.
func (c Config) Check() error {
	switch l := c.Limit; {
	case l.N < 1:
		return errors.New("compare: the limit is at least 1")
	case l.N > maxN:
		return errors.New("compare: the limit is at most 1,000,000,000: a log keeps as many times")
	case l.Window < time.Second || l.Window > events.MaxWindow || l.Window%time.Second != 0:
		return errors.New("compare: a window is 1s to 30d, in whole seconds")
	}
	return nil
}

// algorithm is a way of limiting. It is not safe for concurrent use.
type algorithm interface {
	// decide reports whether it admits a hit of that cost, 1 or more, by a feature, in
	// nanoseconds since 1970. Times do not go back.
	decide(ctx context.Context, feature string, now, cost int64) (admitted bool, err error)
	// bytes returns what the chunks of the feature's state would take in Memcached since it was
	// last decided on.
	bytes(feature string) int64
	asked() asked
}

// asked is what was asked of a store.
type asked struct{ trips, reads, writes int64 }

// limit is at most n in a window, in nanoseconds.
type limit struct{ n, window int64 }

func limitOf(l events.Limit) limit { return limit{l.N, int64(l.Window)} }

// contender is a way of limiting that takes part.
type contender struct {
	name   string
	make   func(limit) (algorithm, error)
	bucket bool // it is a token bucket, of as many tokens as the limit
}

// contenders returns the ways that take part, counterd first.
func (c Config) contenders() (list []contender) {
	for _, precision := range []events.Precision{events.Second, events.Minute} {
		if c.Limit.Window >= precision.Length() {
			list = append(list, contender{nameOf(precision), func(limit) (algorithm, error) {
				return newHierarchical(c.Limit, c.Kind, precision)
			}, false})
		}
	}
	for _, name := range []string{algorithms.SlidingLog, algorithms.FixedWindow, algorithms.FixedLog, algorithms.TokenBucket} {
		l := c.Limit
		if l.Algorithm = name; name == algorithms.TokenBucket {
			l.Burst = l.N
		}
		if !algorithms.AlgorithmInLog(name) || journal.FootprintOf(eventOf(l, c.Kind, events.Second), []string{c.Kind}, events.DefaultGrace).Fits {
			list = append(list, contender{"counterd, " + name, func(limit) (algorithm, error) {
				return newHierarchical(l, c.Kind, events.Second)
			}, l.Burst > 0})
		}
	}
	return append(list, references(cmp.Or(c.processes, defaultProcesses))...)
}

// counterd's names with its other algorithms.
const (
	inLog      = "counterd, " + algorithms.SlidingLog
	inFixed    = "counterd, " + algorithms.FixedWindow
	inFixedLog = "counterd, " + algorithms.FixedLog
	inBucket   = "counterd, " + algorithms.TokenBucket
)

// nameOf returns counterd's name with that precision.
func nameOf(precision events.Precision) string {
	if precision == events.Second {
		return "counterd"
	}
	return "counterd, precision: " + precision.String()
}

// Run sends the traffic through each way of limiting.
func Run(ctx context.Context, c Config) (*Comparison, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	hits, err := c.hits()
	if err != nil {
		return nil, err
	}
	features := map[string]bool{}
	for i := range hits {
		features[hits[i].feature] = true
		if !c.Exactly {
			hits[i].at -= hits[i].at % second
		}
	}
	all := c.contenders()
	found := &Comparison{
		Traffic: c.Name, Hits: len(hits), Features: len(features), Malformed: c.Traffic.Malformed,
		Limit: events.FormatRate(c.Limit), Resolution: wholeSeconds, Rows: make([]Row, len(all)),
	}
	if c.Exactly {
		found.Resolution = nanoseconds
	}
	c.Progress = progress.Or(c.Progress)
	c.Progress.Start("deciding", len(all)*len(hits))
	// They have nothing in common but the traffic, which none of them changes.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, way := range all {
		group.Go(func() (err error) {
			if found.Rows[i], err = c.try(ctx, way, hits); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return found, nil
}

// stride is how many hits are decided between two looks at the context.
const stride = 1000

// try sends the hits through one way of limiting.
func (c Config) try(ctx context.Context, way contender, hits []hit) (Row, error) {
	a, err := way.make(limitOf(c.Limit))
	if err != nil {
		return Row{}, err
	}
	judge := judge{limit: limitOf(c.Limit), features: map[string]*exactlog.Log{}, row: Row{Name: way.name}}
	if way.bucket {
		if judge.tokens, err = c.newTokens(hits); err != nil {
			return Row{}, err
		}
		judge.row.Bucket = &judge.tokens.found
	}
	most := map[string]int64{} // bytes, by feature
	for i, h := range hits {
		if i%stride == 0 {
			if err := ctx.Err(); err != nil {
				return Row{}, err
			}
			c.Progress.Add(min(stride, len(hits)-i))
		}
		admitted, err := a.decide(ctx, h.feature, h.at, 1)
		if err != nil {
			return Row{}, err
		}
		judge.see(h.feature, h.at, 1, admitted)
		most[h.feature] = max(most[h.feature], a.bytes(h.feature))
	}
	return judge.row.finish(c.Limit.N, a.asked(), most), nil
}

// judge holds what one way of limiting admitted to an exact log of it.
type judge struct {
	limit
	features map[string]*exactlog.Log
	tokens   *tokens // nil: it is none
	row      Row
}

// see judges a decision. Times do not go back.
func (j *judge) see(feature string, now, cost int64, admitted bool) {
	log := j.features[feature]
	if log == nil {
		log = &exactlog.Log{}
		j.features[feature] = log
	}
	if j.tokens != nil {
		j.tokens.see(feature, now, cost, admitted)
	}
	held := log.Sum(now-j.window+1, now) + cost
	switch {
	case !admitted:
		j.row.Denied++
		if held <= j.n {
			j.row.WrongDenials++
		}
		return
	case held > j.n:
		j.row.WrongAdmissions++
	}
	j.row.Admitted++
	j.row.MostInAWindow = max(j.row.MostInAWindow, held)
	log.Add(now, cost)
}
