package accesslog

import (
	"net/netip"
	"strings"
	"time"
)

// auto goes by the beginning of each line.
type auto struct {
	json          Format
	common, vhost Format
	lack          error // the field that the two lack; nil: one of them has all
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
	if f.vhost, err = NewVhostCombined(config.Fields...); err != nil {
		f.vhost = nil
	}
	if f.common, err = NewCommon(config.Fields...); err != nil {
		f.common = nil
		if f.vhost == nil {
			f.lack = err
		}
	}
	return f, nil
}

func (f *auto) Parse(line string) (Record, error) {
	switch {
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), "{"):
		return f.json.Parse(line)
	case beginsWithTime(line):
		return Record{}, malformed("it begins with a time, as in a syslog: -format sshd reads failed logins of OpenSSH, -regexp any other line")
	case f.lack != nil:
		return Record{}, malformed("it is no JSON object, and " + strings.TrimPrefix(f.lack.Error(), "accesslog: "))
	case f.common == nil || f.vhost != nil && !beginsWithAddress(line):
		record, err := f.vhost.Parse(line)
		if f.common == nil || err != f.vhost.(*byExpression).mismatch {
			return record, err
		}
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

// beginsWithAddress reports whether the first word is an address, which may end as a port does.
func beginsWithAddress(line string) bool {
	first, _, _ := strings.Cut(line, " ")
	_, err := netip.ParseAddr(first)
	return err == nil
}

func (f *auto) String() string {
	var names []string
	for _, one := range []Format{f.common, f.vhost, f.json} {
		if one != nil {
			names = append(names, one.String())
		}
	}
	return strings.Join(names, ", or ")
}
