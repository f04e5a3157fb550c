package events_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

func TestHasMethod(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {all: , writes: {methods: [POST, PURGE]}, reads: {methods: GET}}"))
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
	assert.False(t, events.Succeed(rules, rules, 1).Events["reads"].HasMethod("POST"), "a reload keeps them")
}
