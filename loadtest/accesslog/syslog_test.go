package accesslog

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newSSHD(t *testing.T) Format {
	t.Helper()
	format, err := New(Config{Format: "sshd", Fields: []string{"host", "user", "method", "n"}})
	require.NoError(t, err)
	return format
}

// The lines are in the exact forms of OpenSSH, and of syslog daemons.
func TestSSHD(t *testing.T) {
	const head = "Dec 10 06:55:48 bastion sshd[24200]: "
	for name, c := range map[string]struct{ line, want string }{
		"a password":                     {head + "Failed password for root from 203.0.113.7 port 38926 ssh2", "203.0.113.7 root password "},
		"no such user":                   {head + "Failed password for invalid user admin from 203.0.113.7 port 38926 ssh2", "203.0.113.7 admin password "},
		"PAM":                            {head + "Failed keyboard-interactive/pam for root from 203.0.113.7 port 38926 ssh2", "203.0.113.7 root keyboard-interactive/pam "},
		"repeated":                       {head + "message repeated 5 times: [ Failed password for root from 203.0.113.7 port 42393 ssh2]", "203.0.113.7 root password 5"},
		"repeated, no such user":         {head + "message repeated 12 times: [ Failed password for invalid user pi from 2001:db8::7 port 42393 ssh2]", "2001:db8::7 pi password 12"},
		"a user with blanks":             {head + "Failed password for invalid user a b  from 203.0.113.7 port 1 ssh2", "203.0.113.7 a b  password "},
		"a user named as an address":     {head + "Failed password for invalid user root from 192.0.2.1 port 1 ssh2 from 203.0.113.7 port 2 ssh2", "203.0.113.7 root from 192.0.2.1 port 1 ssh2 password "},
		"a user named as a repetition":   {head + "Failed password for invalid user message repeated 9 times: [ from 203.0.113.7 port 2 ssh2", "203.0.113.7 message repeated 9 times: [ password "},
		"OpenSSH 9.8":                    {strings.Replace(head, "sshd[", "sshd-session[", 1) + "Failed password for root from 203.0.113.7 port 1 ssh2", "203.0.113.7 root password "},
		"rsyslog of Debian 12":           {"2026-12-10T06:55:48.123456+01:00 bastion sshd[24200]: Failed password for root from 203.0.113.7 port 1 ssh2", "203.0.113.7 root password "},
		"journalctl -o short-iso":        {"2026-12-10T06:55:48+0100 bastion sshd[24200]: Failed password for root from 203.0.113.7 port 1 ssh2", "203.0.113.7 root password "},
		"RFC 5424":                       {"<38>1 2026-12-10T05:55:48.123Z bastion sshd 24200 - - Failed password for root from 203.0.113.7 port 1 ssh2", "203.0.113.7 root password "},
		"RFC 5424 with structured data":  {`<38>1 2026-12-10T05:55:48.123Z bastion sshd 24200 - [timeQuality tzKnown="1" isSynced="1"] ` + "\ufeffFailed password for root from 203.0.113.7 port 1 ssh2", "203.0.113.7 root password "},
		"a key":                          {head + "Failed publickey for root from 203.0.113.7 port 1 ssh2: RSA SHA256:x", "filtered"},
		"a login":                        {head + "Accepted password for anna from 203.0.113.7 port 1 ssh2", "filtered"},
		"another program":                {"Dec 10 06:55:48 bastion CRON[24200]: Failed password for root from 203.0.113.7 port 1 ssh2", "filtered"},
		"a login that is called as such": {head + "Accepted password for Failed password for root from 203.0.113.7 port 1 ssh2", "filtered"},
		"no such day":                    {strings.Replace(head, "Dec 10", "Dec 32", 1) + "Failed password for root from 203.0.113.7 port 1 ssh2", "malformed"},
	} {
		at, values, err := newSSHD(t).Parse(c.line)
		switch c.want {
		case "filtered":
			assert.ErrorIs(t, err, ErrFiltered, name)
		case "malformed":
			assert.ErrorIs(t, err, ErrMalformed, name)
		default:
			if assert.NoError(t, err, name) {
				assert.Equal(t, c.want, strings.Join(values, " "), name)
				assert.Equal(t, time.December, at.Month(), name)
			}
		}
	}
	_, err := New(Config{Format: "sshd", Fields: []string{"ip"}})
	assert.EqualError(t, err, `accesslog: the sshd format has no field "ip", but n, method, user, host, port`)
}

// failedAt is a failed login at the undated time.
func failedAt(at string) string {
	return at + " bastion sshd[1]: Failed password for root from 203.0.113.7 port 1 ssh2\n"
}

