package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Metrics show how often files were faulty, and when the certificate expires.
func TestAccessControlReportsItsFiles(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	tokens := testkit.SecretFile(t, "ops all ops-token-of-the-test")
	log := &testkit.Log{}
	s := DefaultSettings()
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	s.Tokens, s.TLSCert, s.TLSKey = tokens, id.CertFile, id.KeyFile
	d, err := OpenAccess(s)
	require.NoError(t, err)
	defer d.Close()
	expires, lifetime := d.expiry()
	assert.Equal(t, id.Leaf.NotAfter, expires)
	assert.Equal(t, id.Leaf.NotAfter.Sub(id.Leaf.NotBefore), lifetime)
	assert.Zero(t, d.tokenFailures()+d.tlsFailures())
	testkit.ReplaceFile(t, tokens, "ops")
	testkit.ReplaceFile(t, id.KeyFile, "no key")
	testkit.Await(t, soon, "a failure of each file", func() bool { return d.tokenFailures() == 1 && d.tlsFailures() == 1 })
	assert.Equal(t, 1, d.tokens.inForce.Load().Len())

	s.Tokens, s.TLSCert, s.TLSKey = OpenToAll, "", ""
	opened, err := OpenAccess(s)
	require.NoError(t, err)
	defer opened.Close()
	expires, lifetime = opened.expiry()
	assert.Zero(t, expires.Unix())
	assert.Zero(t, lifetime)
	assert.Zero(t, opened.tokenFailures()+opened.tlsFailures())
}
