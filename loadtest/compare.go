package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/compare"
	"github.com/counterd/counterd/loadtest/progress"
)

// realLog is what is compared where no other log is given.
//
//go:embed testdata/apache_logs.log.gz
var realLog string

// The limits where none is given. The log's is one that some of its hosts reach.
const (
	zipfLimit = "500/h"
	logLimit  = "50/d"
	realName  = "10,000 lines of a real access log (semicomplete.com, May 2015), by address"
)

const compareAbout = `It sends the same traffic through counterd's engine on its embedded store, and in memory
through the usual ways of limiting. The traffic is drawn by Zipf's law, and, as a second one,
a real access log that this program has in it; with FILE that log alone. Nothing waits: time
is the traffic's own, and the same flags give the same figures.

An admission is wrong if the window that ends with it then holds more than the limit of
what that way has admitted; a denial, if the hit would have fitted. All see whole seconds;
with -exactly all but counterd see the nanosecond, and all are judged by it.

`

const compareExamples = `  loadtest compare -limit 100/m -rate 500 -duration 1h -zipf 1.3
  loadtest compare -limit 20/2h -json access.log
`

// compareFlags are the arguments of loadtest compare.
type compareFlags struct {
	log     logFlags
	zipf    compare.Zipf
	limit   string
	exactly bool
}

func (f *compareFlags) flags(set *flag.FlagSet) {
	f.log.add(set)
	set.StringVar(&f.limit, "limit", "", "the `rate` that each feature is limited to (default "+zipfLimit+" for what is drawn, "+logLimit+" for a log)")
	set.IntVar(&f.zipf.Features, "population", compare.DefaultFeatures, "`number` of features that hits are drawn from")
	set.Float64Var(&f.zipf.S, "zipf", compare.DefaultS, "the `s` of Zipf's law, above 1")
	set.Float64Var(&f.zipf.Rate, "rate", compare.DefaultRate, "`hits` a second that are drawn")
	set.DurationVar(&f.zipf.Duration, "duration", compare.DefaultDuration, "`length` of what is drawn, in its own time")
	set.Uint64Var(&f.zipf.Seed, "seed", 1, "`number` that what is drawn depends on")
	set.BoolVar(&f.exactly, "exactly", false, "have all but counterd see nanoseconds, and judge by them")
}

// check reads the values. Flags that would do nothing are refused.
func (f *compareFlags) check(set *flag.FlagSet) error {
	if err := f.log.parse(set); err != nil {
		return err
	}
	if len(f.log.source.mapping) > 1 {
		return errors.New("-features names one kind here")
	}
	if err := refused(set,
		refusal{!f.log.source.implied, "population zipf rate duration seed", "is for what is drawn"},
		refusal{f.log.source.implied, "format regexp features time-field time-layout", "is for a FILE"},
	); err != nil {
		return err
	}
	for _, usual := range []string{zipfLimit, logLimit} {
		limit, err := f.limitOr(usual)
		if err != nil {
			return fmt.Errorf("-limit: %w", err)
		}
		if err := (compare.Config{Limit: limit}).Check(); err != nil {
			return fmt.Errorf("-limit: %w", err)
		}
	}
	if !f.log.source.implied {
		return nil
	}
	return f.zipf.Check()
}

// limitOr returns the limit, or the usual one where none is given.
func (f *compareFlags) limitOr(usual string) (events.Limit, error) {
	return events.ParseRate(cmp.Or(f.limit, usual))
}

func (f *compareFlags) run(ctx context.Context, s *session) (bool, error) {
	report := &compare.Report{}
	if f.log.source.implied {
		s.bar.Start("drawing", 0)
		drawn, err := f.zipf.Draw(ctx)
		if err != nil {
			return false, err
		}
		if err := f.add(ctx, report, drawn, zipfLimit, s.bar); err != nil {
			return false, err
		}
	}
	log, err := f.readLog(ctx, s.streams)
	if err != nil {
		return false, err
	}
	if err := f.add(ctx, report, log, logLimit, s.bar); err != nil {
		return false, err
	}
	if err := s.print(report); err != nil {
		return false, err
	}
	if !report.OK() {
		s.complain("counterd was wrong")
	}
	return report.OK(), nil
}

// add adds to the report what the traffic makes of the ways of limiting.
func (f *compareFlags) add(ctx context.Context, report *compare.Report, t *compare.Traffic, usual string, bar progress.Progress) error {
	limit, err := f.limitOr(usual)
	if err != nil {
		return err
	}
	found, err := compare.Run(ctx, compare.Config{Traffic: t, Limit: limit, Exactly: f.exactly, Progress: bar})
	if err != nil {
		return err
	}
	report.Comparisons = append(report.Comparisons, found)
	return nil
}

// readLog reads the log that is named, or this program's own.
func (f *compareFlags) readLog(ctx context.Context, std streams) (*compare.Traffic, error) {
	source, name := f.log.source, strings.Join(f.log.source.files, ", ")
	if source.implied {
		name, std.in = realName, strings.NewReader(realLog)
	}
	log, err := source.read(ctx, std)
	if err != nil {
		return nil, err
	}
	return compare.FromLog(ctx, name, source.mapping[0].Kind, log)
}
