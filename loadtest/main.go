// Command loadtest proves a counterd server, and measures it.
//
// See loadtest -h, and docs/loadtest.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for calendars of rules

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it: 128 and the number of SIGINT
)

// command is what a user calls by its name.
type command struct {
	name, arguments, summary string
	about, examples          string // of its help
	task                     task
}

// task is one call of a command.
type task interface {
	flags(set *flag.FlagSet)
	check(set *flag.FlagSet) error                               // after parsing; an error is wrong usage
	run(ctx context.Context, s *session) (right bool, err error) // prints what it finds
}

// commands are in the order in which a new user needs them.
func commands() []command {
	return []command{
		{"run", "[flags]", "put load on a server, and say what became of it", runAbout, runExamples, &runFlags{}},
		{"verify", "[flags]", "hold every answer against an exact log, also while servers die", verifyAbout, verifyExamples, &verifyFlags{}},
		{"replay", "[flags] [FILE ...]", "suggest limits from a log, try rules on it, count it on a server", replayAbout + logFormats, replayExamples, &replayFlags{}},
		{"migrate", "[flags] [FILE ...]", "ask two rate limit services the same, and list where they differ", migrateAbout + logFormats, migrateExamples, &migrateFlags{}},
		{"plan", "[flags] [FILE ...]", "say what rules and traffic need: items, memory, servers", planAbout + logFormats, planExamples, &planFlags{}},
		{"bench", "[flags]", "measure, against what a plain program would do", benchAbout(), benchExamples, &benchFlags{}},
	}
}

const exitStatuses = `Exit status: 0 all is right; 1 something is not, or could not be done; 2 wrong usage;
130 it was interrupted, and until then nothing was wrong. Ctrl-C or SIGTERM interrupts:
what is known by then is said. A second one ends at once.
`

func usage() string {
	text := "loadtest proves a counterd server, and measures it.\n\nUsage:\n\n"
	for _, c := range commands() {
		text += fmt.Sprintf("  loadtest %-27s %s\n", c.name+" "+c.arguments, c.summary)
	}
	return text + "\nloadtest COMMAND -h explains a command, with examples.\n\n" + exitStatuses
}

// help explains the command and its flags.
func (c command) help(set *flag.FlagSet) string {
	var flags strings.Builder
	set.SetOutput(&flags)
	set.PrintDefaults()
	return fmt.Sprintf("loadtest %s: %s.\n\nUsage: loadtest %[1]s %[3]s\n\n%[4]s\nFlags:\n\n%[5]s\nExamples:\n\n%[6]s\n%[7]s",
		c.name, c.summary, c.arguments, c.about, &flags, c.examples, exitStatuses)
}

func main() {
	// There net/http writes what a server says that refuses a connection. It fails, too, the
	// next call on it, and that is counted.
	stdlog.SetOutput(io.Discard)
	os.Exit(untilInterrupted(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// untilInterrupted runs a command, and returns its exit status. The first signal ends the
// command's context: it says what it knows by then. The second one ends this process at
// once, whatever still goes on, and the system ends what it has started.
func untilInterrupted(args []string, std streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	told := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(told)
		stop()
		if isTerminal(std.err) {
			fmt.Fprintln(std.err) // below the bar
		}
		std.complain("ending; another interrupt ends it at once")
	})
	status := run(ctx, args, std)
	if !unwatch() {
		<-told
	}
	stop()
	return status
}

// run returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
		if len(args) > 0 && args[0] == c.name {
			return c.run(ctx, args[1:], std)
		}
	}
	switch {
	case len(args) == 0:
		std.complain("a command is wanted: %s; loadtest -h explains it", strings.Join(names, ", "))
	case args[0] == doNothing:
		return runNothing(ctx, args[1:], std)
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]):
		fmt.Fprint(std.out, usage())
		return exitOK
	default:
		std.complain("there is no command %q%s; loadtest -h lists them", args[0], didYouMean(args[0], names))
	}
	return exitUsage
}

// run parses the arguments, does the task, and returns the exit status.
func (c command) run(ctx context.Context, args []string, std streams) int {
	set := flag.NewFlagSet(c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	c.task.flags(set)
	s := &session{streams: std, bar: newBar(std.err)}
	set.BoolVar(&s.json, "json", false, "print the result as JSON")
	right, err := false, misuse(c.parse(set, args))
	if err == nil {
		right, err = c.task.run(ctx, s)
	}
	s.bar.finish()
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, c.help(set))
		return exitOK
	}
	interrupted := ctx.Err() != nil
	if _, wrong := errors.AsType[usageError](err); wrong {
		std.complain("%s: %s; loadtest %[1]s -h explains it", c.name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return exitUsage
	}
	// An interrupt is reason enough, unless something else went wrong.
	if err != nil && !(interrupted && errors.Is(err, ctx.Err())) {
		std.complain("%v", err)
		return exitFailed
	}
	if interrupted {
		std.complain("interrupted")
	}
	switch {
	case err == nil && !right:
		return exitFailed
	case interrupted:
		return exitInterrupted
	}
	return exitOK
}

// parse reads and checks the arguments.
func (c command) parse(set *flag.FlagSet, args []string) error {
	if err := parse(set, args); err != nil {
		return err
	}
	if set.NArg() > 0 && !strings.Contains(c.arguments, "FILE") {
		return fmt.Errorf("no argument is taken, not %q", set.Arg(0))
	}
	return c.task.check(set)
}

// usageError is a fault of the arguments.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// misuse says that an error is a fault of the arguments.
func misuse(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// streams are the standard ones.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// complain writes one line on standard error.
func (s streams) complain(format string, args ...any) {
	fmt.Fprintf(s.err, "loadtest: "+format+"\n", args...)
}

// session is what a task works with.
type session struct {
	streams
	bar  *bar
	json bool
}

// result is what a command has to say in the end.
type result interface {
	WriteText(io.Writer) error
}

// print writes a result as text, or as JSON with durations in seconds.
func (s *session) print(r result) error {
	s.bar.finish()
	if !s.json {
		return r.WriteText(s.out)
	}
	inSeconds := json.MarshalToFunc(func(to *jsontext.Encoder, d time.Duration) error {
		return to.WriteToken(jsontext.Float(d.Seconds()))
	})
	if err := json.MarshalWrite(s.out, r, jsontext.WithIndent("  "), json.WithMarshalers(inSeconds)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.out)
	return err
}
