package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFaultError(t *testing.T) {
	for want, fault := range map[string]Fault{
		"too large":                     {Reason: "too large"},
		"line 3: open":                  {Line: 3, Reason: "open"},
		"line 3, column 5: open":        {Line: 3, Column: 5, Reason: "open"},
		"line 3, column 5: a.b[0]: odd": {Line: 3, Column: 5, Path: "a.b[0]", Reason: "odd"},
	} {
		assert.EqualError(t, fault, want)
	}
	faults := Faults{{Line: 1, Reason: "a"}, {Line: 2, Reason: "b"}}
	assert.EqualError(t, faults, "line 1: a\nline 2: b")
	assert.ErrorIs(t, faults, ErrInvalid)
}

func TestNearest(t *testing.T) {
	words := []string{"per", "rate", "name", "ipv6_prefix", "overrides", "on_error", "shadow"}
	for s, want := range map[string]string{
		"rat": "rate", "rates": "rate", "raet": "rate", "Rate": "rate", "shadwo": "shadow", "on-error": "on_error",
		"override": "overrides", "ipv6prefix": "ipv6_prefix", "pr": "per", "burst": "", "": "", "x": "", "retention": "",
	} {
		assert.Equal(t, want, Nearest(s, words), "%q", s)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"rate", "rate", 0}, {"rate", "raet", 1}, {"rate", "rat", 1}, {"ab", "ba", 1},
		{"name", "mane", 2}, {"limits", "lmiist", 2}, {"per", "from", 4}, {"a", "abcde", 4},
	} {
		assert.Equal(t, c.want, min(c.want, distance(c.a, c.b)), "%s, %s", c.a, c.b)
		assert.Equal(t, distance(c.a, c.b), distance(c.b, c.a))
	}
}
