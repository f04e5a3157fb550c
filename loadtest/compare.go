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
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/compare"
)

// realLog is what is compared where no other log is given.
//
//go:embed testdata/apache_logs.log.gz
var realLog string

// The limits where none is given. The log's is one that some of its hosts reach.
const (
	drawnLimit = "500/h"
	logLimit   = "50/d"
	realName   = "10,000 lines of a real access log (semicomplete.com, May 2015), by address"
)

const compareAbout = `It sends the same traffic through counterd's engine on its embedded store, and in memory
through the usual ways of limiting. The traffic is drawn by Zipf's law, and, as a second one,
a real access log that this program has in it; with FILE that log alone. Nothing waits: time
is the traffic's own, and the same flags give the same figures.

An admission is wrong if the window that ends with it then holds more than the limit of
what that way has admitted; a denial, if the hit would have fitted. All see whole seconds;
with -exactly all but counterd see the nanosecond, and all are judged by it.

`

const compareExamples = `  loadtest compare -limit 100/m -exactly
  loadtest compare -limit 20/2h -json access.log
`

// compareFlags are the arguments of loadtest compare.
type compareFlags struct {
	log     logFlags
	limit   string
	exactly bool
}

func (f *compareFlags) flags(set *flag.FlagSet) {
	f.log.add(set)
	set.StringVar(&f.limit, "limit", "", "the `rate` that each feature is limited to (default "+drawnLimit+" for what is drawn, "+logLimit+" for a log)")
	set.BoolVar(&f.exactly, "exactly", false, "have all but counterd see nanoseconds, and judge by them")
}

// check reads the values. Flags that would do nothing are refused.
func (f *compareFlags) check(set *flag.FlagSet) error {
	if err := f.log.parse(set); err != nil {
		return err
	}
	if len(f.log.mapping) > 1 {
		return errors.New("-features names one kind here")
	}
	if err := refused(set, refusal{f.log.implied, "format regexp features time-field time-layout", "is for a FILE"}); err != nil {
		return err
	}
	limit, err := f.limitOr(logLimit)
	if err == nil {
		err = compare.Config{Limit: limit}.Check()
	}
	if err != nil {
		return fmt.Errorf("-limit: %w", err)
	}
	return nil
}

// limitOr returns the limit, or the usual one where none is given.
func (f *compareFlags) limitOr(usual string) (events.Limit, error) {
	return events.ParseRate(cmp.Or(f.limit, usual))
}

func (f *compareFlags) run(ctx context.Context, s *session) (bool, error) {
	std, name, report := s.streams, strings.Join(f.log.files, ", "), &compare.Report{}
	// add adds what the traffic makes of the ways of limiting.
	add := func(name, kind, usual string, traffic *accesslog.Log) error {
		limit, err := f.limitOr(usual)
		if err != nil {
			return err
		}
		found, err := compare.Run(ctx, compare.Config{Name: name, Traffic: traffic, Kind: kind, Limit: limit, Exactly: f.exactly, Progress: s.bar})
		report.Comparisons = append(report.Comparisons, found)
		return err
	}
	if f.log.implied { // this program's own traffic, and log
		if err := add(compare.DrawnName, compare.DrawnKind, drawnLimit, compare.Drawn()); err != nil {
			return false, err
		}
		name, std.in = realName, strings.NewReader(realLog)
	}
	log, err := f.log.read(ctx, std)
	if err != nil {
		return false, err
	}
	if err := add(name, f.log.mapping[0].Kind, logLimit, log); err != nil {
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
