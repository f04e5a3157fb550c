// Command grpc limits the calls of a gRPC server by interceptors, each user on each method.
package main

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

const rules = `
events:
  call:
    limits:
      - {per: ip, rate: 600/m}
      - {per: [user, method], rate: 3/m}
`

// limit decides a call, and returns the error that it ends with if a limit denies it.
func limit(ctx context.Context, limiter *counterd.Limiter, method string) error {
	features := counterd.Features{"method": method}
	if from, found := peer.FromContext(ctx); found {
		if addr, err := netip.ParseAddrPort(from.Addr.String()); err == nil {
			features["ip"] = addr.Addr().WithZone("").String()
		}
	}
	switch user := metadata.ValueFromIncomingContext(ctx, "user"); len(user) {
	case 0: // limited by its address alone
	case 1:
		features["user"] = user[0] // in a service of yours: of the caller that it has authenticated
	default:
		return status.Error(codes.InvalidArgument, "there are several users")
	}
	decision, err := limiter.Hit(ctx, "call", features)
	switch {
	case errors.Is(err, counterd.ErrInvalid): // such as without an address, over a Unix socket, and without a user
		return status.Error(codes.InvalidArgument, "no limit applies to the call")
	case err != nil:
		return status.Error(codes.Internal, "the call cannot be limited")
	case decision.Unavailable:
		return status.Error(codes.Unavailable, "the limits cannot be asked")
	case !decision.Allowed:
		return denial(decision)
	}
	return nil
}

// denial says which limits deny a call, and when it may be repeated.
func denial(decision counterd.Decision) error {
	quota := &errdetails.QuotaFailure{}
	for _, limit := range decision.Limits {
		if !limit.Allowed && !limit.Shadow {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Subject: limit.Name})
		}
	}
	denied := status.New(codes.ResourceExhausted, "a limit denies the call")
	details, err := denied.WithDetails(quota)
	if err == nil && decision.RetryAfter != counterd.Never {
		details, err = details.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(cmp.Or(decision.MayFitAfter, decision.RetryAfter))})
	}
	if err != nil {
		return denied.Err()
	}
	return details.Err()
}

// newServer returns a server whose calls and streams are limited. A stream is limited when it begins.
func newServer(limiter *counterd.Limiter) *grpc.Server {
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, in any, of *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			if err := limit(ctx, limiter, of.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, in)
		}),
		grpc.ChainStreamInterceptor(func(
			server any, stream grpc.ServerStream, of *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			if err := limit(stream.Context(), limiter, of.FullMethod); err != nil {
				return err
			}
			return next(server, stream)
		}),
	)
}

func main() { play.Main(run) }
