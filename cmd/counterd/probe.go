package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/counterd/counterd/internal/authorities"
)

const probeUsage = `counterd probe asks a counterd how it is, for health checks of images that have no
other program: it exits with 0 where the answer is 200, else with 1.

Usage:
  counterd probe [flags] [URL]

URL is ` + probeURL + ` where none is given; the path /healthz where it has none. /healthz
answers as long as the process does, /readyz while the store can be reached. It has no client
certificate: with -tls-client-ca ask the address of -admin, which requires none.

Flags, each with its environment variable:
`

const probeExamples = `
Examples:
  counterd probe
  counterd probe http://127.0.0.1:9090/readyz
  counterd probe -ca ca.pem https://counterd.internal:8443
  counterd probe -ca ca.pem -server-name counterd.internal https://127.0.0.1:9090
`

const (
	probeURL     = "http://127.0.0.1:8080/healthz"
	maxProbeBody = 1 << 10 // of what is said with another answer than 200
)

// probe asks a URL and fails where the answer is not a 200.
func probe(ctx context.Context, args []string, stdout, _ io.Writer) error {
	flags := newFlags("counterd probe", stdout, probeUsage, probeExamples)
	wait := flags.Duration("wait", 2*time.Second, "longest wait for the answer")
	authorities := flags.String("ca", "", "`file` of the authorities that the server's certificate comes from, PEM; none: the system's")
	name := flags.String("server-name", "", "`name` that the server's certificate is for; none: the host of the URL")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 1 {
		return usageError("probe takes one URL")
	}
	if *wait <= 0 {
		return usageError(fmt.Sprintf("-wait: %s is not above 0", *wait))
	}
	target, err := parseProbeURL(cmp.Or(flags.Arg(0), probeURL))
	if err != nil {
		return err
	}
	client, err := newProbeClient(*authorities, *name)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	return expectOK(ctx, client, target)
}

// parseProbeURL returns what to ask. What is wrong with it is said without it: there may be
// a password in it.
func parseProbeURL(text string) (*url.URL, error) {
	target, err := url.Parse(text)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, usageError("the argument is not a URL of http or https: write it as " + probeURL)
	}
	if target.Path == "" || target.Path == "/" {
		target.Path = "/healthz"
	}
	return target, nil
}

// newProbeClient returns a client that asks the server that is named and no other: through
// no proxy, and wherever that server would send it.
func newProbeClient(ca, name string) (*http.Client, error) {
	secure := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if ca != "" {
		var err error
		if secure.RootCAs, err = authorities.Read(ca); err != nil {
			return nil, fmt.Errorf("-ca: %w", err)
		}
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: stay}, nil
}

// expectOK returns an error that says what the server answered, if it is not a 200.
func expectOK(ctx context.Context, client *http.Client, target *url.URL) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	said, err := io.ReadAll(io.LimitReader(response.Body, maxProbeBody))
	return errors.Join(fmt.Errorf("%s answers %s: %q", target.Redacted(), response.Status, said), err)
}
