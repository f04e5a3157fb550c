package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// rpcConns are the connections of a row: a proxy has one for each of its workers.
const rpcConns = 4

func rpcRows() []row {
	one, four := rpcs{keys: []string{"a"}}, rpcs{keys: []string{"a", "b", "c", "d"}}
	return []row{
		{id: "D1", name: "the peer, RPC, one descriptor, 64 streams", callers: 64, prepare: one.prepare, ofPeer: true},
		{id: "D2", name: "counterd, RPC, one descriptor, 64 streams", callers: 64, prepare: one.prepare, against: []string{"D1"}},
		{id: "D3", name: "the peer, RPC, four descriptors, 64 streams", callers: 64, prepare: four.prepare, ofPeer: true},
		{id: "D4", name: "counterd, RPC, four descriptors, 64 streams", callers: 64, prepare: four.prepare, against: []string{"D2", "D3"}},
	}
}

const (
	rpcDomain = "bench"
	rpcLimit  = 1_000_000_000
)

// rpcConfig is the configuration that all rate limit services have.
func rpcConfig() string {
	config := "domain: " + rpcDomain + "\ndescriptors:\n"
	for _, key := range []string{"a", "b", "c", "d"} {
		config += fmt.Sprintf("  - {key: %s, rate_limit: {unit: hour, requests_per_unit: %d}}\n", key, rpcLimit)
	}
	return config
}

// rpcs are calls of a rate limit service, with descriptors of random values, each of which has a counter of its own.
type rpcs struct {
	keys []string

	row      row
	slice    time.Duration
	addr     string
	because  func(error) error // adds to the error of a call that the server has ended
	conns    []*rpcConn
	messages [][]byte
	admitted []atomic.Int64 // by value, of all slices
}

func (h rpcs) prepare(_ context.Context, s *stage, r row) (measured *subject, err error) {
	h.row, h.slice, h.admitted = r, s.config.Duration, make([]atomic.Int64, s.config.sizes.addresses)
	for i := range h.admitted {
		message, err := proto.Marshal(h.request(i))
		if err != nil {
			return nil, err
		}
		h.messages = append(h.messages, grpcMessage(message))
	}
	measured = &subject{begin: h.begin, end: h.hangUp, verify: h.verify}
	if r.ofPeer {
		h.addr, h.because, measured.elsewhere = s.config.Peer, func(err error) error { return err }, true
		return measured, nil
	}
	server := s.fleet.Processes[0]
	h.addr, h.because = server.RLS, server.Because
	measured.server, measured.memcached = server.Child, s.memcached()
	return measured, nil
}

// request returns the request with the i-th value.
func (h *rpcs) request(i int) *rlsv3.RateLimitRequest {
	request := &rlsv3.RateLimitRequest{Domain: rpcDomain}
	for _, key := range h.keys {
		request.Descriptors = append(request.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: h.row.eventName() + "/" + address(i)}},
		})
	}
	return request
}

// begin opens the connections of a slice, with calls under way on all of their streams.
func (h *rpcs) begin() (steps []step, err error) {
	for range rpcConns {
		c, err := dialRPC(h.addr, time.Now().Add(h.slice+answerTimeout))
		if err != nil {
			return nil, h.because(err)
		}
		h.conns = append(h.conns, c)
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		call := func() error {
			i := random.IntN(len(h.messages))
			return c.send(i, h.messages[i])
		}
		for range h.row.callers / rpcConns {
			err = errors.Join(err, call())
		}
		if err := errors.Join(err, c.out.Flush()); err != nil {
			return nil, h.because(err)
		}
		steps = append(steps, func() (calls int, err error) {
			for calls == 0 || c.in.Buffered() > 0 {
				if err = h.receive(c); err == nil {
					calls++
					err = call()
				}
				if err != nil {
					return calls, h.because(err)
				}
			}
			if err := c.out.Flush(); err != nil {
				return calls, h.because(err)
			}
			return calls, nil
		})
	}
	return steps, nil
}

// receive takes in the next answer.
func (h *rpcs) receive(c *rpcConn) error {
	call, err := c.receive()
	if err == nil {
		err = checkAnswer(call.answer, len(h.keys))
	}
	if err == nil {
		h.admitted[call.request].Add(1)
	}
	return err
}

// hangUp takes in what is under way, and closes the connections.
func (h *rpcs) hangUp() (err error) {
	for _, c := range h.conns {
		for err == nil && len(c.calls) > 0 {
			err = h.receive(c)
		}
		err = errors.Join(err, c.Close())
	}
	h.conns = nil
	return err
}

// verify compares the admitted calls with what remains of the limits. Of the peer it finds only that it counts: one without
// its store may admit all.
func (h *rpcs) verify(ctx context.Context) (err error) {
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := rlsv3.NewRateLimitServiceClient(conn)
	return verifySome(h.admitted, func(i int) (int64, error) {
		look := h.request(i)
		for _, d := range look.Descriptors {
			if !h.row.ofPeer {
				d.HitsAddend = wrapperspb.UInt64(0)
			}
		}
		answer, err := client.ShouldRateLimit(ctx, look)
		if err != nil {
			return 0, err
		}
		count := int64(-1)
		for _, status := range answer.Statuses {
			used := rpcLimit - int64(status.LimitRemaining)
			if h.row.ofPeer && used > 1 {
				used = h.admitted[i].Load()
			}
			if count >= 0 && used != count {
				return 0, fmt.Errorf("of one value's descriptors one has counted %d, and another %d", count, used)
			}
			count = used
		}
		return count, nil
	})
}
