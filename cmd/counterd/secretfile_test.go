package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/memcache/memcachedtest"
)

// What is given instead of the name of a file with a secret may be the secret: nobody
// repeats it.
func TestSecretsInsteadOfTheirFiles(t *testing.T) {
	id := memcachedtest.NewAuthority(t).Issue(t)
	for _, flag := range []string{"-tokens", "-tls-key", "-memcached-auth", "-memcached-key", "-key-secret"} {
		args := []string{"-listen", "127.0.0.1:0", "-memcached", "127.0.0.1:1", "-memcached-tls", flag, "user:sesame-open-sesame"}
		switch flag {
		case "-tls-key":
			args = append(args, "-tls-cert", id.CertFile)
		case "-memcached-key":
			args = append(args, "-memcached-cert", id.CertFile)
		}
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, run(t.Context(), args, io.Discard, &stderr), flag)
		assert.Contains(t, stderr.String(), flag+": the file that it names cannot be opened: no such file")
		assert.NotContains(t, stderr.String(), "sesame")
	}
	for _, command := range [][]string{{"-listen", "127.0.0.1:0"}, {"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9"}} {
		args := append(command, "-memcached", "aws:127.0.0.1:1", "-memcached-tls", "-memcached-cert", id.CertFile, "-memcached-key", "user:sesame-open-sesame")
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, run(t.Context(), args, io.Discard, &stderr), "%q", command)
		assert.Contains(t, stderr.String(), "-memcached-key: the file that it names cannot be opened: no such file")
		assert.NotContains(t, stderr.String(), "sesame")
	}
}
