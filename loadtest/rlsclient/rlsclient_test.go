package rlsclient_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/loadtest/rlsclient"
)

// server keeps what it was asked.
type server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	answer *rlsclient.Response
	in     *rlsclient.Request
	token  []string
	hangs  bool
}

func (s *server) ShouldRateLimit(ctx context.Context, in *rlsclient.Request) (*rlsclient.Response, error) {
	if s.in, s.token = in, metadata.ValueFromIncomingContext(ctx, "counterd-token"); s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.answer, nil
}

func ask(t *testing.T, s *server, config rlsclient.Config) (*rlsclient.Response, error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	to := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(to, s)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, to.Serve(listener)) })
	config.Addr = listener.Addr().String()
	client, err := rlsclient.New(config)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, client.Close())
		to.Stop()
		serving.Wait()
	}()
	features := events.Features{"user": "a", "ip": "192.0.2.1"}
	return client.Ask(t.Context(), rlsclient.NewRequest("edge", []string{"user", "host", "ip"}, features, 0))
}

func TestAsk(t *testing.T) {
	leaktest.Check(t)
	ok := &rlsclient.Response{OverallCode: rlsclient.OK, Statuses: []*rlsclient.Status{{Code: rlsclient.OK}}}
	s := &server{answer: ok}
	said, err := ask(t, s, rlsclient.Config{Token: func() (string, error) { return "sesame", nil }})
	require.NoError(t, err)
	assert.Equal(t, rlsclient.OK, said.OverallCode)
	assert.Equal(t, []string{"sesame"}, s.token)
	assert.Equal(t, "edge", s.in.Domain)
	require.Len(t, s.in.Descriptors, 1)
	assert.Equal(t, wrapperspb.UInt64(0).String(), s.in.Descriptors[0].HitsAddend.String(), "an explicit 0")
	var entries []string
	for _, e := range s.in.Descriptors[0].Entries {
		entries = append(entries, e.Key+"="+e.Value)
	}
	assert.Equal(t, []string{"user=a", "ip=192.0.2.1"}, entries)

	failed := errors.New("no token")
	_, err = ask(t, s, rlsclient.Config{Token: func() (string, error) { return "", failed }})
	require.ErrorIs(t, err, failed)
	_, err = ask(t, &server{hangs: true}, rlsclient.Config{Timeout: 10 * time.Millisecond})
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	for want, wrong := range map[string]*rlsclient.Response{
		"the answer has no verdict":                   {Statuses: ok.Statuses},
		"the answer has 0 statuses for 1 descriptors": {OverallCode: rlsclient.OK},
		"the answer has 2 statuses for 1 descriptors": {OverallCode: rlsclient.OK, Statuses: append(ok.Statuses, ok.Statuses...)},
		"the answer has no verdict, but UNKNOWN":      {},
	} {
		_, err := ask(t, &server{answer: wrong}, rlsclient.Config{})
		assert.ErrorContains(t, err, want)
	}
	_, err = rlsclient.New(rlsclient.Config{Addr: "nowhere"})
	assert.ErrorContains(t, err, "127.0.0.1:8081")
}
