package memcache_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// A fleet is the store of all processes that name the same servers.
func ExampleNewFleet() {
	fleet, err := memcache.NewFleet(context.Background(), memcache.Config{
		Servers: []string{"127.0.0.1:11211", "127.0.0.1:11212"},
		Timeout: 50 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer fleet.Close()
	counters := hierarchy.NewCounters(hierarchy.Config{Store: fleet})
	_ = counters
}

// The embedded store needs no servers and counts for this process alone.
func ExampleNewEmbedded() {
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: 64 << 20})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store})
	_ = counters
	fmt.Println(store.Evicted(), "counters evicted")
	// Output: 0 counters evicted
}
