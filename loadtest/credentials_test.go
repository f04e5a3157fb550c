package main

import (
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/child"
)

// startSecure runs a counterd that serves TLS with the certificate, and wants one of the
// authority of its clients. It returns its URL.
func startSecure(t *testing.T, authority *memcachedtest.Authority, serves *memcachedtest.Identity) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: authority.Client(authority.Issue(t)), DisableKeepAlives: true}
	transport.TLSClientConfig.ServerName = serves.Leaf.DNSNames[0]
	server, err := child.Start(t.Context(), child.Program{
		Path: builtCounterd,
		Args: func(addr string) []string {
			return []string{"-listen", addr, "-tls-cert", serves.CertFile, "-tls-key", serves.KeyFile, "-tls-client-ca", authority.File}
		},
		Ready: func(addr string) error {
			answer, err := (&http.Client{Transport: transport}).Get("https://" + addr + "/healthz")
			if err != nil {
				return err
			}
			return answer.Body.Close()
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	return "https://" + server.Addr
}

// calling are the commands that call a target, made short.
func calling() map[string][]string {
	return map[string][]string{
		"run":    {"run", "-rate", "100", "-duration", "200ms", "-max-failures", "0"},
		"verify": {"verify", "-event", "url_shorten", "-duration", "1s", "-clients", "2", "-features", "4", "-rate", "100"},
		"replay": {"replay", "-increment", "-reset", "-windows", "90s"},
	}
}

// Only a caller that trusts the target's authority and shows a certificate of it can call.
// The error of every other caller names what is missing.
func TestCallingOverTLS(t *testing.T) {
	authority, stranger := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	mine, strange := authority.Issue(t), stranger.Issue(t)
	url := startSecure(t, authority, authority.Issue(t))
	named := startSecure(t, authority, authority.Issue(t, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{"counterd.internal"}, nil
	}))
	open := serve(t, &fakeserver.Server{})
	own := []string{"-ca", authority.File, "-cert", mine.CertFile, "-key", mine.KeyFile}
	for name, command := range calling() {
		t.Run(name, func(t *testing.T) {
			with := func(url string, flags ...string) outcome {
				return runWith(t, strings.NewReader(log), append(append(command[:len(command):len(command)], "-url", url), flags...)...)
			}
			got := with(url, own...)
			assert.Equal(t, exitOK, got.status, "%s%s", got.out, got.err)
			got = with(named, append(own, "-server-name", "counterd.internal")...)
			assert.Equal(t, exitOK, got.status, "%s%s", got.out, got.err)
			for want, got := range map[string]outcome{
				"-ca names the authorities":       with(url),
				"signed by unknown authority":     with(url, "-ca", stranger.File, "-cert", mine.CertFile, "-key", mine.KeyFile),
				"-cert and -key show":             with(url, "-ca", authority.File),
				"-server-name says whom":          with(named, own...),
				"its URL begins with https":       with(strings.Replace(url, "https:", "http:", 1)),
				"its URL begins with http\n":      with(strings.Replace(open, "http:", "https:", 1), own...),
				"-url says where the server is\n": with("https://127.0.0.1:1", own...),
			} {
				assert.Contains(t, got.err, want)
				assert.Equal(t, exitFailed, got.status, want)
				assert.Empty(t, got.out, want)
			}
			// What the target said may be lost where it has hung up.
			got = with(url, "-ca", authority.File, "-cert", strange.CertFile, "-key", strange.KeyFile)
			assert.Contains(t, got.err, "-cert and -key show one of an authority that")
			assert.Equal(t, exitFailed, got.status)
		})
	}
}

// What is wrong with the flags is said in a line, before anything is called.
func TestCredentialFlags(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	mine, other := authority.Issue(t), authority.Issue(t)
	empty, blank := filepath.Join(t.TempDir(), "empty.pem"), filepath.Join(t.TempDir(), "blank")
	require.NoError(t, os.WriteFile(empty, []byte("nothing\n"), 0o600))
	require.NoError(t, os.WriteFile(blank, nil, 0o600))
	const secure = "https://127.0.0.1:1"
	for want, flags := range map[string][]string{
		"-ca: open no-such-file":        {"-url", secure, "-ca", "no-such-file"},
		"holds no certificate in PEM":   {"-url", secure, "-ca", empty},
		"-cert: its -key is not named":  {"-url", secure, "-cert", mine.CertFile},
		"-cert and -key: open no-such":  {"-url", secure, "-cert", "no-such", "-key", mine.KeyFile},
		"private key does not match":    {"-url", secure, "-cert", mine.CertFile, "-key", other.KeyFile},
		"-token-file: open no-such":     {"-url", secure, "-token-file", "no-such"},
		"write one token into the file": {"-url", "http://127.0.0.1:1", "-token-file", blank},
		"-ca is for https":              {"-url", "http://127.0.0.1:1", "-ca", authority.File},
		"flag provided but not defined": {"-url", secure, "-insecure"},
	} {
		for name, command := range calling() {
			got := runWith(t, strings.NewReader(log), append(command, flags...)...)
			assert.Contains(t, got.err, want, name)
			assert.Equal(t, exitUsage, got.status, "%s %s", name, want)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line, not %q", got.err)
		}
	}
	for want, args := range map[string][]string{
		"-ca excludes -embedded": {"run", "-embedded", "memory", "-ca", authority.File},
		"-key is for -increment": {"replay", "-suggest", "-key", mine.KeyFile},
	} {
		got := runWith(t, strings.NewReader(log), args...)
		assert.Contains(t, got.err, want)
		assert.Equal(t, exitUsage, got.status, want)
	}
}
