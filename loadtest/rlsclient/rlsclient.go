// Package rlsclient asks servers of Envoy's RateLimitService v3, counterd's or others.
package rlsclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
)

// The types of the protocol.
type (
	Request  = rlsv3.RateLimitRequest
	Response = rlsv3.RateLimitResponse
	Status   = rlsv3.RateLimitResponse_DescriptorStatus
	Limit    = rlsv3.RateLimitResponse_RateLimit
)

// Verdicts.
const (
	OK        = rlsv3.RateLimitResponse_OK
	OverLimit = rlsv3.RateLimitResponse_OVER_LIMIT
)

// Asker answers requests. It is safe for concurrent use.
type Asker interface {
	Ask(ctx context.Context, in *Request) (*Response, error)
}

// Config says which server to ask. Addr is needed.
type Config struct {
	Addr    string                 // host:port
	TLS     *tls.Config            // nil: in plain text
	Token   func() (string, error) // read for each request; nil: none is sent
	Timeout time.Duration          // of a request; 0: that of its context alone
}

// Client asks a server over one connection.
type Client struct {
	config Config
	conn   *grpc.ClientConn
	server rlsv3.RateLimitServiceClient
}

// New returns a client. It does not connect yet.
func New(config Config) (*Client, error) {
	if _, port, err := net.SplitHostPort(config.Addr); err != nil || port == "" {
		return nil, fmt.Errorf("rlsclient: an address is written like 127.0.0.1:8081, not %q", config.Addr)
	}
	security := insecure.NewCredentials()
	if config.TLS != nil {
		security = credentials.NewTLS(config.TLS.Clone())
	}
	conn, err := grpc.NewClient("passthrough:///"+config.Addr, grpc.WithTransportCredentials(security))
	if err != nil {
		return nil, err
	}
	return &Client{config, conn, rlsv3.NewRateLimitServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ask asks whether a request may pass. Errors have a code of gRPC; an answer has a verdict, and a status for each
// descriptor.
func (c *Client) Ask(ctx context.Context, in *Request) (*Response, error) {
	if c.config.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.config.Timeout)
		defer cancel()
	}
	if c.config.Token != nil {
		token, err := c.config.Token()
		if err != nil {
			return nil, err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "counterd-token", token)
	}
	answer, err := c.server.ShouldRateLimit(ctx, in)
	switch {
	case err != nil:
		return nil, err
	case answer.OverallCode != OK && answer.OverallCode != OverLimit:
		return nil, status.Errorf(codes.Internal, "the answer has no verdict, but %s", answer.OverallCode)
	case len(answer.Statuses) != len(in.Descriptors):
		return nil, status.Errorf(codes.Internal, "the answer has %d statuses for %d descriptors", len(answer.Statuses), len(in.Descriptors))
	}
	return answer, nil
}

// NewRequest returns a request of one descriptor, with an entry for each of the features that there are, in the
// order of their kinds. A cost of 0 counts nothing.
func NewRequest(domain string, kinds []string, features events.Features, cost int64) *Request {
	d := &ratelimitv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(uint64(cost))}
	for _, kind := range kinds {
		if value, there := features[kind]; there {
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: kind, Value: value})
		}
	}
	return &Request{Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{d}}
}

// Window returns how long the window of a limit is; 0: its unit is unknown.
func Window(l *Limit) time.Duration {
	unit := l.GetUnit()
	if unit < 0 || unit > rlsv3.RateLimitResponse_RateLimit_WEEK {
		return 0
	}
	return time.Duration(max(l.GetUnitMultiplier().GetValue(), 1)) * rlsconfig.Unit(unit).Length()
}

// NameOf returns the name of a limit, or what it admits, as 10/h.
func NameOf(l *Limit) string {
	if l.GetName() != "" {
		return l.GetName()
	}
	return Rate(l)
}

// Rate returns what a limit admits, as 10/h.
func Rate(l *Limit) string {
	window := Window(l)
	if window == 0 {
		return fmt.Sprintf("%d in %s", l.GetRequestsPerUnit(), l.GetUnit())
	}
	text := events.FormatDuration(window)
	if len(text) == len("1h") {
		text = strings.TrimPrefix(text, "1")
	}
	return fmt.Sprintf("%d/%s", l.GetRequestsPerUnit(), text)
}
