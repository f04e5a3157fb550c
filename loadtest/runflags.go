package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/arrival"
	load "github.com/counterd/counterd/loadtest/run"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/traffic"
)

const (
	defaultURL   = "http://127.0.0.1:8080"
	defaultCrowd = 10_000
)

// texts is a flag that may be there several times.
type texts []string

func (t *texts) String() string { return strings.Join(*t, ",") }

// Set adds a value.
func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// numbers is a flag that may be there several times, of numbers above 0.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint([]int(*n)), "[]") }

// Set adds a value.
func (n *numbers) Set(s string) error {
	number, err := strconv.Atoi(s)
	if err != nil || number < 1 {
		return errors.New("it is a number above 0")
	}
	*n = append(*n, number)
	return nil
}

// runFlags are the arguments of loadtest run.
type runFlags struct {
	urls, admin     texts
	pids            numbers
	credentials     credentials
	embedded, rules string
	timeout         time.Duration

	event, kind        string
	crowd              int
	zipf               float64
	featuresFile       string
	mixText, costsText string
	batch              int
	window             time.Duration
	mix                traffic.Mix
	costs              traffic.Costs
	rate               float64
	profileText        string
	profile            arrival.Profile
	duration, warmUp   time.Duration
	inFlight           int
	findMax            bool
	p99, trial         time.Duration
	seed               uint64
	maxFailures        string
	bounds             load.Bounds
	json               bool
	html               string
}

func newRunFlags() *runFlags { return &runFlags{} }

// parse reads the arguments, and finds what is wrong with them.
func (f *runFlags) parse(set *flag.FlagSet, args []string) error {
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	given := map[string]bool{}
	set.Visit(func(one *flag.Flag) { given[one.Name] = true })
	if err := f.exclude(given); err != nil {
		return err
	}
	if len(f.urls) == 0 {
		f.urls = texts{defaultURL}
	}
	if err := f.credentials.parse(slices.Concat(f.urls, f.admin)...); err != nil {
		return err
	}
	f.seed = cmp.Or(f.seed, rand.Uint64())
	if err := f.parseTraffic(); err != nil {
		return err
	}
	if err := f.parseProfile(given["duration"]); err != nil {
		return err
	}
	return cmp.Or(f.parseBounds(), f.checkLengths())
}

// parseBounds reads what the run has to keep.
func (f *runFlags) parseBounds() error {
	if f.maxFailures != "" {
		part, err := share.Parse(f.maxFailures)
		if err != nil {
			return fmt.Errorf("-max-failures: %w", err)
		}
		f.bounds.Failures = cmp.Or(part, load.NoFailures)
	}
	if f.bounds.P99 < 0 {
		return errors.New("-max-p99 is above 0, or 0 for none")
	}
	return nil
}

// exclude finds flags that have no meaning beside others.
func (f *runFlags) exclude(given map[string]bool) error {
	for _, pair := range [][2]string{
		{"embedded", "url"}, {"embedded", "admin"}, {"embedded", "pid"},
		{"features-file", "crowd"}, {"features-file", "zipf"}, {"rate", "profile"}, {"find-max", "profile"}, {"find-max", "duration"},
		{"find-max", "max-failures"}, {"find-max", "max-p99"},
	} {
		if given[pair[0]] && given[pair[1]] {
			return fmt.Errorf("-%s and -%s exclude each other", pair[0], pair[1])
		}
	}
	for _, name := range credentialFlags() {
		if given["embedded"] && given[name] {
			return fmt.Errorf("-embedded and -%s exclude each other", name)
		}
	}
	for flag, needs := range map[string]string{"rules": "embedded", "p99": "find-max", "trial": "find-max"} {
		if given[flag] && !given[needs] {
			return fmt.Errorf("-%s goes with -%s", flag, needs)
		}
	}
	if f.findMax && f.p99 <= 0 {
		return errors.New("-find-max needs -p99, above 0")
	}
	return nil
}

// parseTraffic reads the flags that say which calls there are.
func (f *runFlags) parseTraffic() (err error) {
	if !events.ValidName(f.event) {
		return errors.New("-event is not the name of an event")
	}
	kinds := strings.Split(f.kind, ",")
	for _, kind := range kinds {
		if err := traffic.CheckCrowd(kind, f.crowd, f.zipf); err != nil {
			return fmt.Errorf("-kind, -crowd or -zipf: %w", err)
		}
	}
	if slices.Sort(kinds); len(slices.Compact(kinds)) != strings.Count(f.kind, ",")+1 {
		return errors.New("-kind has one twice")
	}
	if f.featuresFile != "" && len(kinds) > 1 {
		return errors.New("-features-file is of one -kind")
	}
	if f.mix, err = traffic.ParseMix(f.mixText); err != nil {
		return fmt.Errorf("-mix: %w", err)
	}
	if f.costs, err = traffic.ParseCosts(f.costsText); err != nil {
		return fmt.Errorf("-costs: %w", err)
	}
	if f.batch < 1 || f.batch > traffic.MaxBatch {
		return fmt.Errorf("-batch is 1 to %d", traffic.MaxBatch)
	}
	if f.window < 0 || f.window > events.MaxWindow || f.window%time.Second != 0 {
		return fmt.Errorf("-window is whole seconds, 1s to %s", events.FormatDuration(events.MaxWindow))
	}
	return nil
}

