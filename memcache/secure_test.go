package memcache_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

const secret = "open:sesame"

// securities are what servers demand, by name.
func securities(t *testing.T) map[string]memcachedtest.Security {
	authority := memcachedtest.NewAuthority(t)
	return map[string]memcachedtest.Security{
		"plain":            {},
		"TLS":              {Authority: authority},
		"password":         {User: "counterd", Password: secret},
		"mutual, password": {Authority: authority, WantsClient: true, User: "counterd", Password: secret},
	}
}

func startServer(t *testing.T, demands memcachedtest.Security) *memcachedtest.Server {
	t.Helper()
	return memcachedtest.StartSecure(t, demands)
}

// secured returns the config with what the demands want.
func secured(tb testing.TB, demands memcachedtest.Security, config memcache.Config) memcache.Config {
	if authority := demands.Authority; authority != nil {
		client := &tls.Config{RootCAs: authority.Pool}
		if demands.WantsClient {
			client = authority.Client(authority.Issue(tb))
		}
		config.TLS = always(client)
	}
	if demands.User != "" {
		config.Credentials = always(memcache.Credentials{User: demands.User, Password: demands.Password})
	}
	return config
}

func always[T any](v T) func() (T, error) { return func() (T, error) { return v, nil } }

// onEveryServer runs a test with a real server that demands nothing, or all there is, and the config
// for it, of both protocols.
func onEveryServer(t *testing.T, test func(t *testing.T, server *memcachedtest.Server, config memcache.Config)) {
	all := securities(t)
	for _, name := range []string{"plain", "mutual, password"} {
		demands := all[name]
		t.Run(name, func(t *testing.T) {
			onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
				server := startServer(t, demands)
				test(t, server, secured(t, demands, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol}))
			})
		})
	}
}

// refusedBy returns how a trip and a ping of each protocol fail. No server is taken for
// one that speaks the classic commands only.
func refusedBy(t *testing.T, config memcache.Config) map[string]error {
	t.Helper()
	faults := map[string]error{}
	for _, protocol := range []memcache.Protocol{memcache.Auto, memcache.Meta, memcache.Classic} {
		config.Protocol = protocol
		config.OnProtocol = func(_ string, speaks memcache.Protocol) { t.Errorf("taken for a %s server", speaks) }
		fleet := openConfig(t, config)
		bounded(t, "a trip", func() {
			landed, _, err := tripOf(t.Context(), fleet, 2, 2)
			assert.Error(t, err)
			assert.Zero(t, landed)
			faults[protocol.String()+" trip"] = err
			for _, err := range fleet.Ping(t.Context()) {
				assert.Error(t, err)
				faults[protocol.String()+" ping"] = err
			}
		})
	}
	for name, err := range faults {
		require.NotContains(t, err.Error(), "sesame", name)
		require.Contains(t, err.Error(), config.Servers[0], name)
	}
	return faults
}

// A server with another name than its certificate, and one without TLS, have distinct
// errors, in time.
func TestWhatTLSRefuses(t *testing.T) {
	ours, theirs := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	trusting := func(authority *memcachedtest.Authority, name string, ids ...*memcachedtest.Identity) func() (*tls.Config, error) {
		config := authority.Client(ids...)
		config.ServerName = name
		return always(config)
	}
	elsewhere := ours.Issue(t, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"other.example"}, nil })
	expired := ours.Issue(t, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	})
	for name, test := range map[string]struct {
		demands memcachedtest.Security
		tls     func() (*tls.Config, error)
		timeout time.Duration
		says    string
	}{
		"unknown authority": {memcachedtest.Security{Authority: ours}, trusting(theirs, ""), maxWait, "unknown authority"},
		"other name":        {memcachedtest.Security{Authority: ours, Certificate: elsewhere}, trusting(ours, ""), maxWait, "127.0.0.1"},
		"expired":           {memcachedtest.Security{Authority: ours, Certificate: expired}, trusting(ours, ""), maxWait, "expired"},
		"no certificate":    {memcachedtest.Security{Authority: ours, WantsClient: true}, trusting(ours, ""), maxWait, "certificate"},
		"wrong certificate": {memcachedtest.Security{Authority: ours, WantsClient: true}, trusting(ours, "", theirs.Issue(t)), maxWait, "certificate"},
		"plaintext to TLS":  {memcachedtest.Security{Authority: ours}, nil, maxWait, "wants TLS"},
		"TLS to plaintext":  {memcachedtest.Security{}, trusting(ours, ""), 2 * time.Second, "speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Parallel(t)
			server := startServer(t, test.demands)
			for of, err := range refusedBy(t, memcache.Config{Servers: []string{server.Addr}, TLS: test.tls, Timeout: test.timeout}) {
				assert.Contains(t, err.Error(), test.says, of)
			}
		})
	}

	// With the name that it has it is taken.
	server := startServer(t, memcachedtest.Security{Authority: ours, Certificate: elsewhere})
	fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, TLS: trusting(ours, "other.example")})
	assert.Equal(t, []int64{3}, add(t, fleet, "a", 3, 1))
}

