package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/replay"
)

const replayUsage = `loadtest replay replays an access log and compares every count.

Usage: loadtest replay [flags] [FILE]

It reads the log, in the common or the combined format, plain or gzip, from FILE
or, without one or with -, from standard input. It shifts its times so that the
last event is now, increments the event through HTTP for each line, by the
address at its start, and then counts every address over several windows, as of
now and of past moments, and compares each count with an exact log that it keeps
beside. The addresses must not have been counted before: use a fresh server, or
-reset.

The log is held in memory, about 100 bytes a line. What is older than the server's
retention, or less than 10s from being so, is skipped, and said so. No increment
is sent twice; one whose outcome is not known is a failure.

Flags:

%s
Examples:

  loadtest replay access.log
  loadtest replay -reset -windows 90s,2h -moments 10 loadtest/testdata/apache_logs.log.gz
  zcat access.log.*.gz | loadtest replay -event login_failed -json

Exit status: 0 no difference; 1 a difference, a request that failed, or no server;
2 wrong usage.
`

// replayFlags are the arguments of loadtest replay.
type replayFlags struct {
	url, event, windows string
	tokenFile           string
	naming              replay.Naming
	concurrency         int
	moments             int
	timeout             time.Duration
	reset, json         bool
	file                string
}

func (f *replayFlags) set() *flag.FlagSet {
	set := newFlags("replay")
	set.StringVar(&f.url, "url", "http://127.0.0.1:8080", "the server's `URL`")
	set.StringVar(&f.event, "event", "url_shorten", "the `event` to count as")
	set.StringVar(&f.naming.Kind, "kind", events.KindIP, "the `kind` of feature at the start of a line; host takes names too")
	set.IntVar(&f.naming.IPv6Prefix, "ipv6-prefix", 0, "the `bits` by which the server counts IPv6 addresses; 0: as its rules say")
	set.StringVar(&f.windows, "windows", "", "the `windows` to compare (default 1m,15m,1h,6h,24h without what is longer than the retention)")
	set.IntVar(&f.moments, "moments", replay.DefaultMoments, "`number` of past moments to count as of, besides now")
	set.IntVar(&f.concurrency, "c", replay.DefaultConcurrency, "`number` of requests at once")
	set.DurationVar(&f.timeout, "timeout", client.DefaultTimeout, "longest `time` for one request")
	set.BoolVar(&f.reset, "reset", false, "forget the log's addresses first")
	set.StringVar(&f.tokenFile, "token-file", "", "`file` that holds the token to call with; none: without")
	set.BoolVar(&f.json, "json", false, "print the result as JSON")
	return set
}

// parse returns the configuration that the flags ask for, but for its client.
func (f *replayFlags) parse(set *flag.FlagSet, args []string) (replay.Config, error) {
	if err := set.Parse(args); err != nil {
		return replay.Config{}, err
	}
	f.file = "-"
	switch set.NArg() {
	case 0:
	case 1:
		f.file = set.Arg(0)
	default:
		return replay.Config{}, fmt.Errorf("one FILE is taken, behind the flags, not also %q", set.Arg(1))
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
	case f.naming.IPv6Prefix < 0 || f.naming.IPv6Prefix > 128:
		return config, errors.New("-ipv6-prefix is 1 to 128, or 0")
	}
	if f.naming.Kind != events.KindIP {
		if err := (events.Features{f.naming.Kind: "any"}).Validate(); err != nil {
			return config, errors.New("-kind is not a kind of feature")
		}
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
	config := client.Config{URL: f.url, Timeout: f.timeout, Conns: f.concurrency}
	if f.tokenFile != "" {
		config.Token = client.TokenFile(f.tokenFile)
	}
	return config
}

func runReplay(ctx context.Context, args []string, std streams) int {
	var flags replayFlags
	set := flags.set()
	config, err := flags.parse(set, args)
	if err == nil {
		config.Client, err = client.New(flags.client())
	}
	if err == nil && flags.file == "-" && set.NArg() == 0 && isTerminal(std.in) {
		err = errors.New("a log is wanted: FILE, or one on standard input")
	}
	if err != nil {
		return std.refused(set, func() string { return fmt.Sprintf(replayUsage, defaultsOf(set)) }, err)
	}
	defer config.Client.Close()
	log, err := readLog(ctx, config.Client, flags, std)
	if err != nil {
		return std.failed(ctx, err, nil)
	}
	bar := newBar(std.err)
	config.Progress = bar
	result, err := replay.Run(ctx, config, log)
	bar.finish()
	if err != nil {
		return std.failed(ctx, err, result)
	}
	if err := writeResult(std.out, result, flags.json); err != nil {
		return std.failed(ctx, err, nil)
	}
	if result.FirstFailure != "" {
		std.complain("%d increments and %d counts failed, the first: %s", result.Failed, result.FailedCounts, result.FirstFailure)
	}
	if !result.OK() {
		return exitFailed
	}
	return exitOK
}

// readLog reads the log, and tells which lines it could not make sense of.
func readLog(ctx context.Context, c *client.Client, flags replayFlags, std streams) (*replay.Log, error) {
	in := std.in
	if flags.file != "-" {
		file, err := os.Open(flags.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	naming := flags.naming
	if naming.Kind == events.KindIP && naming.IPv6Prefix == 0 {
		event, err := c.Event(ctx, flags.event)
		if err != nil {
			return nil, fmt.Errorf("asking how %s is counted: %w", flags.event, err)
		}
		naming.IPv6Prefix = ipv6Prefix(event)
	}
	log, err := replay.ReadLog(ctx, in, naming)
	if err != nil || log.Malformed == 0 {
		return log, err
	}
	lines := strings.Trim(fmt.Sprint(log.MalformedLines), "[]")
	if more := log.Malformed - len(log.MalformedLines); more > 0 {
		lines += fmt.Sprintf(" and %d more", more)
	}
	std.complain("%d malformed lines: %s", log.Malformed, lines)
	return log, nil
}

// ipv6Prefix returns the bits by which the event's counters of addresses are kept;
// 0: the default.
func ipv6Prefix(event wire.Event) int {
	for _, rule := range event.Rules {
		if slices.Equal(rule.Per, []string{events.KindIP}) {
			return rule.IPv6Prefix
		}
	}
	return 0
}

// failed says what went wrong and how far it came, and returns the exit status.
func (s streams) failed(ctx context.Context, err error, result *replay.Result) int {
	_, answered := errors.AsType[*client.Error](err)
	switch {
	case ctx.Err() != nil:
		s.complain("interrupted")
	case errors.Is(err, replay.ErrNotEmpty):
		s.complain("%v; use a fresh server, or -reset to forget them", err)
	case errors.Is(err, client.ErrUnknown):
		s.complain("%v; -event names one that the server has", err)
	case errors.Is(err, client.ErrUnavailable) && !answered:
		s.complain("%v; -url says where the server is", err)
	default:
		s.complain("%v", err)
	}
	if result != nil && result.Events+result.Failed > 0 {
		s.complain("%d events had been counted and %d may have been; use -reset the next time, to forget them",
			result.Events, result.Failed)
	}
	if errors.Is(err, replay.ErrWindow) {
		return exitUsage
	}
	return exitFailed
}
