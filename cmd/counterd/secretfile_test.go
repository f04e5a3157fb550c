package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// A file that cannot be opened is named. What is given instead of the name of a file with a
// secret may be the secret: no error repeats it.
func TestSecretsInsteadOfTheirFiles(t *testing.T) {
	id := memcachedtest.NewAuthority(t).Issue(t)
	said := func(args ...string) string {
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, run(t.Context(), args, io.Discard, &stderr), "%q", args)
		return stderr.String()
	}
	dir := t.TempDir()
	const key = "-----BEGIN PRIVATE KEY-----\nsesame"
	for _, flag := range []string{"-tokens", "-tls-key", "-memcached-auth", "-memcached-key", "-key-secret"} {
		args := []string{"-listen", "127.0.0.1:0", "-memcached", "127.0.0.1:1", "-memcached-tls"}
		secret := "user:sesame-open-sesame"
		switch flag {
		case "-tls-key":
			args, secret = append(args, "-tls-cert", id.CertFile), key
		case "-memcached-key":
			args, secret = append(args, "-memcached-cert", id.CertFile), key
		}
		text := said(append(args, flag, secret)...)
		assert.Contains(t, text, flag+" takes the name of a file, and its value, which is not shown since it may be the secret itself, cannot be opened: no such file")
		assert.NotContains(t, text, "sesame")
		for _, file := range []string{filepath.Join(dir, "tokens-of-this-machine"), "missing-tokens-of-this-machine.txt", "missing"} {
			assert.Contains(t, said(append(args, flag, file)...), flag+": "+file+" cannot be opened: no such file")
		}
	}
	assert.Contains(t, said("-listen", "127.0.0.1:0", "-tls-cert", id.CertFile, "-tls-key", "a-key-without-any-ending"), "-tls-key: a-key-without-any-ending cannot be opened")
	for _, command := range [][]string{{"-listen", "127.0.0.1:0"}, {"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9"}} {
		text := said(append(command, "-memcached", "aws:127.0.0.1:1", "-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", key)...)
		assert.Contains(t, text, "-memcached-key takes the name of a file, and its value, which is not shown since it may be the secret itself, cannot be opened: no such file")
		assert.NotContains(t, text, "sesame")
	}
}

// Every flag that names a file names it in the error where the file is missing, or holds
// something else.
func TestFilesAreNamedInErrors(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	missing, rubbish := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "rubbish")
	require.NoError(t, os.WriteFile(rubbish, []byte("rubbish of some length\n"), 0o600))
	served := []string{"-tls-cert", id.CertFile, "-tls-key", id.KeyFile}
	server := []string{"-memcached", "aws:127.0.0.1:1", "-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", id.KeyFile}
	for flag, args := range map[string][]string{
		"-tls-cert": served, "-tls-key": served, "-tls-client-ca": served, "-tokens": nil, "-rules": nil, "-memcached-file": nil,
		"-memcached-ca": server, "-memcached-cert": server, "-memcached-key": server,
	} {
		for _, file := range []string{missing, rubbish} {
			var stderr bytes.Buffer
			all := append(append([]string{"-listen", "127.0.0.1:0"}, args...), flag, file)
			assert.Equal(t, exitFailed, run(t.Context(), all, io.Discard, &stderr), "%s", flag)
			assert.Contains(t, stderr.String(), file, flag)
		}
	}
}
