package accesslog

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommonFields(t *testing.T) {
	all := []string{"host", "ident", "user", "request", "method", "path", "status", "bytes", "referer", "agent"}
	line := `192.0.2.1 id frank b [17/May/2015:10:05:03 +0000] "GET /a/b?c=d HTTP/1.1" 046 - "http://example.com/" "curl/8"`
	record, err := newCommon(all...).Parse(line)
	require.NoError(t, err)
	assert.EqualValues(t, 1431857103, record.Time.Unix())
	for name, want := range map[string]string{
		"host": "192.0.2.1", "ident": "id", "user": "frank b", "request": "GET /a/b?c=d HTTP/1.1", "method": "GET", "path": "/a/b",
		"status": "046", "bytes": "-", "referer": "http://example.com/", "agent": "curl/8", "nothing": "",
	} {
		assert.Equal(t, want, record.Field(name), name)
	}

	_, err = NewCommon("host", "remote_addr")
	require.ErrorContains(t, err, `no field "remote_addr", but host, ident, user,`)
}

// A request that is not three words has no method and no path.
func TestRequestsThatAreNone(t *testing.T) {
	for request, want := range map[string][2]string{
		"GET / HTTP/1.1": {"GET", "/"}, "POST /?a HTTP/2.0": {"POST", "/"}, "-": {}, `\x16\x03`: {}, "GET /": {}, "GET / a HTTP/1.1": {}, "": {},
	} {
		record, err := newCommon("method", "path").Parse(front + `"` + request + `" 200 1`)
		require.NoError(t, err)
		assert.Equal(t, want, [2]string{record.Field("method"), record.Field("path")}, request)
	}
}

func TestVhostCombined(t *testing.T) {
	fields := []string{"vhost", "port", "host", "user", "path", "agent"}
	format, err := NewVhostCombined(fields...)
	require.NoError(t, err)
	auto, err := NewAuto(JSONConfig{Fields: fields})
	require.NoError(t, err)
	const behind = ` [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 1 "-" "curl/8.5.0"`
	for line, want := range map[string][]string{
		"www.example.com:443 192.0.2.1 - -" + behind:      {"www.example.com", "443", "192.0.2.1", "-", "/a", "curl/8.5.0"},
		"127.0.1.1:80 2001:db8::1 - frank b" + behind:     {"127.0.1.1", "80", "2001:db8::1", "frank b", "/a", "curl/8.5.0"},
		"[2001:db8::1]:80 www.example.com - -" + behind:   {"[2001:db8::1]", "80", "www.example.com", "-", "/a", "curl/8.5.0"},
		"www.example.com:443 192.0.2.1 id frank" + behind: {"www.example.com", "443", "192.0.2.1", "frank", "/a", "curl/8.5.0"},
	} {
		for _, format := range []Format{format, auto} {
			record, err := format.Parse(line)
			require.NoError(t, err, line)
			var got []string
			for _, field := range fields {
				got = append(got, record.Field(field))
			}
			assert.Equal(t, want, got)
		}
	}
	for _, line := range []string{"192.0.2.1 - -" + behind, "www.example.com 192.0.2.1 - -" + behind, ":80 192.0.2.1 - -" + behind,
		"www.example.com:99999 192.0.2.1 - -" + behind, "www.example.com:80", "www.example.com:80 192.0.2.1 -" + behind} {
		_, err := format.Parse(line)
		assert.ErrorIs(t, err, ErrMalformed, line)
	}
	// An address is no virtual host, though its end may look like a port.
	plain, err := NewAuto(JSONConfig{Fields: []string{"host"}})
	require.NoError(t, err)
	record, err := plain.Parse("2001:db8::1:80 - -" + behind)
	require.NoError(t, err)
	assert.Equal(t, "2001:db8::1:80", record.Field("host"))
}
