package rulesfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func TestParseSource(t *testing.T) {
	for _, c := range []struct {
		kind, s string
		want    events.Source
	}{
		{"ip", "peer", events.Source{Place: events.FromPeer}},
		{"ip", "forwarded", events.Source{Place: events.FromForwarded}},
		{"ip", "header CF-Connecting-IP", events.Source{Place: events.FromHeader, Header: "Cf-Connecting-Ip"}},
		{"ip", "none", events.Source{}},
		{"user", "bearer", events.Source{Place: events.FromBearer}},
		{"user", "header  x-user", events.Source{Place: events.FromHeader, Header: "X-User"}},
		{"tenant", "none", events.Source{}},
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
