// Package loopback finds addresses for servers that tests and load tests run.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are tried. They are below the ephemeral ports, which systems give to
// callers without a port of their own (32768 and up on Linux, 49152 on others). So no other
// process takes the port of a server that is down for a while, and no dial to it connects
// to itself.
const (
	lowest  = 10000
	highest = 32767
)

const tries = 100

// Block is how many ports a caller has: that of its address and those after it, for a program that listens at several.
// Every address is the first of a block, so those of two callers never overlap.
const Block = 4

// FreeAddr returns an address of loopback, host:port, without a listener: the first of a [Block] of ports. Until this
// process ends no other call returns it, of any process.
func FreeAddr() (string, error) {
	var errs []error
	for range tries {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+Block*rand.IntN((highest-lowest+1)/Block)))
		err := reserve(addr)
		if err == nil {
			return addr, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no free port on loopback in %d tries: %w", tries, errors.Join(errs...))
}

// reserve takes the address's port of UDP, which nothing else uses, until this process ends, and finds out whether that
// of TCP is free. A listener that only probes would keep another caller's server from its port, and be taken for it.
func reserve(addr string) error {
	reservation, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, reservation.Close())
	}
	mu.Lock()
	defer mu.Unlock()
	reserved = append(reserved, reservation)
	return listener.Close()
}

var (
	mu       sync.Mutex
	reserved []net.PacketConn
)
