package main

import (
	"context"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

var servingRLSAt = regexp.MustCompile(`msg="serving Envoy's rate limit service" address=(\S+)`)

// startRLS runs a counterd that serves Envoy's rate limit service.
func startRLS(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcess(t, append([]string{"-rls", "127.0.0.1:0"}, args...)...)
}

// rls returns a connection to Envoy's rate limit service of the process.
func (p *process) rls(t *testing.T, over credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(servingRLSAt.FindStringSubmatch(p.log.String())[1], grpc.WithTransportCredentials(over))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// should asks on the connection for a descriptor of one entry.
func should(ctx context.Context, conn *grpc.ClientConn, domain, key, value string) (*rlsv3.RateLimitResponse, error) {
	entries := []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}
	return rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: entries}},
	})
}

// answers returns the code of the answer, or of the error.
func answers(ctx context.Context, conn *grpc.ClientConn, domain, key, value string) string {
	answer, err := should(ctx, conn, domain, key, value)
	if err != nil {
		return grpcstatus.Code(err).String()
	}
	return answer.OverallCode.String()
}

const tenAnHour = "domain: ten\ndescriptors:\n- {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}\n"

// The folder of a configuration is followed, events of the rules are domains beside it, and both are in the metrics.
func TestRLSConfigIsReloaded(t *testing.T) {
	folder := t.TempDir()
	testkit.WriteFile(t, filepath.Join(folder, "ten.yaml"), tenAnHour)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, "events:\n  login: {limits: [{per: ip, rate: 1/h, name: one}]}\n")
	p := startRLS(t, "-rls-config", folder, "-rules", rules)
	conn := p.rls(t, insecure.NewCredentials())
	ask := func(domain, key, value string) string { return answers(t.Context(), conn, domain, key, value) }
	assert.Equal(t, "OK", ask("ten", "user", "bob"))
	assert.Equal(t, "OK", ask("login", "ip", "203.0.113.1"))
	assert.Equal(t, "OVER_LIMIT", ask("login", "ip", "203.0.113.1"))
	assert.Equal(t, "OK", ask("two", "user", "bob"), "no limit applies")
	testkit.WriteFile(t, filepath.Join(folder, "two.yml"), "domain: two\ndescriptors: [{key: user, rate_limit: {name: none, unit: day, requests_per_unit: 0}}]")
	testkit.Await(t, soon, "the new domain has its limit", func() bool { return ask("two", "user", "bob") == "OVER_LIMIT" })
	testkit.WriteFile(t, filepath.Join(folder, "two.yml"), "domain: two\ndescriptors: [{}]")
	p.log.Await(t, "fault in the rls-config file", `fault="line 2, column 15: `+filepath.Join(folder, "two.yml")+`: descriptors[0]: key is missing`)
	assert.Equal(t, "OVER_LIMIT", ask("two", "user", "bob"), "the configuration in force stays")
	_, metrics := p.get(t, "/metrics")
	for _, line := range []string{
		`counterd_limit_decisions_total{event="login",limit="one",verdict="denied"} 1`,
		`counterd_limit_decisions_total{event="rls/ten",limit="user",verdict="allowed"} 1`,
		`counterd_decisions_total{call="hit",event="rls/ten",verdict="allowed"} 1`,
		`counterd_rls_requests_total{code="OVER_LIMIT",domain="login"} 1`,
		`counterd_rls_requests_total{code="OK",domain="other"} `,
		`counterd_file_reload_failing{file="rls-config"} 1`,
	} {
		assert.Contains(t, metrics, "\n"+line)
	}
	assert.Regexp(t, `counterd_limit_decisions_total{event="rls/two",limit="none",verdict="denied"} [1-9]`, metrics)
	assert.NotContains(t, metrics, "bob")
	p.signal(t, syscall.SIGHUP)
	testkit.Await(t, soon, "SIGHUP reads the folder again", func() bool { return strings.Count(p.log.String(), "rls-config not reloaded") == 2 })

	broken := output(t, exitFailed, "-listen", "127.0.0.1:0", "-rls", "127.0.0.1:0", "-rls-config", folder)
	assert.Contains(t, broken, "-rls-config: "+folder+": line 2, column 15")
}

