// Command league measures counterd and other rate limiters by the same traffic: what they admit beyond their limit and
// deny below it, whether their Retry-After is true, the bytes that a user takes, and hits a second. An exact log of
// when each hit began and ended is the judge.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const usage = `league measures counterd and other rate limiters by the same traffic, in some ten minutes, and prints
tables in Markdown.

  cd loadtest/league && go run . [-ratelimit PROGRAM] [-gubernator PROGRAM] [-markdown ../../docs/compare.md]

It starts memcached and redis-server on free ports of loopback. Contenders whose program is missing are listed as such.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "league:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("league", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.Usage = func() {
		fmt.Fprint(progress, usage)
		flags.PrintDefaults()
	}
	var p Programs
	flags.StringVar(&p.Counterd, "counterd", "", "the `program` of counterd; default: it is built")
	flags.StringVar(&p.Memcached, "memcached", found("memcached"), "the `program`")
	flags.StringVar(&p.Redis, "redis", found("redis-server"), "the `program`")
	flags.StringVar(&p.RateLimit, "ratelimit", found("ratelimit"), "the `program` of envoyproxy/ratelimit")
	flags.StringVar(&p.Gubernator, "gubernator", found("gubernator"), "the `program`")
	only := flags.String("only", "", "measure contenders whose name matches this regular `expression`")
	markdown := flags.String("markdown", "", "write the tables into this `file`, between its marks")
	config := defaults
	config.Progress = progress
	flags.Uint64Var(&config.Seed, "seed", config.Seed, "of the traffic")
	flags.IntVar(&config.Rounds, "rounds", config.Rounds, "of hits a second")
	flags.IntVar(&config.Users, "users", config.Users, "for the bytes of each")
	flags.DurationVar(&config.Slice, "slice", config.Slice, "the length of a round of hits a second, for each contender")
	flags.DurationVar(&config.Length, "length", config.Length, "of the traffic that is judged")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *only != "" && *markdown != "" {
		return errors.New("-markdown writes the tables of all contenders: leave -only out")
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if p.Counterd == "" {
		folder, err := os.MkdirTemp("", "counterd-league")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		if p.Counterd, err = build(ctx, folder); err != nil {
			return err
		}
	}
	var taking []Contender
	for _, c := range contenders(ctx, p) {
		if wanted.MatchString(c.Name) {
			taking = append(taking, c)
		}
	}
	if len(taking) == 0 {
		return fmt.Errorf("-only %s matches no contender", *only)
	}
	rows, err := run(ctx, config, taking)
	if err != nil {
		return err
	}
	tables := report(config, rows, time.Now())
	if *markdown != "" {
		if err := writeInto(*markdown, tables); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, tables)
	return err
}

// defaults take some ten minutes.
var defaults = Config{
	Seed:   1,
	Limits: []Limit{{"minute", 20, time.Minute}, {"second", 10, time.Second}}, Features: []int{6, 12},
	Length: 150 * time.Second, Retriers: 24, Users: 5000, UserHits: 5, Settle: 4 * time.Second, Rounds: 8, Slice: 700 * time.Millisecond,
	alignedTo: time.Minute,
}

// contenders returns all, counterd's first.
func contenders(ctx context.Context, p Programs) []Contender {
	var memcached, redis, ours string
	if p.Memcached != "" {
		memcached = outputOf(ctx, "memcached ", p.Memcached, "-V")
	}
	if p.Redis != "" {
		redis = outputOf(ctx, "v=", p.Redis, "--version")
	}
	if ours = outputOf(ctx, "counterd ", p.Counterd, "-version"); ours == "(devel)" {
		ours = "commit " + outputOf(ctx, "", "git", "rev-parse", "--short", "HEAD")
	}
	list := counterdContenders(p, ours, memcached)
	list = append(list, rateLimitContenders(p, redis, memcached)...)
	list = append(list, gubernatorContenders(p)...)
	list = append(list, redisContenders(p, redis)...)
	return append(list, inMemory())
}

// found returns the path of a program, or nothing.
func found(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	if path, err := exec.LookPath(filepath.Join("/usr/sbin", program)); err == nil {
		return path
	}
	return ""
}

// build builds counterd from the module that this one is of.
func build(ctx context.Context, folder string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/counterd/counterd").Output()
	if err != nil {
		return "", fmt.Errorf("finding counterd's module: run league in its folder: %w", err)
	}
	path := filepath.Join(folder, "counterd")
	build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", path, "./cmd/counterd")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building counterd: %w: %s", err, text)
	}
	return path, nil
}
