package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/counterd/counterd/loadtest/accesslog"
)

// Formats of a log.
const (
	formatAuto     = "auto"
	formatCombined = "combined"
	formatCommon   = "common"
	formatVhost    = "vhost_combined"
	formatJSON     = "json"
	formatSSHD     = "sshd"
	formatRegexp   = "regexp" // asked for with -regexp
)

// logFlags are those of a log: its files, its format, and its features.
type logFlags struct {
	format, expression    string
	timeField, timeLayout string
	features              string
	year                  int

	source logSource // what parse makes of them
}

func (f *logFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.format, "format", formatAuto, "the log's `format`: combined (or common, vhost_combined, the same),\n"+
		"json, sshd, or auto: combined or json, by each line's beginning")
	set.StringVar(&f.expression, "regexp", "", "the `expression` that takes lines apart, instead of -format;\n"+
		`its groups, (?P<user>\S+), are the fields, and one is named time`)
	set.StringVar(&f.features, "features", accesslog.DefaultMapping().String(), "which fields are features: `kind=field,kind=field`;\n"+
		"where one is empty or - the line has none of that kind")
	set.StringVar(&f.timeField, "time-field", "", "the `field` of JSON lines that holds the time\n"+
		"(default "+strings.Join(accesslog.DefaultTimeFields(), ", ")+", the first that is there)")
	set.StringVar(&f.timeLayout, "time-layout", "auto", "how JSON lines or -regexp write the time: a `layout` of Go's, or auto:\n"+
		"RFC 3339, common, syslog, or Unix seconds, milliseconds or finer")
	set.IntVar(&f.year, "year", 0, "the `year` of the last line of each FILE, where times have none, as in syslog\n"+
		"(default the latest in which that line is not after the file's date; now for -)")
}

// logFormats is the part of a help that explains them.
const logFormats = `A log is read from each FILE in turn, or from standard input, which is also called -.
It may be compressed with gzip, whatever it is called. Its lines are

  in the combined or the common format: host, ident, user, request, method, path
    (without what stands behind a ?), status, bytes, referer and agent are its fields;
    vhost_combined, Apache's format with a virtual host in front, has vhost and port, too;
  JSON, an object in each: its members are the fields, client.ip is that of
    {"client": {"ip": "192.0.2.1"}} and of {"client.ip": "192.0.2.1"};
  a syslog (-format sshd), of which the failed logins of OpenSSH are taken, by password or
    keyboard-interactive: host (the client's address), user, method, port, and n, how often
    a "message repeated n times" came, are their fields;
  or whatever -regexp matches, in Go's syntax: its named groups are the fields.

Lines that -regexp or -format sshd does not match are filtered. Lines that cannot be read,
or are longer than a MiB, or have a name where an address should be, are malformed: left
out, counted, and named by their number, never quoted. Times of syslog have no year (see
-year) and are those of this machine's time zone, which the variable TZ sets.
`

// parse looks at the flags and at the arguments behind them.
func (f *logFlags) parse(set *flag.FlagSet) error {
	mapping, err := accesslog.ParseMapping(f.features)
	if err != nil {
		return fmt.Errorf("-features: %w", plain(err))
	}
	layout, err := accesslog.ParseLayout(f.timeLayout)
	if err != nil {
		return fmt.Errorf("-time-layout: %w", plain(err))
	}
	if f.year != 0 && (f.year < minYear || f.year > maxYear) {
		return fmt.Errorf("-year is %d to %d", minYear, maxYear)
	}
	f.source = logSource{mapping: mapping, year: f.year}
	if f.source.format, err = f.newFormat(layout, mapping.Fields()); err != nil {
		return err
	}
	f.source.files = set.Args()
	if len(f.source.files) == 0 {
		f.source.files = []string{"-"}
		f.source.implied = true
	}
	for _, name := range f.source.files {
		if strings.HasPrefix(name, "-") && name != "-" {
			return fmt.Errorf("flags stand in front of FILE, not %q behind it", name)
		}
	}
	return nil
}

