package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSourceDefaults(t *testing.T) {
	event := &Event{From: map[string]Source{"user": {FromHeader, "X-User"}, "ip": {}}}
	assert.Equal(t, "header X-User", event.Source("user").String())
	assert.Equal(t, "none", event.Source("ip").String(), "none is not the default")
	event = &Event{}
	assert.Equal(t, "bearer", event.Source("user").String())
	assert.Equal(t, "peer", event.Source("ip").String())
	assert.Equal(t, "none", event.Source("email").String())
}