// Calls need a token of the class decide, reflection too; health checks need none.
func TestRLSWithTokens(t *testing.T) {
	tokens := testkit.SecretFile(t, "edge decide edge-edge-edge-edge\nreader read read-read-read-read\n")
	p := startRLS(t, "-tokens", tokens, "-access-log")
	conn := p.rls(t, insecure.NewCredentials())
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	ask := func(ctx context.Context) string { return answers(ctx, conn, "url_shorten", "ip", "203.0.113.77") }
	reflects := func(ctx context.Context) error {
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		require.NoError(t, err)
		list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
		if err := stream.Send(list); err != nil {
			require.ErrorIs(t, err, io.EOF) // the call has ended, and Recv returns why
		}
		answer, err := stream.Recv()
		if err == nil {
			assert.Contains(t, answer.String(), "envoy.service.ratelimit.v3.RateLimitService")
			require.NoError(t, stream.CloseSend())
		}
		return err
	}
	for range 2 { // on a connection that is a stranger's, and then a client's
		assert.Equal(t, "Unauthenticated", ask(t.Context()))
		assert.Equal(t, "PermissionDenied", ask(with("read-read-read-read")))
		assert.Equal(t, codes.Unauthenticated, grpcstatus.Code(reflects(t.Context())))
		for service, want := range map[string]codes.Code{"": codes.OK, "ratelimit": codes.OK, "envoy.service.ratelimit.v3.RateLimitService": codes.OK, "other": codes.NotFound} {
			_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			assert.Equal(t, want, grpcstatus.Code(err), service)
		}
		assert.Equal(t, "OK", ask(with("edge-edge-edge-edge")))
		assert.NoError(t, reflects(with("edge-edge-edge-edge")))
	}
	p.log.Await(t, "msg=request method=ShouldRateLimit domain=url_shorten code=OK client=edge duration=")
	for _, secret := range []string{"203.0.113.77", "edge-edge", "read-read"} {
		assert.NotContains(t, p.log.String(), secret)
	}
}

// Over TLS a client has to show a certificate, where that is set. Without the name of a service the health is that of
// the process.
func TestRLSOverTLS(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	p := startRLS(t, "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-tls-client-ca", authority.File)
	ask := func(over credentials.TransportCredentials) string {
		return answers(t.Context(), p.rls(t, over), "url_shorten", "ip", "203.0.113.1")
	}
	assert.Equal(t, "OK", ask(credentials.NewTLS(authority.Client(id))))
	assert.Equal(t, "Unavailable", ask(credentials.NewTLS(authority.Client())))
	assert.Equal(t, "Unavailable", ask(insecure.NewCredentials()))
}

// Before a process ends its health says so, while calls are answered; the call in flight is answered, too, and watches
// end.
func TestRLSEndsInOrder(t *testing.T) {
	memcached := memcachedtest.Start(t)
	p := startRLS(t, "-memcached", memcached.Addr, "-timeout", "1s", "-drain-delay", "200ms")
	conn := p.rls(t, insecure.NewCredentials())
	health := healthpb.NewHealthClient(conn)
	watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	state, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, state.Status)
	assert.Equal(t, "OK", answers(t.Context(), conn, "url_shorten", "ip", "203.0.113.1"))
	memcached.Pause()
	answer := make(chan string, 1)
	go func() { answer <- answers(t.Context(), conn, "url_shorten", "ip", "203.0.113.1") }()
	p.signal(t, syscall.SIGTERM)
	state, err = watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, state.Status)
	_, err = watch.Recv()
	assert.Equal(t, codes.Unavailable, grpcstatus.Code(err))
	assert.Equal(t, "OK", <-answer, "on_error: allow")
	require.NoError(t, p.Wait())
	assert.Contains(t, p.log.String(), "msg=stopped")
}
