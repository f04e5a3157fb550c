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
	require.NoError(t, os.WriteFile(path, []byte("sesame\n"), 0o600))
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

// Over TLS a client shows its configured certificate, and trusts its configured authority.
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

// A token that no header can carry is refused by New, and by the call if it becomes so later.
func TestATokenThatNoHeaderCanCarry(t *testing.T) {
	token := ""
	config := client.Config{URL: "http://127.0.0.1:1", Token: func() (string, error) { return token, nil }}
	for _, token = range []string{"sesame\n", "", "ses ame", "ses\name", "sesame\x01", "sésame"} {
		_, err := client.New(config)
		require.ErrorIs(t, err, client.ErrInvalid, "%q", token)
		assert.ErrorContains(t, err, "trim what was read")
		assert.NotContains(t, err.Error(), "sesame")

		bad := token
		token = "sesame"
		c, err := client.New(config)
		require.NoError(t, err)
		token = bad
		_, err = c.Events(t.Context())
		require.ErrorIs(t, err, client.ErrRefused, "%q", token)
		assert.ErrorContains(t, err, "trim what was read")
		assert.NotContains(t, err.Error(), "sesame")
	}
	c, err := client.New(client.Config{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, err = c.Events(t.Context())
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.ErrorContains(t, err, "127.0.0.1:1")
}

// New refuses a file that is missing, or does not contain exactly one token.
func TestAFileWithoutAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	config := client.Config{URL: "http://127.0.0.1:1", Token: client.TokenFile(path)}
	_, err := client.New(config)
	require.ErrorIs(t, err, client.ErrInvalid)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, text := range []string{"", "\n", "sesame new", "sesame\nnew\n", "sesame\x01\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := client.New(config)
		require.ErrorIs(t, err, client.ErrInvalid, "%q", text)
		assert.NotContains(t, err.Error(), "sesame")
	}
}
