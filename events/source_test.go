package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSource(t *testing.T) {
	for _, c := range []struct {
		kind, s string
		want    Source
	}{
		{"ip", "peer", Source{Place: FromPeer}},
		{"ip", "forwarded", Source{Place: FromForwarded}},
		{"ip", "header CF-Connecting-IP", Source{FromHeader, "Cf-Connecting-Ip"}},
		{"ip", "none", Source{}},
		{"user", "bearer", Source{Place: FromBearer}},
		{"user", "header  x-user", Source{FromHeader, "X-User"}},
		{"tenant", "none", Source{}},
	} {
		source, reason := parseSource(c.kind, c.s)
		require.Empty(t, reason, c.s)
		assert.Equal(t, c.want, source, c.s)
		again, reason := parseSource(c.kind, source.String())
		assert.Empty(t, reason)
		assert.Equal(t, source, again)
	}
	for _, c := range [][2]string{
		{"ip", "bearer"}, {"ip", ""}, {"user", "peer"}, {"user", "forwarded"}, {"user", "header"}, {"user", "header "},
		{"user", "header X User"}, {"user", "header X:User"}, {"user", "header X\r\nUser"}, {"user", "header Ü"}, {"user", "Bearer"},
	} {
		_, reason := parseSource(c[0], c[1])
		assert.NotEmpty(t, reason, "%q", c)
	}
}

func TestSourceDefaults(t *testing.T) {
	event := &Event{From: map[string]Source{"user": {FromHeader, "X-User"}, "ip": {}}}
	assert.Equal(t, "header X-User", event.Source("user").String())
	assert.Equal(t, "none", event.Source("ip").String(), "none is not the default")
	event = &Event{}
	assert.Equal(t, "bearer", event.Source("user").String())
	assert.Equal(t, "peer", event.Source("ip").String())
	assert.Equal(t, "none", event.Source("email").String())
}
