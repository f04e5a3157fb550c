package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHasMethod(t *testing.T) {
	rules, err := ParseRules([]byte("events: {all: , writes: {methods: [POST, PURGE]}, reads: {methods: GET}}"))
	require.NoError(t, err)
	for method, want := range map[string][3]bool{ // of all, writes, reads
		"POST": {true, true, false}, "PURGE": {true, true, false}, "GET": {true, false, true}, "HEAD": {true, false, false},
		"post": {true, true, false}, // a lenient server takes it for POST
		"get":  {true, false, true},
		"":     {true, true, true}, // what is none may be any
		"G ET": {true, true, true}, "POST, GET": {true, true, true}, "\xff": {true, true, true},
	} {
		assert.Equal(t, want, [3]bool{
			rules.Events["all"].HasMethod(method), rules.Events["writes"].HasMethod(method), rules.Events["reads"].HasMethod(method),
		}, "%q", method)
	}
	assert.False(t, Succeed(rules, rules, 1).Events["reads"].HasMethod("POST"), "a reload keeps them")
}

// A slip of the finger is valid, and would let all requests of the method pass.
func TestWarningsOfMethods(t *testing.T) {
	rules, err := ParseRules([]byte("events: {e: {methods: [PSOT, PUTS, GET, PROPFIND, PURGE, LOCK, COPY, MOVE]}}"))
	require.NoError(t, err)
	assert.EqualError(t, rules.Warnings,
		"line 1, column 24: events.e.methods[0]: this is none of the usual methods: POST may be meant\n"+
			"line 1, column 30: events.e.methods[1]: this is none of the usual methods: PUT may be meant")
}
