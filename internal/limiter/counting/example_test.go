package counting_test

import (
	"context"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/memcache"
)

// Counting on the engine of buckets, in this process.
func Example() {
	counters := counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}))
	counter, err := events.Example().Events["url_shorten"].Counter(events.Features{"ip": "192.0.2.1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := counters.Increment(context.Background(), 3, time.Time{}, counter); err != nil {
		fmt.Println(err)
		return
	}
	count, err := counters.Count(context.Background(), counter, 24*time.Hour, time.Time{})
	fmt.Println(count.Count, count.Exact, err)
	// Output: 3 true <nil>
}
