package hierarchy_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// Five lines count in a program of one's own. With a memcache.Fleet for a store,
// all processes count together.
func Example() {
	counters := hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})})
	event := &events.Event{Name: "url_shorten"}
	counter, _ := event.Counter(events.Features{"ip": "192.168.0.1"})
	_, _ = counters.Increment(context.Background(), 1, time.Time{}, counter) // the zero time is now
	day, err := counters.Count(context.Background(), counter, 24*time.Hour, time.Time{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counter.Feature, "did it", day.Count, "time in a day")
	// Output: ip:192.168.0.1 did it 1 time in a day
}

// The cover of the notes' example: a day at 23:30:33.
func ExampleCoverOf() {
	day := hierarchy.WindowAt(time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC), 24*time.Hour)
	cover := hierarchy.CoverOf(day, hierarchy.Second, hierarchy.Day)
	for _, run := range cover {
		first := time.Unix(hierarchy.Bucket{Level: run.Level, Number: run.First}.First(), 0).UTC()
		fmt.Printf("%2d %ss from %s\n", run.Len(), run.Level, first.Format("Jan 02 15:04:05"))
	}
	fmt.Println(cover.Len(), "buckets")
	// Output:
	// 26 seconds from Mar 13 23:30:34
	// 29 minutes from Mar 13 23:31:00
	// 23 hours from Mar 14 00:00:00
	// 30 minutes from Mar 14 23:00:00
	// 34 seconds from Mar 14 23:30:00
	// 142 buckets
}
