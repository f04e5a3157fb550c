// Command envoy runs counterd as Envoy's rate limit service, and asks it what Envoy asks by envoy.yaml.
package main

import (
	"fmt"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/counterd/counterd/examples/internal/play"
)

func main() { play.Main(run) }

func run(s *play.Stage) {
	counterd := s.Counterd("-rls", "127.0.0.1:0", "-rls-config", "envoy/shop.yaml")
	conn, err := grpc.NewClient(counterd.RLS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Check(err)
	s.Stop(func() { conn.Close() })
	envoy := &caller{s, rlsv3.NewRateLimitServiceClient(conn)}

	for range 3 {
		envoy.ask("/search", "192.0.2.7")
	}
	for range 4 {
		envoy.ask("/", "192.0.2.7")
	}
	envoy.ask("/search", "192.0.2.8")
}

// caller asks as Envoy does.
type caller struct {
	*play.Stage
	service rlsv3.RateLimitServiceClient
}

// ask asks about a request from an address, and prints what Envoy would do with the answer.
func (c *caller) ask(path, address string) {
	answer, err := c.service.ShouldRateLimit(c.Context(), &rlsv3.RateLimitRequest{
		Domain: "shop", Descriptors: descriptors(path, address),
	})
	c.Check(err)
	status := "200 OK"
	if answer.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
		status = "429 Too Many Requests"
	}
	for _, header := range answer.ResponseHeadersToAdd {
		if header.Key != "Ratelimit-Policy" {
			status += ", " + header.Key + ": " + strings.ReplaceAll(header.Value, `"`, "")
		}
	}
	fmt.Printf("%s GET %s: %s\n", address, path, status)
}

// descriptors are what envoy.yaml makes of a request, by the rate_limits of its route and of its virtual host.
func descriptors(path, address string) []*ratelimitv3.RateLimitDescriptor {
	remote := &ratelimitv3.RateLimitDescriptor_Entry{Key: "remote_address", Value: address}
	list := []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{remote}}}
	if path == "/search" {
		search := &ratelimitv3.RateLimitDescriptor_Entry{Key: "path", Value: path}
		list = append(list, &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{search, remote},
		})
	}
	return list
}
