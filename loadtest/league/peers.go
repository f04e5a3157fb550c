package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/counterd/counterd/loadtest/child"
)

// builtFrom returns the version of the module that a program of Go was built from.
func builtFrom(program string) string {
	if program == "" {
		return ""
	}
	build, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown version"
	}
	return cmp.Or(build.Main.Version, "unknown version")
}

// rateLimitContenders are envoyproxy/ratelimit, on each of its stores.
func rateLimitContenders(p Programs, redisVersion, memcachedVersion string) []Contender {
	list := []Contender{
		{Name: "envoyproxy/ratelimit, gRPC, Redis", Where: "Redis " + redisVersion, Start: rateLimit(p, startRedis, onItsRedis)},
		{
			Name: "envoyproxy/ratelimit, gRPC, Memcached", Where: "Memcached " + memcachedVersion,
			Start: rateLimit(p, startMemcached, onItsMemcached),
		},
	}
	for i := range list {
		list[i].Promise, list[i].Version = Aligned, builtFrom(p.RateLimit)
		if p.RateLimit == "" {
			list[i].Missing = "name its program with -ratelimit"
		}
	}
	if p.Redis == "" {
		list[0].Missing = "install redis-server, or name it with -redis"
	}
	return list
}

// Variables of its stores.
func onItsRedis(addr string) []string {
	pool := fmt.Sprint("REDIS_POOL_SIZE=", callers/instances)
	return []string{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "REDIS_URL=" + addr, pool}
}

func onItsMemcached(addr string) []string {
	return []string{"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + addr, "MEMCACHE_MAX_IDLE_CONNS=64"}
}

// after returns the address with a port that is higher by so much: a caller of loopback.FreeAddr has several.
func after(addr string, by uint16) string {
	listen := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(listen.Addr(), listen.Port()+by).String()
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

type startStore func(context.Context, Programs, *closers) (addr string, memory func() (int64, error), err error)

// rateLimit starts processes of envoyproxy/ratelimit. Each listens for gRPC at its address, and at the two after it.
func rateLimit(p Programs, store startStore, backend func(addr string) []string) start {
	return closing(func(ctx context.Context, limits []Limit, c *closers) (*Fleet, error) {
		storeAddr, memory, err := store(ctx, p, c)
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "counterd-league")
		if err != nil {
			return nil, err
		}
		c.add(func() error { return os.RemoveAll(dir) })
		config := filepath.Join(dir, "league", "config")
		if err := os.MkdirAll(config, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(config, "league.yaml"), []byte(descriptorsOf(limits)), 0o600); err != nil {
			return nil, err
		}
		f := &Fleet{Memory: memory, Buffers: true}
		for range instances {
			server, err := child.Start(ctx, child.Program{
				Path: p.RateLimit,
				Args: func(string) []string { return nil },
				Env: func(addr string) []string {
					return append([]string{
						"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + portOf(addr), "HOST=127.0.0.1", "PORT=" + portOf(after(addr, 1)),
						"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + portOf(after(addr, 2)), "LOG_LEVEL=error", "USE_STATSD=false",
						"DISABLE_STATS=true", "RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=league", "RUNTIME_WATCH_ROOT=false",
					}, backend(storeAddr)...)
				},
				Ready: listens,
			})
			if err != nil {
				return nil, err
			}
			c.add(server.Stop)
			instance, err := rlsAt(server.Addr, c)
			if err != nil {
				return nil, err
			}
			f.Instances = append(f.Instances, instance)
		}
		return f, nil
	})
}

// Algorithms of gubernator, as its protocol numbers them.
const (
	tokenBucket = iota
	leakyBucket
)

func gubernatorContenders(p Programs) []Contender {
	list := []Contender{
		{Name: "gubernator, gRPC, TOKEN_BUCKET", Promise: Anchored, Start: gubernator(p, tokenBucket)},
		{Name: "gubernator, gRPC, LEAKY_BUCKET", Promise: Bucket, Start: gubernator(p, leakyBucket)},
	}
	for i := range list {
		list[i].Version, list[i].Where = builtFrom(p.Gubernator), "its processes' memory"
		if p.Gubernator == "" {
			list[i].Missing = "name its program with -gubernator"
		}
	}
	return list
}

// gubernator starts processes that know each other. Each listens at its address for gRPC, and at the two after it.
func gubernator(p Programs, algorithm uint64) start {
	return closing(func(ctx context.Context, _ []Limit, c *closers) (*Fleet, error) {
		var processes []*child.Child
		known := ""
		for i := range instances {
			// Its members have one IP address each. Linux has all of 127.0.0.0/8.
			member := func(addr string) string { return fmt.Sprintf("127.0.0.%d:%s", i+1, portOf(after(addr, 2))) }
			server, err := child.Start(ctx, child.Program{
				Path: p.Gubernator,
				Args: func(string) []string { return nil },
				Env: func(addr string) []string {
					return []string{
						"GUBER_GRPC_ADDRESS=" + addr, "GUBER_ADVERTISE_ADDRESS=" + addr, "GUBER_HTTP_ADDRESS=" + after(addr, 1),
						"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS=" + member(addr),
						"GUBER_MEMBERLIST_BIND_ADDRESS=" + member(addr), "GUBER_MEMBERLIST_KNOWN_NODES=" + cmp.Or(known, member(addr)),
						"GUBER_MEMBERLIST_NODE_NAME=" + addr, "GUBER_LOG_LEVEL=error", "GUBER_CACHE_SIZE=1000000",
					}
				},
				Ready: listens,
			})
			if err != nil {
				return nil, err
			}
			c.add(func() error { server.Kill(); return nil }) // it ends by itself after a minute only
			known = member(server.Addr)
			processes = append(processes, server)
		}
		f := &Fleet{Memory: func() (int64, error) { return residentOf(processes) }}
		for _, process := range processes {
			caller, err := gubernatorAt(process.Addr, c)
			if err != nil {
				return nil, err
			}
			if err := caller.await(ctx); err != nil {
				return nil, err
			}
			f.Instances = append(f.Instances, instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
				return caller.hit(ctx, algorithm, l, feature)
			}))
		}
		return f, nil
	})
}

