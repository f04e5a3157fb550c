package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/service"
)

// A process is ready while one server answers and its end is not near.
func TestReady(t *testing.T) {
	states := []service.ServerState{{Name: "a"}, {Name: "b", Reachable: true}}
	draining := false
	health := service.Health{Servers: func() []service.ServerState { return states }, Drain: func() bool { return draining }}
	got, err := health.Ready()
	require.NoError(t, err)
	assert.Equal(t, states, got)
	states = states[:1]
	got, err = health.Ready()
	assert.ErrorIs(t, err, service.ErrUnready)
	assert.Equal(t, states, got, "the caller names them")
	draining = true
	_, err = health.Ready()
	assert.ErrorIs(t, err, service.ErrDraining)
	_, err = service.Health{}.Ready()
	assert.NoError(t, err)
}

func TestServerStatesInWords(t *testing.T) {
	since := time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)
	for want, state := range map[string]service.ServerState{
		"reachable":               {Reachable: true},
		"unreachable":             {},
		"reachable, repairing 0%": {Reachable: true, Repairing: true},
		"reachable, empty since 2026-03-14T23:30:33Z":                                          {Reachable: true, EmptyFrom: since},
		"reachable, empty since 2026-03-14T23:30:33Z, repairing 41%":                           {Reachable: true, EmptyFrom: since, Repairing: true, Repaired: 41},
		"reachable, empty since 2026-03-14T23:30:33Z, cannot be repaired":                      {Reachable: true, EmptyFrom: since, Repaired: 100, Unrepairable: true},
		"unreachable, away until 2026-03-14T23:30:33Z, repairing 7%":                           {EmptyFrom: since, Away: true, Repairing: true, Repaired: 7},
		"reachable, full, incomplete before 2026-03-14T23:30:33Z":                              {Reachable: true, EmptyFrom: since, Evicting: true, Repairing: true, Repaired: 7},
		"reachable, full, incomplete before 2026-03-14T23:30:33Z, cannot be repaired":          {Reachable: true, EmptyFrom: since, Evicting: true, Unrepairable: true},
		"reachable, another key secret in use by web-7f9c":                                     {Reachable: true, OtherSecret: true, OtherHost: "web-7f9c"},
		"reachable, leads to several servers: use dns:NAME:PORT":                               {Reachable: true, Several: true},
		"unreachable, full, incomplete before 2026-03-14T23:30:33Z, another key secret in use": {EmptyFrom: since, Evicting: true, OtherSecret: true},
	} {
		assert.Equal(t, want, state.String())
	}
}
