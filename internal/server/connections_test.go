package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/testkit"
)

// No more connections are taken than the system has files for, and the log says so.
func TestConnectionsAreAsManyAsFiles(t *testing.T) {
	var log testkit.Log
	set := func(most int) Settings {
		return Settings{MaxConnections: most, Settings: settings.Settings{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	}
	assert.Equal(t, 17, Connections(set(17), 0))
	assert.Empty(t, log.String())
	most := Connections(set(maxFiles()), 0)
	assert.Less(t, most, maxFiles())
	assert.Contains(t, log.String(), "fewer connections")
	assert.Less(t, Connections(set(maxFiles()), 2), most)
}
