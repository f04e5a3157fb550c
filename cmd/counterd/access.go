package main

import (
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/service"
)

const (
	// noTokens is said instead of a file: everybody may call, and that is meant.
	noTokens = "none"
	// maxDrainDelay bounds the delay: whoever waits for the process gives up before.
	maxDrainDelay = 10 * time.Minute
)

// access is what the flags say of who may call, and where.
type access struct {
	tokens     string // the file; noTokens; empty: nothing is said
	cert, key  string
	clientCA   string
	admin      string
	drainDelay time.Duration
}

func (a *access) addFlags(flags flagSet) {
	flags.StringVar(&a.tokens, "tokens", "", "`file` of the tokens of those who may call, reloaded when it changes and on SIGHUP; none: everybody may, and by any Host")
	flags.StringVar(&a.cert, "tls-cert", "", "`file` of the certificate to serve TLS with, and what comes between it and its authority, PEM; reloaded when it changes")
	flags.StringVar(&a.key, "tls-key", "", "`file` of its private key, PEM")
	flags.StringVar(&a.clientCA, "tls-client-ca", "", "`file` of the authorities, PEM, of which clients have to show a certificate")
	flags.StringVar(&a.admin, "admin", "", "`address` to serve metrics, profiles, healthz and readyz on: metrics are only there then")
	flags.DurationVar(&a.drainDelay, "drain-delay", 0, "how long requests are served on after SIGTERM, while readyz says that nobody should come any more")
}

// check finds flags that make no sense together, and addresses that everybody could reach
// without anybody having said so.
func (a access) check(listen string) error {
	switch {
	case a.cert != "" && a.key == "":
		return usageError("-tls-cert: its -tls-key is not named")
	case a.key != "" && a.cert == "":
		return usageError("-tls-key: its -tls-cert is not named")
	case a.clientCA != "" && a.cert == "":
		return usageError("-tls-client-ca: without -tls-cert and -tls-key there is no TLS")
	case a.drainDelay < 0 || a.drainDelay > maxDrainDelay:
		return usageError(fmt.Sprintf("-drain-delay: %s is not between 0s and %s", a.drainDelay, maxDrainDelay))
	case a.tokens == "" && a.clientCA == "" && !onLoopback(listen):
		return usageError(fmt.Sprintf("-listen: others than this machine reach %s: say who may call by -tokens FILE or -tls-client-ca FILE, or that everybody may by -tokens %s", listen, noTokens))
	}
	if a.admin == "" {
		return nil
	}
	if err := checkListen(a.admin); err != nil {
		return usageError("-admin: " + err.Error())
	}
	// No client certificate is asked for there: those who probe and scrape have none.
	if a.tokens == "" && !onLoopback(a.admin) {
		return usageError(fmt.Sprintf("-admin: others than this machine reach %s: say who may call by -tokens FILE, or that everybody may by -tokens %s", a.admin, noTokens))
	}
	return nil
}

// onLoopback reports whether only this machine reaches the address.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}

// wantsTokens reports whether a file says who may call.
func (a access) wantsTokens() bool { return a.tokens != "" && a.tokens != noTokens }

// loopbackOnly reports whether all programs of this machine may call, and none of another one.
// Over TLS it is the certificate that keeps web pages of other names out.
func (a access) loopbackOnly() bool { return a.tokens == "" && a.cert == "" }

// warn says where secrets lie or go open, and who may call although nobody is known.
func (a access) warn(listen string, log *slog.Logger) {
	if a.wantsTokens() {
		warnOpen(log, a.tokens)
	}
	warnOpen(log, a.key)
	for _, address := range []string{listen, a.admin} {
		switch {
		case address == "" || onLoopback(address):
		case a.wantsTokens() && a.cert == "":
			log.Warn("tokens go unencrypted: -tls-cert is not set", "address", address)
		case a.tokens == noTokens && (a.clientCA == "" || address == a.admin):
			log.Warn("everybody who reaches this address may call: -tokens none", "address", address)
		}
	}
}

// door is who may call, as the files in force say.
type door struct {
	loopbackOnly bool          // only programs of this machine may call
	tokens       *tokensFile   // nil: no token is wanted
	certificates *certificates // nil: there is no TLS
	refusals     service.Refusals
	draining     atomic.Bool // the process is about to end
}

// openDoor reads the files that say who may call, and follows them until Close.
func openDoor(a access, log *slog.Logger) (d *door, err error) {
	d = &door{loopbackOnly: a.loopbackOnly()}
	if err := checkKey("-tls-key", a.key); err != nil {
		return nil, err
	}
	if a.wantsTokens() {
		if err := checkSecret("-tokens", a.tokens); err != nil {
			return nil, err
		}
		if d.tokens, err = openTokens(a.tokens, log); err != nil {
			return nil, err
		}
	}
	if a.cert != "" {
		if d.certificates, err = openCertificates(a, log); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// Close ends the following of the files. What is in force stays.
func (d *door) Close() {
	if d.tokens != nil {
		d.tokens.Close()
	}
	if d.certificates != nil {
		d.certificates.Close()
	}
}

// gate returns a gate for so many requests at a time, by the tokens in force.
func (d *door) gate(most int) *service.Gate {
	config := service.GateConfig{Refusals: &d.refusals, MaxRequests: most}
	if d.tokens != nil {
		config.Tokens = d.tokens.inForce.Load
	}
	return service.NewGate(config)
}

// tokenReloadFailures returns how many versions of the file of tokens were faulty.
func (d *door) tokenReloadFailures() int64 {
	if d.tokens == nil {
		return 0
	}
	return d.tokens.failures.Load()
}

// tlsReloadFailures returns how many versions of the certificate's files were faulty, or
// did not suit each other.
func (d *door) tlsReloadFailures() int64 {
	if d.certificates == nil {
		return 0
	}
	return d.certificates.failures.Load()
}

// certificateExpiry returns when the certificate in force expires, and how long it is good
// in all; ok: there is one.
func (d *door) certificateExpiry() (expires time.Time, lifetime time.Duration, ok bool) {
	if d.certificates == nil {
		return time.Time{}, 0, false
	}
	inForce := d.certificates.inForce.Load()
	return inForce.expires, inForce.lifetime, true
}

// tokensFile holds the tokens in force.
type tokensFile struct {
	*follower
	inForce atomic.Pointer[service.Tokens]
}

func openTokens(path string, log *slog.Logger) (t *tokensFile, err error) {
	t = &tokensFile{}
	t.follower, err = follow("tokens", []string{path}, func(contents [][]byte) ([]any, error) {
		tokens, err := service.ParseTokens(contents[0])
		if err != nil {
			return nil, err
		}
		t.inForce.Store(tokens)
		return []any{"tokens", tokens.Len()}, nil
	}, log)
	if err != nil {
		return nil, fmt.Errorf("-tokens: %w", err)
	}
	return t, nil
}
