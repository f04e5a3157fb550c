package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

var programs Programs

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "counterd-built-")
	if err != nil {
		panic(err)
	}
	programs = Programs{Memcached: found("memcached"), Redis: found("redis-server")}
	if programs.Counterd, err = build(context.Background(), folder); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(folder) // in a folder for what is temporary
		os.Exit(status)
	}))
}

// short is a few seconds of traffic, of what does not depend on the machine's speed.
func short(limits ...Limit) Config {
	return Config{
		Seed: 1, Limits: limits, Features: []int{2, 2}, Length: 6 * time.Second, Users: 200, UserHits: 1,
		Rounds: 1, Slice: 100 * time.Millisecond, Progress: io.Discard, alignedTo: time.Second,
	}
}

// runReal measures the contenders whose name matches.
func runReal(t *testing.T, names string, config Config) []*Row {
	t.Helper()
	var taking []Contender
	for _, c := range contenders(t.Context(), programs) {
		if regexp.MustCompile(names).MatchString(c.Name) {
			require.Empty(t, c.Missing, c.Name)
			assert.NotContains(t, c.Version+c.Where, "unknown", c.Name)
			taking = append(taking, c)
		}
	}
	require.NotEmpty(t, taking)
	rows, err := run(t.Context(), config, taking)
	require.NoError(t, err)
	for _, row := range rows {
		assert.True(t, row.started, "%s: %v", row.Name, row.Fault)
		assert.Positive(t, row.all().Admitted, row.Name)
		if strings.HasPrefix(row.Where, "Memcached") {
			assert.Positive(t, row.Bytes, row.Name)
		}
		assert.Positive(t, median(row.Rates), row.Name)
	}
	return rows
}

// Counterd keeps its promises on a real Memcached, with two processes of each kind.
func TestCounterdAdmitsNoneBeyondItsPromise(t *testing.T) {
	for _, row := range runReal(t, "^counterd", short(Limit{"second", 10, time.Second})) {
		assert.Zero(t, row.all().Broken, row.Name)
	}
}

func TestContendersOnRedis(t *testing.T) {
	require.NotEmpty(t, programs.Redis, "this test needs redis-server: apt-get install redis-server")
	config := short(Limit{"short", 6, 3 * time.Second})
	for _, row := range runReal(t, "redis_rate|sorted set|ulule|throttled|httprate|go-limiter", config) {
		switch row.Name {
		case "redis_rate, GCRA", "sorted set, by a Lua script":
			assert.Zero(t, row.all().Broken, row.Name)
		}
	}
}

// What is missing is named with the way to get it.
func TestMissingProgramsAreRows(t *testing.T) {
	missing := map[string]string{}
	for _, c := range contenders(t.Context(), Programs{Counterd: programs.Counterd, Memcached: programs.Memcached}) {
		if c.Missing != "" {
			missing[c.Name] = c.Missing
		}
	}
	assert.Contains(t, missing["envoyproxy/ratelimit, gRPC, Memcached"], "-ratelimit")
	assert.Contains(t, missing["gubernator, gRPC, TOKEN_BUCKET"], "-gubernator")
	assert.Contains(t, missing["redis_rate, GCRA"], "redis-server")
	assert.NotContains(t, missing, "counterd, in a program, sliding-window")
}

// What a fleet has open is closed with it, in the opposite order, and if it does not start.
func TestClosing(t *testing.T) {
	for _, fault := range []error{nil, errors.New("no port is free")} {
		var closed []string
		f, err := closing(func(_ context.Context, _ []Limit, c *closers) (*Fleet, error) {
			for _, name := range []string{"store", "instance"} {
				c.add(func() error { closed = append(closed, name); return nil })
			}
			return &Fleet{}, fault
		})(t.Context(), nil)
		require.ErrorIs(t, err, fault)
		if err == nil {
			require.Empty(t, closed)
			require.NoError(t, f.Close())
		}
		assert.Equal(t, []string{"instance", "store"}, closed)
	}
}

// The messages of gubernator's protocol, as its gubernator.proto numbers them.
func TestGubernatorsMessages(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	reset := time.Now().Add(time.Hour)
	asked := make(chan []byte, 1)
	fault := ""
	serve := func(_ any, stream grpc.ServerStream) error {
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		asked <- request
		var one []byte
		for number, value := range map[protowire.Number]uint64{1: 1, 2: 20, 4: uint64(reset.UnixMilli())} {
			one = protowire.AppendVarint(protowire.AppendTag(one, number, protowire.VarintType), value)
		}
		one = protowire.AppendString(protowire.AppendTag(one, 5, protowire.BytesType), fault)
		answer := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
		return stream.SendMsg(&answer)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(serve))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var c closers
	defer func() {
		require.NoError(t, c.close())
		server.Stop()
		require.NoError(t, <-served)
	}()
	caller, err := gubernatorAt(listener.Addr().String(), &c)
	require.NoError(t, err)

	limit := Limit{"minute", 20, time.Minute}
	answer, err := caller.hit(t.Context(), leakyBucket, limit, "alice")
	require.NoError(t, err)
	assert.False(t, answer.Allowed)
	assert.WithinDuration(t, reset, time.Now().Add(answer.RetryAfter), time.Minute)
	request, err := fieldsOf(<-asked)
	require.NoError(t, err)
	hit, err := fieldsOf(request.texts[1])
	require.NoError(t, err)
	assert.Equal(t, map[protowire.Number]uint64{3: 1, 4: 20, 5: 60_000, 6: leakyBucket, 8: 20}, hit.numbers)
	assert.Equal(t, map[protowire.Number][]byte{1: []byte("minute"), 2: []byte("alice")}, hit.texts)

	fault = "no such peer"
	_, err = caller.hit(t.Context(), leakyBucket, limit, "alice")
	assert.ErrorContains(t, err, fault)
}

// What cannot be measured ends the command before it starts anything.
func TestWrongUsage(t *testing.T) {
	for fault, args := range map[string][]string{
		"-only none matches no contender": {"-counterd", programs.Counterd, "-only", "none"},
		"leave -only out":                 {"-only", "gubernator", "-markdown", "page.md"},
		"error parsing regexp":            {"-only", "("},
		"flag provided but not defined":   {"-no-such-flag"},
	} {
		assert.ErrorContains(t, command(t.Context(), args, io.Discard, io.Discard), fault)
	}
}

func TestMemoryOfRedis(t *testing.T) {
	used, err := memoryIn("# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nmem_clients_normal:300\r\n")
	require.NoError(t, err)
	assert.EqualValues(t, 700, used)
	_, err = memoryIn("used_memory:1000\r\n")
	assert.ErrorContains(t, err, "mem_clients_normal")
}
