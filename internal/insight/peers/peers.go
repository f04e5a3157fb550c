// Package peers asks the other processes of a fleet what each of them alone knows.
package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/insight/top"
)

const (
	// Max is the most peers there may be.
	Max = 64
	// timeout bounds the wait for the answers of all peers.
	timeout = time.Second
	// maxAsks bounds the calls of Top that ask the peers at a time, and so the memory for their answers.
	maxAsks = 2
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
	// askedAtLeast is of how many features each process says what it knows: what one of them has in its list may
	// be missing in that of another.
	askedAtLeast = 100
)

var errTooMany = fmt.Errorf("peers: more than %d processes", Max)

// dnsPrefix begins a name whose addresses are the peers.
const dnsPrefix = "dns:"

// Config configures a Fleet.
type Config struct {
	// URLs are the peers that Check has found right. There may be none, and this process may be among them.
	URLs []string
	// Authorities issue the certificates of the peers. If nil, those of the system do. A certificate that is this
	// process's own is good without them.
	Authorities *x509.CertPool
	// Own returns the certificate of this process. If nil, it serves plain HTTP, as then do the peers of a name.
	Own func() *tls.Certificate
	// Resolver looks up the name of the peers. If nil, the system's is used.
	Resolver *net.Resolver
}

// Fleet is this process with its peers. A nil Fleet has none. It is safe for concurrent use.
type Fleet struct {
	process   string // a random id of this process: it may have several URLs, and be one of its peers
	config    Config
	name      discovery.DNS   // of the peers; without a Name they are those of the URLs
	found     atomic.Int64    // the number of addresses of the name, when it was looked up last
	transport *http.Transport // of all calls
	asks      chan struct{}   // has an element for each call of Top that asks the peers
}

// Check returns an error unless the list has the URLs of peers, as in http://10.0.0.2:8080, or dns:NAME:PORT alone.
func Check(urls []string) error {
	for _, url := range urls {
		name, isName := strings.CutPrefix(url, dnsPrefix)
		switch _, err := discovery.ParseDNS(name); {
		case !isName:
		case len(urls) > 1:
			return fmt.Errorf("%s allows no peer beside it", url)
		default:
			return err
		}
	}
	if len(urls) > Max {
		return fmt.Errorf("%d peers are named: there are at most %d", len(urls), Max)
	}
	for i, url := range urls {
		if _, err := client.New(client.Config{URL: url, Transport: http.DefaultTransport}); err != nil {
			return fmt.Errorf("%q is no URL of a peer: write http://10.0.0.2:8080, or dns:NAME:8080 for all addresses", url)
		}
		if slices.Contains(urls[:i], url) {
			return fmt.Errorf("%q is named twice", url)
		}
	}
	return nil
}

// New returns a fleet with those peers.
func New(config Config) *Fleet {
	usual, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has replaced it
		usual = &http.Transport{ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second}
	}
	transport := usual.Clone()
	transport.Proxy = nil // it would get the tokens
	transport.MaxResponseHeaderBytes = maxHeader
	transport.ForceAttemptHTTP2 = false // with a dialer of its own
	f := &Fleet{process: rand.Text(), config: config, transport: transport, asks: make(chan struct{}, maxAsks)}
	transport.DialTLSContext = f.dialTLS
	if len(config.URLs) == 1 {
		if name, isName := strings.CutPrefix(config.URLs[0], dnsPrefix); isName {
			f.name, _ = discovery.ParseDNS(name) // Check has found it right
			f.name.Resolver = config.Resolver
			f.found.Store(1)
		}
	}
	return f
}

// dialTLS opens a connection to a peer. The peer has to show this process's own certificate, or a certificate that the
// authorities have issued for its host. A peer of a name has to show a certificate for the name, or, if this process's
// own certificate is not for the name, for the first name in that.
func (f *Fleet) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if f.name.Name != "" {
		config.ServerName = strings.TrimSuffix(f.name.Name, ".")
	}
	config.RootCAs = f.config.Authorities
	if config.RootCAs == nil {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, err
		}
	}
	if f.config.Own != nil {
		own := f.config.Own()
		config.Certificates = []tls.Certificate{*own} // a peer may ask its callers for one
		config.RootCAs = config.RootCAs.Clone()
		config.RootCAs.AddCert(own.Leaf)
		if f.name.Name != "" && own.Leaf.VerifyHostname(config.ServerName) != nil {
			config.ServerName = nameOf(own.Leaf)
		}
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
}

