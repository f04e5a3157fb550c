// Command regions limits users of two regions, each with a counterd and a Memcached server of its own.
package main

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/sony/gobreaker/v2"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/examples/internal/play"
)

const (
	maxWait = 2 * time.Second // for another region: a few times the round trip between yours
	pause   = time.Second     // before another region is asked again
	maxFail = 2               // calls in a row, until it is not asked
)

// region is a region as another one, or itself, reaches it.
type region struct {
	name    string
	client  *client.Client
	breaker *gobreaker.CircuitBreaker[wire.Decision]
}

func newRegion(name, url string) (*region, error) {
	c, err := client.New(client.Config{URL: url, Timeout: maxWait})
	if err != nil {
		return nil, err
	}
	breaker := gobreaker.NewCircuitBreaker[wire.Decision](gobreaker.Settings{
		Timeout: pause, ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= maxFail },
	})
	return &region{name, c, breaker}, nil
}

// service is what decides in one region.
type service struct {
	own *region
	all []*region // as reached from here, itself among them, in the same order in all regions
}

// homeOf returns the region where a user is counted. A hash spreads users: if you know where each is at home, take
// that.
func (s *service) homeOf(user string) *region {
	return s.all[xxhash.Sum64String(user)%uint64(len(s.all))]
}

// hit asks the user's home, and if that does not answer this region, by a lower limit. It returns what decided.
func (s *service) hit(ctx context.Context, user string) (allowed bool, by string, err error) {
	features := events.Features{"user": user}
	home := s.homeOf(user)
	decision, err := home.breaker.Execute(func() (wire.Decision, error) {
		return home.client.Hit(ctx, "home", features, 1)
	})
	if err == nil {
		return decision.Allowed, "home in " + home.name, nil
	}
	decision, err = s.own.client.Hit(ctx, "away", features, 1)
	return decision.Allowed, "away in " + s.own.name, err
}

func main() { play.Main(run) }
