package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/examples/internal/play"
)

// run serves gRPC's own health service, which has a call and a stream, and calls it.
func run(s *play.Stage) {
	server := newServer(s.Limiter(rules))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.Check(err)
	s.Stop(server.Stop)
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Check(err)
	s.Stop(func() { conn.Close() })
	client := grpc_health_v1.NewHealthClient(conn)

	check := func(ctx context.Context) error {
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	watch := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for range 4 {
		show(s, "ada", "call", check)
	}
	show(s, "bob", "call", check)
	for range 4 {
		show(s, "ada", "stream", watch)
	}
}

// show prints the outcome of a call.
func show(s *play.Stage, user, kind string, call func(context.Context) error) {
	err := call(metadata.AppendToOutgoingContext(s.Context(), "user", user))
	of := status.Convert(err)
	fmt.Printf("%s, a %s: %s", user, kind, of.Code())
	for _, detail := range of.Details() {
		switch detail := detail.(type) {
		case *errdetails.QuotaFailure:
			fmt.Printf(", by %s", detail.Violations[0].Subject)
		case *errdetails.RetryInfo:
			fmt.Printf(", again in %v", detail.RetryDelay.AsDuration())
		}
	}
	fmt.Println()
}