// minYear and maxYear bound -year: counters go back to 1970, and layouts have four digits.
const (
	minYear = 1970
	maxYear = 9999
)

func (f *logFlags) newFormat(layout accesslog.Layout, fields []string) (accesslog.Format, error) {
	format := f.format
	if f.expression != "" {
		if format != formatAuto {
			return nil, errors.New("-regexp stands instead of -format")
		}
		format = formatRegexp
	}
	switch {
	case f.timeField != "" && format != formatAuto && format != formatJSON:
		return nil, errors.New("-time-field is for JSON lines; -regexp has a group named time, and the other formats have one")
	case f.timeLayout != "auto" && format != formatAuto && format != formatJSON && format != formatRegexp:
		return nil, errors.New("-time-layout is for JSON lines and -regexp; the other formats have one")
	case f.year != 0 && (format == formatCombined || format == formatCommon || format == formatVhost):
		return nil, errors.New("-year is for times without a year; those of the format " + format + " have one")
	}
	config := accesslog.JSONConfig{Time: f.timeField, Layout: layout, Fields: fields}
	var made accesslog.Format
	var err error
	switch format {
	case formatAuto:
		made, err = accesslog.NewAuto(config)
	case formatCombined, formatCommon, formatVhost:
		made, err = accesslog.NewCombined(fields...)
	case formatJSON:
		made, err = accesslog.NewJSON(config)
	case formatSSHD:
		made, err = accesslog.NewSSHD(fields...)
	case formatRegexp:
		made, err = accesslog.NewRegexp(f.expression, layout, fields...)
	default:
		return nil, fmt.Errorf("-format is auto, combined, common, vhost_combined, json or sshd, not %q", f.format)
	}
	if err != nil {
		return nil, fmt.Errorf("-%s: %w", flagOf(format), plain(err))
	}
	return made, nil
}

// flagOf returns the flag that a format was asked for with.
func flagOf(format string) string {
	if format == formatRegexp {
		return format
	}
	return "format"
}

// plain leaves out the package in front of an error's text, which is of no help beside
// the name of the flag.
func plain(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "accesslog: ", ""))
}

// logSource is a log that can be read.
type logSource struct {
	format  accesslog.Format
	mapping accesslog.Mapping
	files   []string
	implied bool // no FILE was given
	year    int  // of the last line, where times have none; 0: by the file's date
}

// check is an error where a log would have to be typed.
func (s logSource) check(std streams) error {
	if s.implied && isTerminal(std.in) {
		return errors.New("a log is wanted: FILE, or one on standard input")
	}
	return nil
}

// read reads the log, and tells which lines it could not make sense of.
func (s logSource) read(ctx context.Context, std streams) (*accesslog.Log, error) {
	var inputs []accesslog.Input
	for _, name := range s.files {
		input := accesslog.File(name)
		if name == "-" {
			input = accesslog.Stream("standard input", std.in)
		}
		input.Year = s.year
		inputs = append(inputs, input)
	}
	log, err := accesslog.ReadLog(ctx, s.format, s.mapping, inputs...)
	if errors.Is(err, accesslog.ErrYear) {
		err = fmt.Errorf("%w; -year names the year of the last line", err)
	}
	if log != nil && log.Malformed > 0 {
		lines := strings.Trim(fmt.Sprint(log.Places), "[]")
		if more := log.Malformed - len(log.Places); more > 0 {
			lines += fmt.Sprintf(" and %d more", more)
		}
		if err == nil {
			lines += " (" + reasonsOf(log.Faults) + ")"
		}
		std.complain("%d malformed lines: %s", log.Malformed, lines)
	}
	return log, err
}

// reasonsOf says what is wrong with malformed lines, and where there are several reasons, with
// how many each.
func reasonsOf(faults []accesslog.Fault) string {
	var reasons, counted []string
	for _, f := range faults {
		if !f.Filtered {
			reasons = append(reasons, f.Reason)
			counted = append(counted, fmt.Sprintf("%d: %s", f.Lines, f.Reason))
		}
	}
	if len(reasons) == 1 {
		return reasons[0]
	}
	return strings.Join(counted, "; ")
}
