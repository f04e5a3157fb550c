package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/internal/authorities"
)

// credentials are the flags by which a command authenticates to its targets, and verifies
// them.
type credentials struct {
	tokenFile     string
	ca, cert, key string
	serverName    string

	secure bool        // parse has found a target of https
	tls    *tls.Config // what parse makes of them; nil: the system's authorities, and no certificate
}

// credentialFlags are their names.
const credentialFlags = "token-file ca cert key server-name"

func (c *credentials) add(set *flag.FlagSet) {
	set.StringVar(&c.tokenFile, "token-file", "", "`file` that holds the token to call with; none: without")
	set.StringVar(&c.ca, "ca", "", "`file` of the authorities that the targets' certificates come from, PEM; none: the system's")
	set.StringVar(&c.cert, "cert", "", "`file` of the certificate that is shown to the targets, PEM; none: none is")
	set.StringVar(&c.key, "key", "", "`file` of its private key, PEM")
	set.StringVar(&c.serverName, "server-name", "", "`name` that all targets' certificates are for; none: each for the host of its URL")
}

// parse reads the files that the flags name. The URLs are all that will be called.
func (c *credentials) parse(urls ...string) error {
	c.secure = slices.ContainsFunc(urls, func(url string) bool { return strings.HasPrefix(strings.ToLower(url), "https:") })
	for _, one := range []struct{ flag, value string }{{"ca", c.ca}, {"cert", c.cert}, {"key", c.key}, {"server-name", c.serverName}} {
		switch {
		case one.value == "":
		case !c.secure:
			return fmt.Errorf("-%s is for https, and no URL that is called begins with it", one.flag)
		default:
			c.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
		}
	}
	var faults []error
	named := func(flags string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", flags, err))
		}
	}
	if read := c.token(); read != nil {
		_, err := read()
		named("-token-file", err)
	}
	if c.ca != "" {
		var err error
		c.tls.RootCAs, err = authorities.Read(c.ca)
		named("-ca", err)
	}
	switch {
	case c.cert != "" && c.key != "":
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		named("-cert and -key", err)
		// It is shown whichever authorities a target says it trusts: so the target says what is
		// wrong with it, where it would else miss one.
		c.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	case c.cert != "":
		named("-cert", errors.New("its -key is not named"))
	case c.key != "":
		named("-key", errors.New("its -cert is not named"))
	}
	return errors.Join(faults...)
}

// parseRLS reads the files of a target over gRPC: it is called with TLS if a flag is for that, else in plain text.
func (c *credentials) parseRLS() error {
	if c.ca+c.cert+c.key+c.serverName != "" {
		return c.parse("https:")
	}
	return c.parse()
}

// token returns how the token is read for each call; nil: there is none.
func (c *credentials) token() func() (string, error) {
	if c.tokenFile == "" {
		return nil
	}
	return client.TokenFile(c.tokenFile)
}

// advised adds to what a target has answered, or has not, which flag may help.
func (c *credentials) advised(err error) error {
	answer, answered := errors.AsType[*client.Error](err)
	_, stranger := errors.AsType[x509.UnknownAuthorityError](err)
	_, other := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	on, there := errors.AsType[*net.OpError](err)
	const trusted = "-cert and -key show one of an authority that the target trusts, and that has not expired"
	advice := ""
	switch code := status.Code(err); {
	case code == codes.Unauthenticated:
		advice = "-token-file holds a token that the target knows"
	case code == codes.PermissionDenied:
		advice = "-token-file holds one that is good for decisions"
	case code == codes.Unimplemented:
		advice = "the target has no RateLimitService: -rls of counterd names its address"
	case code == codes.Unavailable && c.secure:
		advice = "where the target speaks no TLS, leave out -ca, -cert, -key and -server-name"
	case code == codes.Unavailable:
		advice = "where the target speaks TLS, -ca names its authorities"
	case invalid: // it has expired, say: no flag makes up for that
	case errors.Is(err, client.ErrUnknown):
		advice = "-event names one that the server has"
	case answered && answer.Status == http.StatusUnauthorized:
		advice = "-token-file holds a token that the target knows"
	case answered && answer.Status == http.StatusForbidden:
		advice = "-token-file holds one that is good for all that is called"
	case answered && answer.Status == http.StatusBadRequest && answer.Type == "" && !c.secure:
		advice = "where the server speaks TLS, its URL begins with https"
	case errors.Is(err, http.ErrSchemeMismatch):
		advice = "the target speaks no TLS: its URL begins with http"
	case stranger:
		advice = "-ca names the authorities that the target's certificate comes from"
	case other:
		advice = "-server-name says whom the target's certificate is for"
	case there && on.Op == "remote error" && strings.Contains(on.Err.Error(), "certificate"):
		advice = trusted
	case errors.Is(err, client.ErrUnavailable) && !answered:
		advice = "-url says where the server is"
		// It may have hung up without a word that could still be read.
		if c.secure && !(there && on.Op == "dial") {
			advice += "; where it wants a certificate, " + trusted
		}
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}
