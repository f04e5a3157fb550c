package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/replay"
)

const replayAbout = `It prints the smallest limits that together would have denied at most -deny percent of the
features in the log at any time, as a rules file (-write), and tries them as -rules does
(-suggest, the default). Of a log of failures, as of logins (-format sshd, or -failures), these
are limits that deny the features that made most of them.

With -rules the engine decides each line by the rules of the file, at the log's own times, and
each limit's admissions and denials are counted.

Only with -increment it calls a server, and writes into it: it increments the event through HTTP
for each line, and then counts every feature, and every combination that a rule names, over
several windows, as of now and of past moments, and compares each count with an exact log. The
features must not have been counted before: use a fresh server, or -reset. No increment is sent
twice, and the first request that fails ends it. The log is shifted so that its last event is
now; what is then older than the server's retention is skipped.

`

const replayExamples = `  loadtest replay access.log.2.gz access.log.1 access.log
  loadtest replay -increment -url https://counterd.internal:8443 -ca ca.pem -token-file token access.log
  loadtest replay -rules rules.yaml -features ip=client.ip,user=user.id -time-field ts events.json
  loadtest replay -deny 0.5 -write rules.yaml -html report.html access.log
  loadtest replay -format sshd -features ip=host,user /var/log/auth.log
  ssh web journalctl -u app | loadtest replay -failures -event login -features email -json \
    -regexp '(?P<time>\S+) login of (?P<email>\S+) failed'
`

// replayFlags are the arguments of loadtest replay.
type replayFlags struct {
	log         logFlags
	offline     offlineFlags
	url, event  string
	credentials credentials
	timeout     time.Duration
	config      replay.Config
	rules       *events.Event // to try; nil: none
}

func (f *replayFlags) flags(set *flag.FlagSet) {
	f.log.add(set)
	f.offline.add(set)
	set.StringVar(&f.url, "url", "http://127.0.0.1:8080", "with -increment: the server's `URL`")
	set.StringVar(&f.event, "event", "url_shorten", "the `event` to count as (default login for failures)")
	set.Func("windows", "with -increment: the `windows` to compare (default 1m,15m,1h,6h,24h without what is longer than the retention)", func(s string) error {
		for text := range strings.SplitSeq(s, ",") {
			window, err := events.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("%q: %w", text, err)
			}
			f.config.Windows = append(f.config.Windows, window)
		}
		return nil
	})
	set.IntVar(&f.config.Concurrency, "c", replay.DefaultConcurrency, "with -increment: `number` of requests at once")
	set.DurationVar(&f.timeout, "timeout", client.DefaultTimeout, "with -increment: longest `time` for one request")
	set.BoolVar(&f.config.Reset, "reset", false, "with -increment: forget the log's features first")
	f.credentials.add(set)
}

func (f *replayFlags) check(set *flag.FlagSet) (err error) {
	if err := f.offline.check(set, &f.log); err != nil {
		return err
	}
	if err := f.log.parse(set); err != nil {
		return err
	}
	if f.offline.failures && !given(set, "event") {
		f.event = "login"
	}
	c := &f.config
	c.Event = f.event
	if !events.ValidName(f.event) {
		return errors.New("-event is not the name of an event")
	}
	if f.offline.rules != "" {
		f.rules, err = f.offline.event(f.event, given(set, "event"), f.log.mapping)
		return err
	}
	if f.offline.suggest {
		return nil
	}
	if err := f.credentials.parse(f.url); err != nil {
		return err
	}
	c.Client, err = client.New(client.Config{
		URL: f.url, Token: f.credentials.token(), TLS: f.credentials.tls, Timeout: f.timeout, Conns: c.Concurrency,
	})
	return err
}

func (f *replayFlags) run(ctx context.Context, s *session) (bool, error) {
	if err := f.log.wanted(s.streams); err != nil {
		return false, misuse(err)
	}
	log, err := f.log.read(ctx, s.streams)
	switch {
	case err != nil:
		return false, err
	case !f.offline.increment:
		return true, f.withoutServer(ctx, log, s)
	}
	defer f.config.Client.Close()
	f.config.Progress = s.bar
	result, err := replay.Run(ctx, f.config, log)
	if err != nil {
		if result.Events+result.Unknown > 0 {
			s.complain("%d events had been counted and %d may have been; use -reset the next time, to forget them", result.Events, result.Unknown)
		}
		return false, replayAdvice(ctx, f.credentials.advised(err))
	}
	return result.Differences == 0, s.print(result)
}

// replayAdvice adds which flag may help.
func replayAdvice(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, replay.ErrWindow):
		return misuse(err)
	case errors.Is(err, replay.ErrNotEmpty):
		return fmt.Errorf("%w; use a fresh server, or -reset to forget them", err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w; -timeout gives each request more time", err)
	}
	return err
}
