package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/testkit"
)

// A web page that has its name lead to the loopback gets no answer from a process without
// tokens, on neither address. Tokens, TLS, or that everyone may call, let any host through.
func TestWebPagesDoNotReachALocalProcess(t *testing.T) {
	under := func(url, host string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		require.NoError(t, err)
		r.Host = host
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := c.Do(r)
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	p := startProcess(t, "-admin", "127.0.0.1:0")
	for _, url := range []string{p.url + "/v1/events", p.url + "/healthz", p.admin(t) + "/metrics", p.admin(t) + "/readyz"} {
		assert.Equal(t, 421, under(url, "evil.example:8080"), url)
		assert.Equal(t, 200, under(url, ""), url)
		assert.Equal(t, 200, under(url, "localhost"), url)
	}
	p = startProcess(t, "-tokens", testkit.SecretFile(t, "ops all "+opsToken))
	assert.Equal(t, 401, under(p.url+"/v1/events", "counterd.internal"))
	p = startProcess(t, "-tokens", "none")
	assert.Equal(t, 200, under(p.url+"/v1/events", "counterd.internal"))
	tls := server.Settings{TLSCert: "cert.pem"}
	assert.False(t, tls.LoopbackOnly(), "the certificate names the host")
}
