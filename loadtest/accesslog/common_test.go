package accesslog

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommonFields(t *testing.T) {
	var all []string
	for _, f := range commonFields() {
		all = append(all, f.name)
	}
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
	assert.Len(t, all, 10)

	_, err = NewCommon("host", "remote_addr")
	require.ErrorContains(t, err, `no field "remote_addr", but host, ident, user,`)
}

// A request that is not three words has no method and no path.
func TestRequestsThatAreNone(t *testing.T) {
	for request, want := range map[string][2]string{
		"GET / HTTP/1.1": {"GET", "/"}, "POST /?a HTTP/2.0": {"POST", "/"}, "-": {}, `\x16\x03`: {}, "GET /": {}, "GET / a HTTP/1.1": {}, "": {},
	} {
		e := Entry{Request: request}
		assert.Equal(t, want, [2]string{e.Method(), e.Path()}, request)
	}
}