// Certificates and authorities that are renewed count for the connections opened after.
func TestRenewedCertificates(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		before, after := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
		server := startServer(t, memcachedtest.Security{Authority: after, WantsClient: true})
		var now atomic.Pointer[tls.Config]
		now.Store(before.Client(before.Issue(t)))
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, TLS: func() (*tls.Config, error) { return now.Load(), nil }})
		_, _, err := tripOf(t.Context(), fleet, 1, 0)
		require.ErrorContains(t, err, "unknown authority")
		now.Store(after.Client(after.Issue(t)))
		require.Equal(t, []int64{3}, add(t, fleet, "a", 3, 1))
	})
}

// A server on a socket has no TLS, whatever the others have.
func TestSocketsHaveNoTLS(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	fleet := openConfig(t, memcache.Config{Servers: []string{memcachedtest.StartUnix(t).Addr}, TLS: always(authority.Client())})
	assert.Equal(t, []int64{3}, add(t, fleet, "a", 3, 1))
}

func TestCredentialsThatAreRefused(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	for name, demands := range map[string]memcachedtest.Security{
		"plain": {User: "counterd", Password: secret},
		"TLS":   {User: "counterd", Password: secret, Authority: authority},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, demands)
			config := secured(t, demands, memcache.Config{Servers: []string{server.Addr}})
			for _, wrong := range []memcache.Credentials{{User: "counterd", Password: secret + "s"}, {User: "other", Password: secret}} {
				config.Credentials = always(wrong)
				for of, err := range refusedBy(t, config) {
					assert.Contains(t, err.Error(), "refused the user and the password", of)
				}
			}
			config.Credentials = nil
			for of, err := range refusedBy(t, config) {
				if strings.HasPrefix(of, "classic") || of == "auto ping" {
					assert.Contains(t, err.Error(), "unauthenticated", of)
				} else {
					assert.Contains(t, err.Error(), "demands a user and a password", of)
				}
			}
		})
	}
}

// A secret that is changed counts for the connections opened after.
func TestRenewedCredentials(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := startServer(t, memcachedtest.Security{User: "counterd", Password: secret})
		file := filepath.Join(t.TempDir(), "user")
		require.NoError(t, os.WriteFile(file, []byte("counterd:"+secret+"\n"), 0o600))
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, Credentials: func() (memcache.Credentials, error) {
			return memcache.ReadCredentials(file)
		}})
		add(t, fleet, "a", 1, 1)
		server.Stop()
		server.SetUsers("other:x", "counterd:new")
		server.Restart()
		// Nor is it back while it refuses: that it was away may have been noticed.
		testkit.Await(t, maxWait, "a refusal", func() bool {
			_, _, err := tripOf(t.Context(), fleet, 1, 0)
			return err != nil && strings.Contains(err.Error(), "refused the user")
		})
		require.NoError(t, os.WriteFile(file, []byte("counterd:new\n"), 0o600))
		testkit.Await(t, maxWait, "a connection", func() bool {
			_, err := storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
			return err == nil
		})
		require.Equal(t, []int64{1}, add(t, fleet, "a", 1, 1))
		require.NoError(t, os.Remove(file))
		require.Equal(t, []int64{2}, add(t, fleet, "a", 1, 1), "connections stay")
		require.ErrorIs(t, fleet.Ping(t.Context())[server.Addr], os.ErrNotExist)
	})
}

