package accesslog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func TestFeatures(t *testing.T) {
	mapping, err := ParseMapping("ip=host,user=user")
	require.NoError(t, err)
	for _, c := range []struct {
		host, user string
		want       events.Features // nil: malformed
	}{
		{"192.0.2.1", "frank", events.Features{"ip": "192.0.2.1", "user": "frank"}},
		{"2001:db8::1", "-", events.Features{"ip": "2001:db8::1"}},
		{"-", "frank", events.Features{"user": "frank"}},
		{"", "-", events.Features{}},
		{"www.example.com", "frank", nil},
		{"192.0.2.0/24", "frank", nil},
		{"192.0.2.1", strings.Repeat("x", events.MaxValue+1), nil},
		{"192.0.2.1", "\xff", nil},
	} {
		got, err := mapping.Features([]string{c.host, c.user})
		if c.want == nil {
			require.ErrorIs(t, err, ErrMalformed)
			assert.NotContains(t, err.Error(), c.host)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}

func FuzzMapping(f *testing.F) {
	f.Add("ip=host,user=a.b=c")
	f.Add(" ip , user =x")
	f.Fuzz(func(t *testing.T, text string) {
		mapping, err := ParseMapping(text)
		if err != nil {
			return
		}
		again, err := ParseMapping(mapping.String())
		require.NoError(t, err, "%q", mapping.String())
		require.Equal(t, mapping, again)
	})
}
