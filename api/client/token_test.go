package client_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// The token of a file is sent with each request, the new one once it has been replaced.
func TestTheTokenOfAFileIsSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	want := "Bearer sesame"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		if r.Header.Get("Authorization") != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL, Token: client.TokenFile(path)})
	require.NoError(t, err)
	defer c.Close()
	status := func() int {
		_, err := c.Events(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		require.NotErrorIs(t, err, client.ErrInvalid)
		assert.NotContains(t, err.Error(), "sesame")
		var answered *client.Error
		if assert.ErrorAs(t, err, &answered) {
			return answered.Status
		}
		return 0
	}
	require.NoError(t, os.WriteFile(path, []byte("sesame\n"), 0o600))
	assert.Equal(t, http.StatusForbidden, status())
	require.NoError(t, os.WriteFile(path, []byte("new\n"), 0o600))
	assert.Equal(t, http.StatusUnauthorized, status())
	want = "Bearer new"
	assert.Equal(t, http.StatusForbidden, status())

	for _, text := range []string{"", "sesame new", "\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := c.Events(t.Context())
		require.ErrorIs(t, err, client.ErrRefused, "%q", text)
		assert.NotContains(t, err.Error(), "sesame")
	}
	require.NoError(t, os.Remove(path))
	_, err = c.Events(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Over TLS a client shows and trusts what it is told.
func TestTLS(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	server.TLS = authority.Client(authority.Issue(t))
	server.StartTLS()
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL, TLS: authority.Client()})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Reset(t.Context(), "e", nil))
	stranger, err := client.New(client.Config{URL: server.URL})
	require.NoError(t, err)
	defer stranger.Close()
	require.ErrorIs(t, stranger.Reset(t.Context(), "e", nil), client.ErrUnavailable)
}
