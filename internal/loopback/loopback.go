// Package loopback finds addresses for servers that tests and load tests run.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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

// FreeAddr returns an address of loopback, host:port, without a listener. Another process
// may take it before the caller does.
func FreeAddr() (string, error) {
	var errs []error
	for range tries {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest+1))))
		if err == nil {
			return listener.Addr().String(), listener.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no free port on loopback in %d tries: %w", tries, errors.Join(errs...))
}
