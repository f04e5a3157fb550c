package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/counterd/counterd/loadtest/accesslog"
)

// logFlags are those of a log: its files, its format, and its features.
type logFlags struct {
	config     accesslog.Config
	timeLayout string
	features   string
	year       int // of the last line, where times have none; 0: by the file's date

	// What parse makes of them.
	made    accesslog.Format
	mapping accesslog.Mapping
	files   []string
	implied bool // no FILE was given
}

func (f *logFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.config.Format, "format", "auto", "the log's `format`: sshd, or auto: combined, common or JSON, by each line's beginning")
	set.StringVar(&f.config.Regexp, "regexp", "", "the `expression` that takes lines apart, instead of -format;\n"+
		`its groups, (?P<user>\S+), are the fields, and one is named time`)
	set.StringVar(&f.features, "features", accesslog.DefaultMapping().String(), "which fields are features: `kind=field,kind=field`;\n"+
		"where one is empty or - the line has none of that kind")
	set.StringVar(&f.config.TimeField, "time-field", "", "the `field` of JSON lines that holds the time\n"+
		"(default "+strings.Join(accesslog.DefaultTimeFields(), ", ")+", the first that is there)")
	set.StringVar(&f.timeLayout, "time-layout", "auto", "how JSON lines or -regexp write the time: a `layout` of Go's, or auto:\n"+
		"RFC 3339, common, syslog, or Unix seconds, milliseconds or finer")
	set.IntVar(&f.year, "year", 0, "the `year` of the last line of each FILE, where times have none, as in syslog\n"+
		"(default the latest in which that line is not after the file's date; now for -)")
}

// logFormats is the part of a help that explains them.
const logFormats = `A log is read from each FILE in turn, plain or gzip, or from standard input, also called -.
Fields of the combined format are host, ident, user, request, method, path, status, bytes,
referer and agent, with a virtual host in front vhost and port, too; of JSON lines their
members, as client.ip; of failed logins of OpenSSH (-format sshd) host, user, method, port and
n, how often a repeated message came; with -regexp, in Go's syntax, the named groups.

Without -regexp, what Docker, Kubernetes (CRI), Compose and syslog daemons write in front of a
line is skipped. Lines that -regexp or -format sshd does not match are filtered. Lines that cannot be read are
malformed: left out, counted, and named by their number, never quoted. Times of syslog have no
year (see -year) and are those of this machine's time zone, which the variable TZ sets.
`

// parse looks at the flags and at the arguments behind them.
func (f *logFlags) parse(set *flag.FlagSet) error {
	c := &f.config
	var err error
	if f.mapping, err = accesslog.ParseMapping(f.features); err != nil {
		return fmt.Errorf("-features: %w", plain(err))
	}
	if c.Layout, err = accesslog.ParseLayout(f.timeLayout); err != nil {
		return fmt.Errorf("-time-layout: %w", plain(err))
	}
	if err := refused(set,
		refusal{c.Regexp != "", "format", "and -regexp exclude each other"},
		refusal{c.Format == "sshd" || c.Regexp != "", "time-field", "is for JSON lines; -regexp has a group named time"},
		refusal{c.Format == "sshd", "time-layout", "is for JSON lines and -regexp"},
		// Counters go back to 1970, and layouts have four digits.
		refusal{f.year < 1970 || f.year > 9999, "year", "is 1970 to 9999"},
	); err != nil {
		return err
	}
	c.Fields = f.mapping.Fields()
	if f.made, err = accesslog.New(*c); err != nil {
		return plain(err)
	}
	f.files = set.Args()
	if f.implied = len(f.files) == 0; f.implied {
		f.files = []string{"-"}
	}
	for _, name := range f.files {
		if strings.HasPrefix(name, "-") && name != "-" {
			return fmt.Errorf("flags stand in front of FILE, not %q behind it", name)
		}
	}
	return nil
}

// plain leaves out the package in front of an error's text, which is of no help beside
// the name of the flag.
func plain(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "accesslog: ", ""))
}

// wanted is an error where a log would have to be typed.
func (f *logFlags) wanted(std streams) error {
	if f.implied && isTerminal(std.in) {
		return errors.New("a log is wanted: FILE, or one on standard input")
	}
	return nil
}

// read reads the log, and tells which lines it could not make sense of.
func (f *logFlags) read(ctx context.Context, std streams) (*accesslog.Log, error) {
	var inputs []accesslog.Input
	for _, name := range f.files {
		input := accesslog.File(name)
		if name == "-" {
			input = accesslog.Stream("standard input", std.in)
		}
		input.Year = f.year
		inputs = append(inputs, input)
	}
	log, err := accesslog.ReadLog(ctx, f.made, f.mapping, inputs...)
	switch {
	case errors.Is(err, accesslog.ErrYear):
		err = fmt.Errorf("%w; -year names the year of the last line", err)
	case errors.Is(err, accesslog.ErrFormat):
		err = fmt.Errorf("%w; -format sshd reads failed logins of OpenSSH, -regexp any line", err)
	}
	if log != nil && log.Malformed > 0 {
		lines := strings.Trim(fmt.Sprint(log.Places), "[]")
		if more := log.Malformed - len(log.Places); more > 0 {
			lines += fmt.Sprintf(" and %d more", more)
		}
		for _, f := range log.Faults {
			if err == nil && !f.Filtered {
				lines += fmt.Sprintf("; %d: %s", f.Lines, f.Reason)
			}
		}
		std.complain("%d malformed lines: %s", log.Malformed, lines)
	}
	return log, err
}
