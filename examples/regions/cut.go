package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/examples/internal/play"
)

// link is the way to another region. While it is cut, requests get lost on it.
type link struct {
	proxy http.Handler
	cut   atomic.Bool
}

func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !l.cut.Load() {
		l.proxy.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done() // the client no longer waits
}

// run starts two regions, and cuts the link from us to eu.
func run(s *play.Stage) {
	eu := s.Counterd("-rules", "regions/eu.yaml", "-memcached", s.Memcached("eu.sock")).URL
	us := s.Counterd("-rules", "regions/us.yaml", "-memcached", s.Memcached("us.sock")).URL
	to, err := url.Parse(eu)
	s.Check(err)
	link := &link{proxy: httputil.NewSingleHostReverseProxy(to)}
	inEU, inUS := newService(s, 0, eu, us), newService(s, 1, s.Serve(link), us)

	fmt.Println("# shares: of 10 an hour 6 are for eu, and 4 for us")
	share(s, inEU, "ada", 9)
	share(s, inUS, "ada", 9)

	bob, eve := atHome(inEU, "eu", "b"), atHome(inEU, "eu", "e")
	fmt.Println("# home: 10 an hour, from wherever")
	hits(s, inUS, bob, 4)
	hits(s, inEU, bob, 4)
	hits(s, inUS, bob, 4)

	fmt.Println("# the link is cut: us decides by its own limit for users at home elsewhere, eu goes on")
	hits(s, inUS, eve, 3)
	link.cut.Store(true)
	hits(s, inUS, eve, 5)
	hits(s, inEU, eve, 9)

	fmt.Println("# the link is back: us asks eu again, which has not counted what us has admitted")
	link.cut.Store(false)
	for inUS.all[0].breaker.State() == gobreaker.StateOpen && s.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	hits(s, inUS, eve, 3)
}

// newService returns the service of the region at that place of the list.
func newService(s *play.Stage, own int, eu, us string) *service {
	of := &service{}
	for i, url := range []string{eu, us} {
		r, err := newRegion([]string{"eu", "us"}[i], url)
		s.Check(err)
		s.Stop(r.client.Close)
		of.all = append(of.all, r)
	}
	of.own = of.all[own]
	return of
}

// atHome returns a user with that initial at home in the region.
func atHome(s *service, region, initial string) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint(initial, i); s.homeOf(user).name == region {
			return user
		}
	}
}

// share hits by the region's share, and prints how many are admitted.
func share(s *play.Stage, in *service, user string, n int) {
	admitted := 0
	for range n {
		decision, err := in.own.client.Hit(s.Context(), "share", events.Features{"user": user}, 1)
		s.Check(err)
		if decision.Allowed {
			admitted++
		}
	}
	fmt.Printf("%s in %s: %d of %d\n", user, in.own.name, admitted, n)
}

// hits prints how many of n hits in a region are admitted, and by what.
func hits(s *play.Stage, in *service, user string, n int) {
	admitted, last := 0, ""
	for range n {
		allowed, by, err := in.hit(s.Context(), user)
		s.Check(err)
		if allowed {
			admitted++
		}
		if by != last && last != "" {
			s.Check(fmt.Errorf("hits are decided by %s, and then by %s", last, by))
		}
		last = by
	}
	fmt.Printf("%s in %s: %d of %d, by %s\n", user, in.own.name, admitted, n, last)
}