// inYears reads a syslog with a failed login at each of the times, and returns their years.
func inYears(t *testing.T, year int, written time.Time, times ...string) (string, error) {
	t.Helper()
	var text strings.Builder
	for _, at := range times {
		text.WriteString(failedAt(at))
	}
	input := Stream("auth.log", strings.NewReader(text.String()))
	open := input.Open
	input.Open = func() (io.ReadCloser, time.Time, error) {
		in, _, err := open()
		return in, written, err
	}
	input.Year = year
	log, err := ReadLog(t.Context(), newSSHD(t), DefaultMapping(), input)
	if err != nil {
		return "", err
	}
	require.Len(t, log.Events, len(times))
	var years []string
	for _, e := range log.Events {
		years = append(years, e.Time().Local().Format("06"))
	}
	return strings.Join(years, " "), nil
}

func TestYearsOfASyslog(t *testing.T) {
	november := time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)
	newYear := time.Date(2027, 1, 1, 0, 0, 5, 0, time.Local)
	for name, c := range map[string]struct {
		year    int
		written time.Time
		times   string
		want    string
	}{
		"the file's year":              {0, november, "Nov 22 11:59:59", "26"},
		"within a day":                 {0, november, "Nov 23 11:59:59", "26"}, // another zone's clock
		"not of the future":            {0, november, "Nov 23 12:00:01", "25"},
		"and begun":                    {0, newYear, "Dec 31 23:59:59,Jan  1 00:00:03", "26 27"},
		"a turn":                       {0, november, "Nov 30 01:02:03,Dec 31 23:59:59,Jan  1 00:00:00,Nov 22 11:00:00", "25 25 26 26"},
		"a late line at the turn":      {0, november, "Dec 31 23:59:58,Jan  1 00:00:00,Dec 31 23:59:59,Jan  1 00:00:01", "25 25 26 26"},
		"a year that is said":          {2019, november, "Dec 31 23:59:59,Jan  1 00:00:00", "18 19"},
		"one year before the leap day": {2025, november, "Feb 29 00:00:00,Mar  1 00:00:00,Oct  1 00:00:00,Jan 31 00:00:00", "24 24 24 25"},
		"dated lines among them":       {0, november, "Dec 31 23:59:59,2026-01-01T12:00:00+00:00,Jan  2 00:00:00,2026-01-03T12:00:00+00:00", "25 26 26 26"},
	} {
		got, err := inYears(t, c.year, c.written, strings.Split(c.times, ",")...)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	_, err := inYears(t, 2026, november, "Feb 29 00:00:00", "Mar  1 00:00:00")
	require.ErrorIs(t, err, ErrYear)
	assert.EqualError(t, err, "auth.log: accesslog: the log's times have no year, and the 29 February in it is none of 2026")
}

// Each file has a date of its own.
func TestTheDatesOfFiles(t *testing.T) {
	folder := t.TempDir()
	var inputs []Input
	for name, written := range map[string]time.Time{
		"auth.log":   time.Date(2021, 1, 8, 0, 0, 0, 0, time.Local),
		"auth.log.1": time.Date(2021, 1, 1, 0, 0, 1, 0, time.Local),
	} {
		name = filepath.Join(folder, name)
		at := "Jan  7 00:00:00"
		if written.Day() == 1 {
			at = "Dec 31 23:59:58"
		}
		require.NoError(t, os.WriteFile(name, []byte(failedAt(at)), 0o600))
		require.NoError(t, os.Chtimes(name, written, written))
		inputs = append(inputs, File(name))
	}
	log, err := ReadLog(t.Context(), newSSHD(t), DefaultMapping(), inputs...)
	require.NoError(t, err)
	assert.Equal(t, 2020, log.Events[0].Time().Local().Year())
	assert.Equal(t, 2021, log.Events[1].Time().Local().Year())
}

// Logs of several years by chance, with gaps and with late lines, have the years that they
// were written in.
func TestYearsByChance(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		at := time.Date(2000+random.IntN(30), 1, 1, 0, 0, random.IntN(365*24*60*60), 0, time.UTC)
		var list, want []Event
		for range 1 + random.IntN(200) {
			at = at.Add(time.Duration(random.IntN([]int{2, 3600, 86400, 180 * 86400}[random.IntN(4)])) * time.Second)
			line := at
			if random.IntN(3) == 0 {
				line = at.Add(-time.Duration(random.IntN(60)) * time.Second)
			}
			if line.Month() == time.February && line.Day() == 29 {
				line = line.Add(24 * time.Hour)
			}
			undated, err := Layout("").Parse(line.Format(syslogTime))
			require.NoError(t, err)
			list = append(list, Event{Micros: undated.UnixMicro()})
			want = append(want, Event{Micros: line.UnixMicro()})
		}
		require.NoError(t, date(list, 0, at, time.UTC))
		require.Equal(t, want, list, "seed %d", seed)
	}
}
