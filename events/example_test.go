package events_test

import (
	"fmt"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

func Example() {
	rules, err := rulesfile.Parse([]byte(`
events:
  url_shorten:
    limits:
      - per: ip
        rate: [5/m, 100/d]
        allow: [10.0.0.0/8]
      - per: [ip, user]
        rate: 50/d
`))
	if err != nil {
		panic(err)
	}
	event, _ := rules.Event("url_shorten")
	features := events.Features{"ip": "192.0.2.1", "user": "42"}
	applied, _ := event.Apply(nil, features)
	for _, a := range applied {
		for _, limit := range a.Rule.LimitsOf(a.Counter.Feature) {
			fmt.Println(a.Counter.Feature, limit.Name, events.FormatRate(limit))
		}
	}
	// Output:
	// ip:192.0.2.1 ip-5-per-1m 5/m
	// ip:192.0.2.1 ip-100-per-24h 100/d
	// ip:192.0.2.1+user:42 ip+user-50-per-24h 50/d
}

func ExampleEvent_Counters() {
	event, _ := events.Example().Event("url_shorten")
	counters, _ := event.Counters(events.Features{"ip": "2001:db8::1", "user": "42"})
	for _, counter := range counters {
		fmt.Println(counter.Feature, counter.Retention)
	}
	// Output:
	// ip:2001:db8::/64 24h0m0s
	// user:42 24h0m0s
}

func ExampleParseRate() {
	limit, _ := events.ParseRate("100/15m")
	fmt.Println(limit.N, limit.Window, events.FormatRate(limit))
	// Output: 100 15m0s 100/15m
}

func ExampleThrottle_Ceiling() {
	fmt.Println(events.Throttle{Kind: events.Soft, Percent: 10}.Ceiling(19))
	// Output: 20
}
