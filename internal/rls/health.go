package rls

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/internal/service"
)

const (
	// maxWatches bounds the health watches at a time: they need no token.
	maxWatches = 100
	// watchInterval is how often a watch looks.
	watchInterval = time.Second
)

// health answers health checks by the health of the process.
type health struct {
	healthpb.UnimplementedHealthServer
	service.Health
	watches atomic.Int64
}

// services are the services that a check may name. envoyproxy/ratelimit calls its own ratelimit.
var services = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName}

func (h *health) status() healthpb.HealthCheckResponse_ServingStatus {
	if _, err := h.Ready(); err != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// of returns the status of a service, or whether there is none of that name.
func (h *health) of(name string) (healthpb.HealthCheckResponse_ServingStatus, bool) {
	if !slices.Contains(services, name) {
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN, false
	}
	return h.status(), true
}

// Check returns the health of a service.
func (h *health) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	is, known := h.of(in.Service)
	if !known {
		return nil, status.Error(codes.NotFound, "there is no such service")
	}
	return &healthpb.HealthCheckResponse{Status: is}, nil
}

// List returns the health of all services.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	list := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for _, name := range services {
		list.Statuses[name] = &healthpb.HealthCheckResponse{Status: h.status()}
	}
	return list, nil
}

// Watch sends the health of a service, and each change of it, until the process is about to end.
func (h *health) Watch(in *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	defer h.watches.Add(-1)
	if h.watches.Add(1) > maxWatches {
		return status.Error(codes.ResourceExhausted, "there are too many watches")
	}
	looks := time.NewTicker(watchInterval)
	defer looks.Stop()
	sent := healthpb.HealthCheckResponse_UNKNOWN
	for {
		ending := h.Drain != nil && h.Drain()
		if is, _ := h.of(in.Service); is != sent {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: is}); err != nil {
				return err
			}
			sent = is
		}
		if ending {
			return status.Error(codes.Unavailable, "the process ends")
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-looks.C:
		}
	}
}