// nameOf returns the first name that the certificate is for, or the first address.
func nameOf(leaf *x509.Certificate) string {
	switch {
	case len(leaf.DNSNames) > 0:
		return strings.Replace(leaf.DNSNames[0], "*", "counterd", 1)
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return ""
}

// peers returns the URLs of the peers. The error of a name that cannot be looked up is that of all of its peers.
func (f *Fleet) peers(ctx context.Context) ([]string, error) {
	if f.name.Name == "" {
		return f.config.URLs, nil
	}
	addresses, err := discovery.List(ctx, f.name)
	if err != nil {
		return f.config.URLs, err
	}
	scheme := "http://"
	if f.config.Own != nil {
		scheme = "https://"
	}
	for i := range addresses {
		addresses[i] = scheme + addresses[i]
	}
	f.found.Store(int64(min(len(addresses), Max)))
	return addresses, nil
}

// Close closes the connections to the peers.
func (f *Fleet) Close() {
	if f != nil {
		f.transport.CloseIdleConnections()
	}
}

// Processes returns how many there are at most, this one among them, as far as is known.
func (f *Fleet) Processes() int {
	switch {
	case f == nil:
		return 1
	case f.name.Name != "":
		return 1 + int(f.found.Load())
	}
	return 1 + len(f.config.URLs)
}

// Alone returns the list of this process, as its peers ask for it.
func (f *Fleet) Alone(own top.List) wire.Top {
	alone := wireOf(own)
	if f != nil {
		alone.Process = f.process
	}
	return alone
}

// Asked returns of how many features each process has to say what it knows.
func (f *Fleet) Asked(q top.Query) top.Query {
	if f.Processes() > 1 {
		q.N = min(max(q.N, askedAtLeast), client.MaxTop)
	}
	return q
}

// Top returns the features with the most hits of all processes. It merges this process's list, which answers
// Asked(q), with those of the peers, that it asks with the token of the caller. The answer names the peers that
// have not answered in time: their hits are missing. At most two calls ask at a time; others wait for their turn.
// A process that answers under several URLs counts once.
func (f *Fleet) Top(ctx context.Context, token string, own top.List, q top.Query) wire.Top {
	if f.Processes() == 1 {
		return wireOf(own)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case f.asks <- struct{}{}:
		defer func() { <-f.asks }()
	case <-ctx.Done(): // each ask fails at once
	}
	urls, unknown := f.peers(ctx)
	lists, faults := make([]wire.Top, len(urls)), make([]error, len(urls))
	var asking sync.WaitGroup
	for i, url := range urls {
		switch {
		case unknown != nil:
			faults[i] = unknown
		case i >= Max:
			faults[i] = errTooMany
		default:
			asking.Go(func() { lists[i], faults[i] = f.ask(ctx, url, token, f.Asked(q)) })
		}
	}
	asking.Wait()
	answered, known := []wire.Top{wireOf(own)}, map[string]bool{f.process: true}
	var unanswered []string
	for i, fault := range faults {
		switch process := lists[i].Process; {
		case fault != nil:
			unanswered = append(unanswered, urls[i])
		case process == "" || !known[process]:
			known[process] = true
			answered = append(answered, lists[i])
		}
	}
	merged := merge(answered, q.N)
	merged.Processes, merged.Unanswered = len(answered), unanswered
	return merged
}

func (f *Fleet) ask(ctx context.Context, url, token string, q top.Query) (wire.Top, error) {
	config := client.Config{URL: url, Transport: f.transport}
	if token != "" {
		config.Token = func() (string, error) { return token, nil }
	}
	c, err := client.New(config)
	if err != nil {
		return wire.Top{}, err
	}
	list, err := c.Top(ctx, client.TopQuery{Outcome: q.Outcome.String(), Event: q.Event, N: q.N, Window: q.Window, Alone: true})
	if err != nil {
		return wire.Top{}, err
	}
	return list, check(list)
}

// key names a feature of an event.
type key struct{ event, feature string }

// merge adds lists up, and keeps the n features with the most hits. A feature that is missing in a list has had at
// most the rest of it. Sums saturate at maxCount.
func merge(lists []wire.Top, n int) wire.Top {
	sums, rest := map[key]*wire.TopFeature{}, int64(0)
	for _, list := range lists {
		rest += list.Rest
		for _, one := range list.Features {
			sum := sums[key{one.Event, one.Feature}]
			if sum == nil {
				sum = &wire.TopFeature{Event: one.Event, Feature: one.Feature, Features: one.Features}
				sums[key{one.Event, one.Feature}] = sum
			}
			sum.Count, sum.Error = sum.Count+one.Count-list.Rest, sum.Error+one.Error-list.Rest
			sum.Limits = append(sum.Limits, one.Limits...)
		}
	}
	merged := wire.Top{Features: make([]wire.TopFeature, 0, len(sums)), Rest: min(rest, maxCount)}
	for _, sum := range sums {
		sum.Count, sum.Error = min(sum.Count+rest, maxCount), min(sum.Error+rest, maxCount)
		sum.Limits = addLimits(sum.Limits)
		merged.Features = append(merged.Features, *sum)
	}
	slices.SortFunc(merged.Features, func(a, b wire.TopFeature) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Event, b.Event), cmp.Compare(a.Feature, b.Feature))
	})
	if n < len(merged.Features) {
		merged.Rest = max(merged.Rest, merged.Features[n].Count)
		merged.Features = merged.Features[:n]
	}
	return merged
}

// addLimits adds up the limits of the same name, and sorts them by it.
func addLimits(limits []wire.TopLimit) (sums []wire.TopLimit) {
	slices.SortFunc(limits, func(a, b wire.TopLimit) int { return cmp.Compare(a.Name, b.Name) })
	for _, one := range limits {
		if last := len(sums) - 1; last >= 0 && sums[last].Name == one.Name {
			sums[last].Count = min(sums[last].Count+one.Count, maxCount)
		} else {
			sums = append(sums, one)
		}
	}
	return sums
}

// wireOf returns a list as the contract has it.
func wireOf(list top.List) wire.Top {
	out := wire.Top{Features: make([]wire.TopFeature, len(list.Entries)), Rest: list.Rest}
	for i, entry := range list.Entries {
		one := wire.TopFeature{
			Event: entry.Event, Feature: entry.Feature.String(), Features: map[string]string{}, Count: entry.Count, Error: entry.Error,
		}
		for kind, value := range entry.Feature.All() {
			one.Features[kind] = value
		}
		for _, limit := range entry.Limits {
			one.Limits = append(one.Limits, wire.TopLimit{Name: limit.Limit, Count: limit.Count})
		}
		out.Features[i] = one
	}
	return out
}
