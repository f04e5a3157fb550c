package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func TestCheck(t *testing.T) {
	many := make([]string, Max+1)
	for i := range many {
		many[i] = fmt.Sprintf("http://10.0.0.%d:8080", i)
	}
	require.NoError(t, Check(many[:Max]))
	require.NoError(t, Check([]string{"https://counterd.example"}))
	require.NoError(t, Check([]string{"dns:counterd-admin:8080"}))
	for fault, urls := range map[string][]string{
		"at most 64":   many,
		"no URL":       {"10.0.0.1:8080"},
		`"" is no URL`: {""},
		"twice":        {many[0], many[1], many[0]},
		"beside it":    {many[0], "dns:counterd:8080"},
		"name:port":    {"dns:counterd"},
		"not a name":   {"dns:10.0.0.1:8080"},
	} {
		assert.ErrorContains(t, Check(urls), fault)
	}
}

// The sum of the lists of several processes holds what each feature had in all, within its error, whatever part of
// them each process lists; and what is not listed had at most the rest.
func TestMerge(t *testing.T) {
	for seed := range testkit.Seeds(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		hits, lists := map[string]int64{}, []wire.Top{}
		for range 1 + rng.IntN(4) {
			one := top.New(top.Config{Size: 16 * (1 + rng.IntN(4)), Clock: testkit.NewClock(time.Time{}).Now})
			zipf := rand.NewZipf(rng, 1.1, 1, 299)
			for range rng.IntN(3000) {
				counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", fmt.Sprint(zipf.Uint64())})
				hits[counter.Feature.String()]++
				one.Add(top.Denied, top.Key{Event: "login", Feature: counter.Feature}, "minute")
			}
			list := wireOf(one.List(top.Query{Outcome: top.Denied, N: 1 + rng.IntN(100), Window: time.Hour}))
			require.NoError(t, check(list))
			lists = append(lists, list)
		}
		merged := merge(lists, 1+rng.IntN(50))
		listed := map[string]bool{}
		for i, one := range merged.Features {
			listed[one.Feature] = true
			require.LessOrEqual(t, hits[one.Feature], one.Count, seed)
			require.GreaterOrEqual(t, hits[one.Feature], one.Count-one.Error, seed)
			require.LessOrEqual(t, one.Limits[0].Count, hits[one.Feature], seed)
			require.True(t, i == 0 || one.Count <= merged.Features[i-1].Count)
		}
		for feature, n := range hits {
			require.True(t, listed[feature] || n <= merged.Rest, "%d: %s had %d hits", seed, feature, n)
		}
	}
}

// A process without peers has an id, too: other processes may ask it.
func TestProcessesHaveIDs(t *testing.T) {
	one, other := New(Config{}), New(Config{})
	assert.NotEmpty(t, one.Alone(top.List{}).Process)
	assert.NotEqual(t, one.Alone(top.List{}).Process, other.Alone(top.List{}).Process)
	assert.Equal(t, top.Query{N: 3}, one.Asked(top.Query{N: 3}))
	var none *Fleet
	for _, f := range []*Fleet{one, none} {
		assert.Equal(t, wireOf(top.List{}), f.Top(t.Context(), "", top.List{}, top.Query{N: 3}))
		assert.Equal(t, 1, f.Processes())
	}
}

// A program that embeds the package may have replaced the default transport by one of another type.
func TestAReplacedDefaultTransport(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	http.DefaultTransport = struct{ http.RoundTripper }{usual}
	f := New(Config{})
	defer f.Close()
	assert.Nil(t, f.transport.Proxy)
	assert.EqualValues(t, maxHeader, f.transport.MaxResponseHeaderBytes)
}

// Peers are found by a name, and may have certificates of a private authority, or that of the process itself.
func TestPeersOverTLS(t *testing.T) {
	leaktest.Check(t)
	authority := memcachedtest.NewAuthority(t)
	one, other := authority.Issue(t), authority.Issue(t)
	elsewhere := authority.Issue(t, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"*.counterd.example"}, nil })
	own := func(id *memcachedtest.Identity) func() *tls.Certificate {
		if id == nil {
			return nil
		}
		return func() *tls.Certificate { return &id.Certificate }
	}
	for name, test := range map[string]struct {
		shows, own *memcachedtest.Identity // nil: plain HTTP
		name       bool                    // the peer is found by a name
		private    bool                    // the authority is known
		asks       bool                    // the peer wants a certificate of its callers
		answers    bool
	}{
		"a name":                                {name: true, answers: true},
		"a name, with the process's own":        {shows: one, own: one, name: true, answers: true},
		"the same, which is for another name":   {shows: elsewhere, own: elsewhere, name: true, answers: true},
		"a name, with another one":              {shows: other, own: one, name: true},
		"the same, of a private authority":      {shows: other, own: one, name: true, private: true, answers: true},
		"a certificate of another name":         {shows: elsewhere, own: one, name: true, private: true},
		"a URL of an unknown authority":         {shows: other},
		"a URL of a private authority":          {shows: other, private: true, answers: true},
		"a peer that wants a certificate":       {shows: other, own: one, private: true, asks: true, answers: true},
		"a peer that wants one that is missing": {shows: other, private: true, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			peer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", wire.TypeJSON)
				_, _ = io.WriteString(w, `{"features":[],"rest":1}`)
			}))
			peer.Config.ErrorLog = log.New(io.Discard, "", 0)
			if test.shows == nil {
				peer.Start()
			} else {
				peer.TLS = &tls.Config{Certificates: []tls.Certificate{test.shows.Certificate}}
				if test.asks {
					peer.TLS.ClientAuth, peer.TLS.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool
				}
				peer.StartTLS()
			}
			defer peer.Close()
			url := peer.URL
			if test.name {
				url = "dns:localhost:" + url[strings.LastIndexByte(url, ':')+1:]
			}
			require.NoError(t, Check([]string{url}))
			config := Config{URLs: []string{url}, Own: own(test.own), Resolver: &net.Resolver{PreferGo: true}}
			if test.private {
				config.Authorities = authority.Pool
			}
			f := New(config)
			defer f.Close()
			got := f.Top(t.Context(), "", ownList(), query)
			if test.answers {
				assert.Empty(t, got.Unanswered)
				assert.Equal(t, 2, got.Processes)
				assert.Equal(t, 2, f.Processes())
			} else {
				assert.Equal(t, []string{peer.URL}, got.Unanswered)
			}
		})
	}
}

// A name that cannot be looked up has not answered.
func TestPeersOfAnUnknownName(t *testing.T) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }}
	f := New(Config{URLs: []string{"dns:counterd.test:8080"}, Resolver: resolver})
	defer f.Close()
	got := f.Top(t.Context(), "", ownList(), query)
	assert.Equal(t, []string{"dns:counterd.test:8080"}, got.Unanswered)
	assert.Equal(t, 1, got.Processes)
}
