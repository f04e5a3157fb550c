package arrival_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
)

func ExampleOpen() {
	profile, err := arrival.Parse("ramp:0-2000", 100*time.Millisecond)
	if err != nil {
		fmt.Println(err)
		return
	}
	var slow atomic.Int64
	tally := arrival.Open{
		Due:      profile.Due,
		Arrivals: arrival.Count(profile, 100*time.Millisecond),
		InFlight: 10,
		Do: func(a arrival.Arrival) {
			// Here a request is made.
			if time.Since(a.Due) > time.Minute {
				slow.Add(1)
			}
		},
	}.Run(context.Background())
	fmt.Println(tally.Arrived, "requests,", slow.Load(), "of them slow")
	// Output: 100 requests, 0 of them slow
}
