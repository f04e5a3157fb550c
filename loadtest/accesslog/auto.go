package accesslog

import (
	"net/netip"
	"strings"
	"time"
)

// auto goes by the beginning of each line.
type auto struct {
	json          Format
	common, vhost oneOfAuto
}

// oneOfAuto is a format, or what it lacks.
type oneOfAuto struct {
	format Format
	lack   error // a field that is asked for
}

func (f oneOfAuto) Parse(line string) (Record, error) {
	if f.lack != nil {
		return Record{}, malformed(0, "it is no JSON object, and "+strings.TrimPrefix(f.lack.Error(), "accesslog: "))
	}
	return f.format.Parse(line)
}

// NewAuto returns a format that goes by the beginning of each line: with a { it is JSON,
// as in NewJSON, with a host and a port it is in Apache's vhost_combined format, else in the
// common or the combined one. Where these lack a field that is asked for, only the others are
// taken.
func NewAuto(config JSONConfig) (Format, error) {
	json, err := NewJSON(config)
	if err != nil {
		return nil, err
	}
	f := &auto{json: json}
	f.common.format, f.common.lack = NewCommon(config.Fields...)
	f.vhost.format, f.vhost.lack = NewVhostCombined(config.Fields...)
	return f, nil
}

func (f *auto) Parse(line string) (Record, error) {
	record, err := f.parse(line)
	if err != nil && beginsWithTime(line) {
		err = malformed(depthTime, "it begins with a time, as in a syslog: -format sshd reads failed logins of OpenSSH, -regexp any other line")
	}
	return record, err
}

func (f *auto) parse(line string) (Record, error) {
	switch {
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), "{"):
		return f.json.Parse(line)
	case beginsWithVhost(line):
		return f.vhost.Parse(line)
	}
	return f.common.Parse(line)
}

// beginsWithTime reports whether the line begins as one of a syslog.
func beginsWithTime(line string) bool {
	if len(line) > len(syslogLayout) {
		if _, err := parseSyslog(line[:len(syslogLayout)]); err == nil {
			return true
		}
	}
	first, _, _ := strings.Cut(line, " ")
	_, err := time.Parse(time.RFC3339Nano, first)
	return err == nil
}

// beginsWithVhost reports whether the line begins with a host and a port, and not with an
// address, which may have colons, too.
func beginsWithVhost(line string) bool {
	first, _, _ := strings.Cut(line, " ")
	_, err := netip.ParseAddr(first)
	_, _, found := cutVhost(line)
	return found && err != nil
}

func (f *auto) String() string {
	var names []string
	for _, one := range []oneOfAuto{f.common, f.vhost} {
		if one.lack == nil {
			names = append(names, one.format.String())
		}
	}
	return strings.Join(append(names, f.json.String()), ", or ")
}
