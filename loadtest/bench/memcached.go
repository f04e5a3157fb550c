package bench

import (
	"context"
	"fmt"

	"github.com/counterd/counterd/loadtest/memcached"
)

const (
	// memcachedMegabytes is more than all rows fill: an eviction fails the run.
	memcachedMegabytes = 2048
	memcachedThreads   = 2
)

func startMemcached(ctx context.Context, binary string) (*memcached.Server, error) {
	return memcached.Start(ctx, binary, "-t", fmt.Sprint(memcachedThreads), "-m", fmt.Sprint(memcachedMegabytes), "-c", "2048")
}
