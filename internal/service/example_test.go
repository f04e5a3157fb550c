package service_test

import (
	"context"
	"fmt"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// A protocol looks an event up, and has the service decide.
func Example() {
	rules, err := rulesfile.Parse([]byte("events: {search: {limits: [{per: ip, rate: 3/d}]}}"))
	if err != nil {
		panic(err)
	}
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
	if err != nil {
		panic(err)
	}
	s, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Limiter:  decider,
		Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store})),
	})
	if err != nil {
		panic(err)
	}
	event, err := s.Event("search")
	if err != nil {
		panic(err) // the rules in force do not name it
	}
	for range 2 {
		decision, err := s.Hit(context.Background(), event, events.Features{"ip": "192.168.0.1"}, 2)
		if err != nil {
			panic(err)
		}
		fmt.Println(service.OutcomeOf(&decision), decision.Limits[0].Name)
	}
	// Output:
	// allowed ip-3-per-24h
	// denied ip-3-per-24h
}
