package server

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/testkit"
)

// On the embedded store concurrency limits and reservations need no secret beside tokens: a secret that no other process
// has to know seals them. On servers, which other processes share, they need one.
func TestReservationsOnTheEmbeddedStoreNeedNoSecret(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: user, concurrent: 1, lease: 1m}]}}"))
	require.NoError(t, err)
	s := DefaultSettings()
	s.Log = slog.New(slog.DiscardHandler)
	s.Tokens = filepath.Join(t.TempDir(), "tokens")
	testkit.ReplaceFile(t, s.Tokens, "a decide aaaaaaaaaaaaaaaaaaaa\n")
	server, err := New(rules, follow.RulesFile{}, s)
	require.NoError(t, err)
	service := server.parts.Service
	event, err := service.Event("e")
	require.NoError(t, err)
	d, err := service.Hit(t.Context(), event, events.Features{"user": "ada"}, 1)
	require.NoError(t, err)
	require.NotEmpty(t, d.Reservation)
	altered := "A" + d.Reservation[1:]
	require.Error(t, service.Settle(t.Context(), altered, 1))
	_, err = service.Renew(t.Context(), d.Reservation, time.Minute)
	require.NoError(t, err)
	require.NoError(t, server.Close())

	s.Memcached = []string{"127.0.0.1:1"}
	_, err = New(rules, follow.RulesFile{}, s)
	require.ErrorContains(t, err, "concurrency limits need")
}
