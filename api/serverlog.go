package api

import (
	"log/slog"
	"regexp"
	"strings"

	"github.com/counterd/counterd/internal/panics"
	"github.com/counterd/counterd/internal/sparse"
)

// serverLog logs what net/http has to say, without what it says of clients: their
// addresses are what is counted, and in handshakes and panics they choose the words.
type serverLog struct {
	log   *slog.Logger
	lines sparse.Lines
}

// Write logs a line. It does not wait: the caller holds a lock, for which others
// wait, the loop that accepts connections among them.
func (l *serverLog) Write(p []byte) (int, error) {
	text, stack := withoutClients(string(p))
	go l.lines.Do("", func(suppressed int64) {
		if stack != "" {
			l.log.Error("http server", "error", text, "stack", stack, "suppressed", suppressed)
			return
		}
		l.log.Warn("http server", "error", text, "suppressed", suppressed)
	})
	return len(p), nil
}

// saying is how a line of net/http begins, and what may be known of the rest.
type saying struct {
	begins string
	rest   rest
}

type rest int

const (
	kept      rest = iota // it is of this process alone
	dropped               // an address, and perhaps a frame
	handshake             // an address, and why a handshake failed
	panicked              // an address, what was panicked with, and the stack
)

// sayings are the lines of net/http's server. A test finds lines that a later version
// adds; what is not known is left out.
var sayings = []saying{
	{"http: TLS handshake error from ", handshake},
	{"http: Accept error: ", kept},
	{"http: panic serving ", panicked},
	{"http2: panic serving ", panicked},
	{"http: superfluous response.WriteHeader call from ", kept}, // a function of the program
	{"http: response.WriteHeader on hijacked connection from ", kept},
	{"http: response.Write on hijacked connection from ", kept},
	{"http: WriteHeader called with both Transfer-Encoding of ", dropped},
	{"http: invalid Content-Length of ", dropped},
	{"http2: server: error reading preface from client ", dropped},
	{"http2: server connection error from ", dropped},
	{"http2: server closing client connection", dropped},
	{"http2: received GOAWAY", dropped},
	{"timeout waiting for SETTINGS frames from ", dropped},
	{"timeout waiting for PING response", kept},
	{"ignoring invalid trailer ", dropped},
}

// unknownSaying stands for what may name a client.
const unknownSaying = "http: something that is not logged, since it may name a client"

// withoutClients returns of a line what says nothing of a client, and of a panic's stack
// where it was.
func withoutClients(line string) (text, stack string) {
	line = strings.TrimSpace(line)
	for _, s := range sayings {
		rest, found := strings.CutPrefix(line, s.begins)
		if !found {
			continue
		}
		begins := strings.TrimSuffix(strings.TrimRight(s.begins, " :"), " from")
		switch s.rest {
		case kept:
			return line, ""
		case handshake:
			return begins + ": " + handshakeFault(rest), ""
		case panicked:
			return strings.TrimSuffix(begins, " serving"), panics.Frames(rest)
		}
		return begins, ""
	}
	return unknownSaying, ""
}

// handshakeFaults are reasons for which handshakes fail, by words that crypto/tls and the
// system have for them.
var handshakeFaults = []string{
	"EOF",
	"connection reset by peer",
	"broken pipe",
	"i/o timeout",
	"context deadline exceeded",
	"first record does not look like a TLS handshake",
	"client sent an HTTP request to an HTTPS server",
	"client didn't provide a certificate",
	"certificate signed by unknown authority",
	"certificate has expired or is not yet valid",
	"certificate specifies an incompatible key usage",
	"client offered only unsupported versions",
	"no cipher suite supported by both client and server",
	"no ECDHE curve supported by both client and server",
	"client requested unsupported application protocols",
	"client did not request an application protocol",
	"invalid signature by the client certificate",
	"bad record MAC",
}

// alert is what the other side has for a reason, in the words of crypto/tls.
var alert = regexp.MustCompile(`^\S+: (remote error: tls: [a-z ]+)$`)

// handshakeFault returns why a handshake failed, as far as that is one of the usual
// reasons: of others it cannot be known what in them the client has said.
func handshakeFault(rest string) string {
	if match := alert.FindStringSubmatch(rest); match != nil {
		return match[1]
	}
	for _, fault := range handshakeFaults {
		if strings.Contains(rest, fault) {
			return fault
		}
	}
	return "a reason that is not logged, since it may name a client"
}
