package wire

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/counterd/counterd/replication"
)

type Listed struct {
	Hash    replication.Hash
	Item    uint64
	Expires int64
}

var ErrNoKeys = errors.New("stub")

func ListKeys(ctx context.Context, conn net.Conn, idle time.Duration, yield func(Listed) error) error {
	return ErrNoKeys
}