// gubernatorCaller speaks the service pb.gubernator.V1. Its few messages are written here, since the package of its
// client links the whole server.
type gubernatorCaller struct{ conn *grpc.ClientConn }

func gubernatorAt(addr string, c *closers) (*gubernatorCaller, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		return nil, err
	}
	c.add(conn.Close)
	return &gubernatorCaller{conn}, nil
}

// rawCodec passes messages on that are encoded already.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// await waits until the process knows all.
func (g *gubernatorCaller) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var answer []byte
		err := g.conn.Invoke(ctx, "/pb.gubernator.V1/HealthCheck", &[]byte{}, &answer)
		if err == nil {
			var health fields
			if health, err = fieldsOf(answer); err == nil && health.numbers[3] == instances {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gubernator's processes do not find each other: %w", errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (g *gubernatorCaller) hit(ctx context.Context, algorithm uint64, l Limit, feature string) (Answer, error) {
	var one []byte
	one = protowire.AppendString(protowire.AppendTag(one, 1, protowire.BytesType), l.Name)
	one = protowire.AppendString(protowire.AppendTag(one, 2, protowire.BytesType), feature)
	for number, value := range map[protowire.Number]uint64{ // hits, limit, duration, algorithm, burst
		3: 1, 4: uint64(l.N), 5: uint64(l.Window.Milliseconds()), 6: algorithm, 8: uint64(l.N),
	} {
		one = protowire.AppendVarint(protowire.AppendTag(one, number, protowire.VarintType), value)
	}
	request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
	var answer []byte
	if err := g.conn.Invoke(ctx, "/pb.gubernator.V1/GetRateLimits", &request, &answer); err != nil {
		return Answer{}, err
	}
	all, err := fieldsOf(answer)
	if err != nil {
		return Answer{}, err
	}
	response, err := fieldsOf(all.texts[1])
	if err != nil {
		return Answer{}, err
	}
	if fault := response.texts[5]; len(fault) > 0 {
		return Answer{}, fmt.Errorf("gubernator: %s", fault)
	}
	reset := time.UnixMilli(int64(response.numbers[4]))
	return Answer{Allowed: response.numbers[1] == 0, RetryAfter: max(time.Until(reset), 0)}, nil
}

// fields are the fields of a message, the last of each number.
type fields struct {
	numbers map[protowire.Number]uint64
	texts   map[protowire.Number][]byte
}

func fieldsOf(message []byte) (fields, error) {
	f := fields{map[protowire.Number]uint64{}, map[protowire.Number][]byte{}}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return f, protowire.ParseError(n)
		}
		message = message[n:]
		switch kind {
		case protowire.VarintType:
			f.numbers[number], n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			f.texts[number], n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return f, protowire.ParseError(n)
		}
		message = message[n:]
	}
	return f, nil
}