// parseProfile reads the flags that say when calls arrive.
func (f *runFlags) parseProfile(lengthGiven bool) (err error) {
	if f.duration < load.MinDuration {
		return fmt.Errorf("-duration is at least %s", load.MinDuration)
	}
	if f.profileText == "" {
		if !(f.rate > 0 && f.rate <= arrival.MaxRate) {
			return fmt.Errorf("-rate is above 0, and at the most %d", arrival.MaxRate)
		}
		f.profile = arrival.Constant(f.rate)
	} else if f.profile, err = arrival.Parse(f.profileText, f.duration); err != nil {
		return fmt.Errorf("-profile: %w", err)
	}
	if steps, are := f.profile.(arrival.Steps); are && !lengthGiven {
		f.duration = max(steps.Length(), load.MinDuration)
	}
	if !f.findMax && arrival.Count(f.profile, f.duration) == 0 {
		return errors.New("-duration is over before a request arrives")
	}
	return nil
}

func (f *runFlags) checkLengths() error {
	switch {
	case f.warmUp < 0:
		return errors.New("-warm-up is not negative")
	case f.timeout <= 0:
		return errors.New("-timeout is above 0")
	case f.inFlight < 1 || f.inFlight > load.MaxInFlight:
		return fmt.Errorf("-max-in-flight is 1 to %d", load.MaxInFlight)
	case f.findMax && f.trial < load.MinDuration:
		return fmt.Errorf("-trial is at least %s", load.MinDuration)
	case f.findMax && f.rate < 1:
		return errors.New("-rate is at least 1 with -find-max")
	}
	return nil
}

// takes says how long it takes.
func (f *runFlags) takes() string {
	if f.findMax {
		return fmt.Sprintf("about 20 to 40 trials of %s, 100 at the most", f.trial)
	}
	return (f.warmUp + f.duration).String()
}

// says describes the calls.
func (f *runFlags) says() string {
	whom := fmt.Sprintf("%d %s", f.crowd, f.kind)
	switch {
	case f.featuresFile != "":
		whom = f.kind + " of " + f.featuresFile
	case f.zipf > 0:
		whom += fmt.Sprintf(" by Zipf's law, %v", f.zipf)
	}
	text := fmt.Sprintf("%s: %s; %s", f.event, f.mixText, whom)
	if f.costsText != "1" {
		text += "; costs " + f.costsText
	}
	if f.mix[traffic.Batch] > 0 {
		text += fmt.Sprintf("; batches of %d", f.batch)
	}
	return fmt.Sprintf("%s; seed %d", text, f.seed)
}

// errRunUsage is what errors of flags wrap that are found late.
var errRunUsage = errors.New("wrong usage")

// target returns what is to be loaded.
func (f *runFlags) target(ctx context.Context) (load.Target, error) {
	if f.embedded != "" {
		return f.embeddedTarget(ctx)
	}
	target, err := load.NewHTTP(load.HTTPConfig{
		URLs: f.urls, Admin: f.admin, PIDs: f.pids, Token: f.credentials.token(), TLS: f.credentials.tls, Timeout: f.timeout, Conns: f.inFlight,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: -url or -admin: %w", errRunUsage, err)
	}
	return target, nil
}

func (f *runFlags) embeddedTarget(ctx context.Context) (load.Target, error) {
	rules := events.Example()
	if f.rules != "" {
		var err error
		if rules, err = events.ReadRules(f.rules); err != nil {
			return nil, fmt.Errorf("-rules: %w", err)
		}
	}
	event, err := rules.Event(f.event)
	if err != nil {
		return nil, fmt.Errorf("-event: %w", err)
	}
	if f.window == 0 {
		f.window = event.Remembered()
	}
	config := load.EmbeddedConfig{Event: event, Pending: max(f.inFlight, load.DefaultInFlight)}
	if f.embedded != "memory" {
		config.Servers = strings.Split(f.embedded, ",")
	}
	target, err := load.NewEmbedded(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("-embedded: %w", err)
	}
	return target, nil
}

// source returns the calls.
func (f *runFlags) source(ctx context.Context, target load.Target) (*traffic.Source, error) {
	if servers, are := target.(*load.HTTP); are {
		remembered, err := servers.Remembered(ctx, f.event)
		if err != nil {
			return nil, err
		}
		f.window = cmp.Or(f.window, remembered)
	}
	rng := rand.New(rand.NewPCG(f.seed, 0))
	crowd, err := f.people(rng)
	if err != nil {
		return nil, err
	}
	return traffic.New(traffic.Config{
		Event: f.event, Crowd: crowd, Mix: f.mix, Costs: f.costs, BatchSize: f.batch, Window: f.window, Rand: rng,
	})
}

// people returns whose calls they are.
func (f *runFlags) people(rng *rand.Rand) (traffic.Crowd, error) {
	if f.featuresFile != "" {
		file, err := os.Open(f.featuresFile)
		if err != nil {
			return nil, fmt.Errorf("-features-file: %w", err)
		}
		defer file.Close()
		crowd, err := traffic.ReadCrowd(file, f.kind, rng)
		if err != nil {
			return nil, fmt.Errorf("-features-file: %w", err)
		}
		return crowd, nil
	}
	var crowds []traffic.Crowd
	for kind := range strings.SplitSeq(f.kind, ",") {
		if f.zipf > 0 {
			crowds = append(crowds, traffic.NewZipf(kind, f.crowd, f.zipf, rng))
		} else {
			crowds = append(crowds, traffic.NewUniform(kind, f.crowd, rng))
		}
	}
	if len(crowds) == 1 {
		return crowds[0], nil
	}
	return traffic.Together(crowds...), nil
}
