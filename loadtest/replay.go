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

const replayUsage = `loadtest replay replays a log and compares every count.

Usage: loadtest replay [flags] [FILE ...]

It increments the event through HTTP for each line, by the features that the line names,
and then counts every feature, and every combination of them that a rule names, over
several windows, as of now and of past moments, and compares each count with an exact
log that it keeps beside. The features must not have been counted before: use a fresh
server, or -reset. Lines that name none of the features are left out.

Each event has a time of its own: that of the log, shifted so that the last one is now. What
is then older than the server's retention, or less than 10s from being so, is skipped, and
said so.

The log is held in memory, about 100 bytes a line. No increment is sent twice; one whose
outcome is not known is a failure.

%s
%s
Flags:

%s
Examples:

  loadtest replay access.log
  loadtest replay -rules rules.yaml access.log
  loadtest replay -suggest -deny 0.5 -write rules.yaml -html report.html access.log
  loadtest replay -url https://counterd.internal:8443 -ca ca.pem -token-file token access.log
  loadtest replay -reset -windows 90s,2h -moments 10 loadtest/testdata/apache_logs.log.gz
  loadtest replay access.log.2.gz access.log.1 access.log
  loadtest replay -features ip=client.ip,user=user.id -time-field ts events.json
  loadtest replay -suggest -format sshd /var/log/auth.log
  loadtest replay -rules rules.yaml -format sshd -features ip=host,user -year 2025 auth.log.1
  ssh web journalctl -u app | loadtest replay -event login_failed -features email -json \
    -regexp '(?P<time>\S+) login of (?P<email>\S+) failed' -time-layout rfc3339

Exit status: 0 no difference; 1 a difference, a request that failed, or no server;
2 wrong usage; 130 interrupted.
`

// replayFlags are the arguments of loadtest replay.
type replayFlags struct {
	log                 logFlags
	offline             offlineFlags
	url, event, windows string
	credentials         credentials
	concurrency         int
	moments             int
	timeout             time.Duration
	reset, json         bool
}

func (f *replayFlags) set() *flag.FlagSet {
	set := newFlags("replay")
	f.log.add(set)
	f.offline.add(set)
	set.StringVar(&f.url, "url", "http://127.0.0.1:8080", "the server's `URL`")
	set.StringVar(&f.event, "event", "url_shorten", "the `event` to count as")
	set.StringVar(&f.windows, "windows", "", "the `windows` to compare (default 1m,15m,1h,6h,24h without what is longer than the retention)")
	set.IntVar(&f.moments, "moments", replay.DefaultMoments, "`number` of past moments to count as of, besides now")
	set.IntVar(&f.concurrency, "c", replay.DefaultConcurrency, "`number` of requests at once")
	set.DurationVar(&f.timeout, "timeout", client.DefaultTimeout, "longest `time` for one request")
	set.BoolVar(&f.reset, "reset", false, "forget the log's features first")
	f.credentials.add(set)
	set.BoolVar(&f.json, "json", false, "print the result as JSON")
	return set
}

// parse returns the configuration that the flags ask for, but for its client.
func (f *replayFlags) parse(set *flag.FlagSet, args []string) (replay.Config, error) {
	if err := parseFlags(set, args); err != nil {
		return replay.Config{}, err
	}
	if err := f.offline.parse(set, &f.log); err != nil {
		return replay.Config{}, err
	}
	if err := f.log.parse(set); err != nil {
		return replay.Config{}, err
	}
	config := replay.Config{Event: f.event, Concurrency: f.concurrency, Moments: f.moments, Reset: f.reset}
	if f.moments == 0 {
		config.Moments = -1
	}
	switch {
	case !events.ValidName(f.event):
		return config, errors.New("-event is not the name of an event")
	case f.concurrency < 1:
		return config, errors.New("-c is at least 1")
	case f.moments < 0:
		return config, errors.New("-moments is at least 0")
	case f.timeout <= 0:
		return config, errors.New("-timeout is more than 0")
	}
	if f.windows == "" {
		return config, nil
	}
	for text := range strings.SplitSeq(f.windows, ",") {
		window, err := events.ParseDuration(text)
		if err != nil {
			return config, fmt.Errorf("-windows: %q: %w", text, err)
		}
		config.Windows = append(config.Windows, window)
	}
	return config, nil
}

// client returns how to call the server.
func (f *replayFlags) client() client.Config {
	return client.Config{
		URL: f.url, Token: f.credentials.token(), TLS: f.credentials.tls, Timeout: f.timeout,
		Conns: f.concurrency,
	}
}

func replayHelp(set *flag.FlagSet) string {
	return fmt.Sprintf(replayUsage, offlineUsage, logFormats, defaultsOf(set))
}

func runReplay(ctx context.Context, args []string, std streams) int {
	var flags replayFlags
	set := flags.set()
	config, err := flags.parse(set, args)
	if err == nil && flags.offline.on() {
		return flags.runOffline(ctx, set, std)
	}
	if err == nil {
		err = flags.credentials.parse(flags.url)
	}
	if err == nil {
		config.Client, err = client.New(flags.client())
	}
	if err == nil {
		err = flags.log.source.check(std)
	}
	if err != nil {
		return std.refused(set, func() string { return replayHelp(set) }, err)
	}
	defer config.Client.Close()
	log, err := flags.log.source.read(ctx, std)
	if err != nil {
		return std.failed(ctx, err)
	}
	bar := newBar(std.err)
	config.Progress = bar
	result, err := replay.Run(ctx, config, log)
	bar.finish()
	if err != nil {
		return replayFailed(ctx, flags.credentials.advised(err), result, std)
	}
	if err := writeResult(std.out, result, flags.json); err != nil {
		return std.failed(ctx, err)
	}
	if result.FirstFailure != "" {
		std.complain("%d increments and %d counts failed, the first: %s", result.Failed, result.FailedCounts, result.FirstFailure)
	}
	if !result.OK() {
		return exitFailed
	}
	return exitOK
}

// replayFailed says what went wrong and how far it came, and returns the exit status.
func replayFailed(ctx context.Context, err error, result *replay.Result, std streams) int {
	if errors.Is(err, replay.ErrNotEmpty) {
		err = fmt.Errorf("%w; use a fresh server, or -reset to forget them", err)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w; -timeout gives each request more time", err)
	}
	status := std.failed(ctx, err)
	if result.Events+result.Failed > 0 {
		std.complain("%d events had been counted and %d may have been; use -reset the next time, to forget them",
			result.Events, result.Failed)
	}
	if errors.Is(err, replay.ErrWindow) {
		return exitUsage
	}
	return status
}
