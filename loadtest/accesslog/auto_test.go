package accesslog

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAuto(t *testing.T) {
	format, err := NewAuto(JSONConfig{Fields: []string{"host"}})
	require.NoError(t, err)
	for _, line := range []string{
		front + `"GET / HTTP/1.1" 200 1`,
		`{"host": "192.0.2.1", "time": 1431857103}`,
		` {"host": "192.0.2.1", "time": 1431857103}`,
		"www.example.com:443 " + front + `"GET / HTTP/1.1" 200 1 "-" "-"`,
	} {
		record, err := format.Parse(line)
		require.NoError(t, err, line)
		assert.EqualValues(t, 1431857103, record.Time.Unix())
		assert.Equal(t, "192.0.2.1", record.Field("host"))
	}
	assert.Equal(t, "the common or combined log format, or the vhost_combined log format, or JSON lines with the time in time or timestamp or @timestamp or ts, as auto", format.String())

	// A line of a syslog has an error of its own.
	for _, line := range []string{
		"Dec  1 06:55:48 bastion sshd[7]: Failed password for root from 192.0.2.1 port 4711 ssh2",
		"2026-12-10T06:55:48.123456+01:00 bastion CRON[8]: pam_unix(cron:session): session closed",
	} {
		_, err = format.Parse(line)
		require.ErrorIs(t, err, ErrMalformed)
		assert.ErrorContains(t, err, "as in a syslog: -format sshd reads failed logins", line)
	}
	for _, line := range []string{"", "Dec 41 06:55:48 bastion", "bastion 2026-12-10T06:55:48Z", "192.0.2.1 - - x"} {
		_, err = format.Parse(line)
		require.ErrorIs(t, err, ErrMalformed)
		assert.NotContains(t, err.Error(), "syslog", line)
	}

	// The combined format knows no remote_addr: what is meant is JSON.
	format, err = NewAuto(JSONConfig{Time: "ts", Fields: []string{"remote_addr"}})
	require.NoError(t, err)
	_, err = format.Parse(front + `"GET / HTTP/1.1" 200 1`)
	require.ErrorIs(t, err, ErrMalformed)
	assert.ErrorContains(t, err, `the combined format has no field "remote_addr", but host`)
	assert.Equal(t, "JSON lines with the time in ts, as auto", format.String())

	_, err = NewAuto(JSONConfig{Fields: []string{"."}})
	require.Error(t, err)
}
