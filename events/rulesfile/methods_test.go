package rulesfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slip of the finger is valid, and would let all requests of the method pass.
func TestWarningsOfMethods(t *testing.T) {
	rules, err := Parse([]byte("events: {e: {methods: [PSOT, PUTS, GET, PROPFIND, PURGE, LOCK, COPY, MOVE]}}"))
	require.NoError(t, err)
	assert.EqualError(t, rules.Warnings,
		"line 1, column 23: events.e.methods: the event has no limits: no request is a hit\nline 1, column 24: events.e.methods[0]: this is none of the usual methods: POST may be meant\n"+
			"line 1, column 30: events.e.methods[1]: this is none of the usual methods: PUT may be meant")
}