// A server that demands no password does not keep one.
func TestCredentialsDoNotStay(t *testing.T) {
	server := memcachedtest.Start(t)
	fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Credentials: always(memcache.Credentials{User: "counterd", Password: secret})})
	assert.Equal(t, []int64{3}, add(t, fleet, "a", 3, 1))
	assert.Empty(t, server.Ask("get counterd:user"))
	assert.Equal(t, "1", server.Stats("")["cmd_set"], "it was told them")
}

// Whatever a server says to the credentials, it is not repeated, and does not hang.
func TestAnswersToCredentials(t *testing.T) {
	for _, answer := range []string{"", "ERROR\r\n", "CLIENT_ERROR you said counterd " + secret + "\r\n", "counterd " + secret + "\r\n", "STORED\r\nSTORED\r\n", "NOT_STORED\r\n", strings.Repeat("x", 5000)} {
		addr := listenTCP(t, func(conn net.Conn) { answerClassic(conn, func(string) (string, bool) { return answer, answer != "" }) })
		refusedBy(t, memcache.Config{Servers: []string{addr}, Timeout: 2 * time.Second, Credentials: always(memcache.Credentials{User: "counterd", Password: secret})})
	}
}

func TestCredentialsAreNotShown(t *testing.T) {
	c := memcache.Credentials{User: "counterd", Password: secret}
	nested := struct{ C memcache.Credentials }{c}
	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&shown, verb+verb+verb+"\n", c, &c, nested)
	}
	slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "c", c, "p", &c, "n", nested)
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "c", c, "p", &c, "n", nested)
	require.NoError(t, json.NewEncoder(&shown).Encode(nested))
	require.NotContains(t, shown.String(), "sesame")
	require.NotContains(t, shown.String(), fmt.Sprintf("%x", "sesame"))
	require.Contains(t, shown.String(), "counterd")
}

func TestReadCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "user")
	for text, want := range map[string]memcache.Credentials{
		"a:b":               {User: "a", Password: "b"},
		"a:b:c\r\nd:e\n":    {User: "a", Password: "b:c"},
		"a:b\n# not read\n": {User: "a", Password: "b"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := memcache.ReadCredentials(file)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "\na:sesame", "sesame", "a:", ":sesame", "a b:sesame", "a:b sesame"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := memcache.ReadCredentials(file)
		require.ErrorContains(t, err, file, text)
		require.NotContains(t, err.Error(), "sesame")
	}
	_, err := memcache.ReadCredentials(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What no connection can be made with is found at the start, all of it.
func TestSecurityIsCheckedAtTheStart(t *testing.T) {
	_, err := memcache.NewFleet(t.Context(), memcache.Config{
		Servers:     []string{"127.0.0.1:1"},
		TLS:         func() (*tls.Config, error) { return nil, errors.New("no such certificate") },
		Credentials: always(memcache.Credentials{User: "a b", Password: secret}),
	})
	require.ErrorContains(t, err, "no such certificate")
	require.ErrorContains(t, err, "the user is empty")
	require.NotContains(t, err.Error(), "sesame")
}

// A server that says nothing in the handshake, or to the credentials, costs a trip its
// time and no more, and Close none.
func TestSilenceBeforeTheFirstCommand(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	addr := listenTCP(t, func(conn net.Conn) { answerClassic(conn, func(string) (string, bool) { return "", true }) })
	for _, config := range []memcache.Config{
		{TLS: always(authority.Client())},
		{Credentials: always(memcache.Credentials{User: "counterd", Password: secret})},
	} {
		config.Servers, config.Timeout = []string{addr}, 50*time.Millisecond
		refusedBy(t, config)

		config.Timeout, config.Protocol = time.Hour, memcache.Meta
		fleet, err := memcache.NewFleet(t.Context(), config)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _, err = tripOf(ctx, fleet, 1, 0)
		cancel()
		require.Error(t, err)
		bounded(t, "Close", func() { require.NoError(t, fleet.Close()) })
	}
}
