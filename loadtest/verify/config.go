// Package verify drives load and faults against servers of counterd, and holds every answer to
// the contract: by itself as it comes, and by an exact log of all of them in the end.
package verify

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/rlsclient"
)

const (
	// minSoak leaves time for a server to be killed and to come back.
	minSoak = 5 * time.Second
	// ownTimeout is what processes of our own are started with, instead of counterd's default: on a
	// busy machine it is not the store that is slow.
	ownTimeout = time.Second
)

// Stores that processes of our own are started with.
const (
	Memcached = "memcached"
	Embedded  = "embedded"
)

// ownRules are those of processes of our own, where there are no others.
const ownRules = `
headers: [ratelimit, x-ratelimit]
events:
  verify:
    retention: 24h
    limits:
      - {per: user, rate: [4/s, 10/3s, 24/10s, 60/m, 1000/d], on_error: deny}
      - {per: user, rate: 5/s, burst: 9, on_error: deny}
      - {per: [ip, user], rate: 6/s, queue: 7, on_error: deny}
      - {per: [ip, user], rate: [12/5s, 500/h], algorithm: sliding-log, on_error: deny}
      - {per: ip, concurrent: 14, lease: 3s, on_error: deny}
      - {per: user, rate: 14/4s, algorithm: fixed-window, on_error: deny}
      - {per: [ip, user], rate: 40/10s, algorithm: fixed-window, on_error: deny}
      - {per: ip, rate: [12/s, 50/10s], on_error: deny}
      - {per: [ip, user], rate: 20/8s, on_error: deny}
      - {per: [ip, user], rate: 900/h, calendar: Asia/Kathmandu, on_error: deny}
      - {per: ip, rate: 30/6s, shadow: true, on_error: deny}
`

// Config names the targets, the load, and its duration. Where a field is zero, its default holds.
type Config struct {
	URLs  []string               // the targets'; none: a fleet is started
	RLS   []string               // in their place, targets of Envoy's RateLimitService, at host:port: by the rules of the fleet
	Token func() (string, error) // nil: none is sent
	TLS   *tls.Config            // what https is spoken with; nil: the system's authorities, and no certificate
	Event string

	Fleet fleet.Config // its timeout is that below
	Store string       // of the fleet: Memcached or Embedded
	Chaos bool         // the fleet's servers are killed, and started again, empty

	Duration time.Duration
	Clients  int           // that call at once
	Features int           // that they call for
	Rate     float64       // calls of the Clients a second, a quarter as many of those beside them; 0: each when its call before was answered
	Skew     time.Duration // by which the targets' clocks may differ from this one's
	Timeout  time.Duration // of the targets: what took longer may not have been rolled back
	Seed     uint64
	// Soak holds the processes of the fleet to their goroutines, memory and response times, too. It
	// takes at least minSoak.
	Soak     bool
	Progress progress.Progress

	maxEvents int               // that a log may hold; when it is full, a new one begins
	maxSlack  time.Duration     // that a busy machine may add to an answer
	transport http.RoundTripper // tests' own; nil: one that the TLS applies to
	askers    []rlsclient.Asker // tests' own of RLS; none: clients
}

// own reports whether a fleet is started.
func (c Config) own() bool { return len(c.URLs)+len(c.RLS) == 0 }

// Filled returns the config with defaults where it has none.
func (c Config) Filled() Config {
	clients, processes, servers, replicas := 16, 2, 2, 1
	switch {
	case c.Store == Embedded:
		processes, servers, c.Fleet.Servers = 1, 0, 0
	case c.Soak:
		clients, servers, replicas = 32, 3, 2
	}
	c.Event = cmp.Or(c.Event, "verify") // of ownRules
	c.Duration = cmp.Or(c.Duration, 30*time.Second)
	c.Clients = cmp.Or(c.Clients, clients)
	c.Features = cmp.Or(c.Features, 40)
	c.maxEvents = cmp.Or(c.maxEvents, 1_000_000)
	c.Skew = cmp.Or(c.Skew, 500*time.Millisecond)
	c.maxSlack = cmp.Or(c.maxSlack, maxSlack)
	if !c.own() {
		c.Timeout = cmp.Or(c.Timeout, 100*time.Millisecond) // counterd's
		return c
	}
	c.Timeout, c.Store = cmp.Or(c.Timeout, ownTimeout), cmp.Or(c.Store, Memcached)
	f := &c.Fleet
	f.Timeout, f.Rules = c.Timeout, cmp.Or(f.Rules, ownRules)
	f.Processes, f.Servers, f.Replicas = cmp.Or(f.Processes, processes), cmp.Or(f.Servers, servers), cmp.Or(f.Replicas, replicas)
	return c
}

// Check finds all that is wrong with the config.
func (c Config) Check() error {
	c = c.Filled()
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	within := func(flag string, n, most int) { fault(n < 0 || n > most, "%s is 1 to %d, not %d", flag, most, n) }
	within("-clients", c.Clients, 10_000)
	within("-features", c.Features, 1_000_000)
	within("-processes", c.Fleet.Processes, 64)
	within("-servers", c.Fleet.Servers, 64)
	fault(c.Duration < 0, "-duration is more than 0, not %s", c.Duration)
	fault(c.Soak && c.Duration < minSoak, "-soak is at least %s, not %s", minSoak, c.Duration)
	fault(c.Rate < 0, "-rate is at least 0, not %g", c.Rate)
	fault(c.Skew < 0, "-skew is at least 0, not %s", c.Skew)
	fault(c.Timeout < 0, "-timeout is more than 0, not %s", c.Timeout)
	fault(!events.ValidName(c.Event), "-event is not the name of an event")
	for _, target := range c.URLs {
		base, err := url.Parse(target)
		fault(err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https",
			"-url is written like http://127.0.0.1:8080")
	}
	if !c.own() {
		return errors.Join(faults...)
	}
	f, programs := c.Fleet, []string{c.Fleet.Counterd}
	switch c.Store {
	case Memcached:
		programs = append(programs, f.Memcached)
		fault(f.Replicas < 1 || f.Replicas > f.Servers, "-replicas is 1 to the number of -servers, %d, not %d", f.Servers, f.Replicas)
	case Embedded:
		fault(f.Processes > 1, "-store embedded is each process's own: -processes 1")
		fault(c.Chaos, "-chaos kills Memcached servers: not with -store embedded")
		fault(f.Replicas != 1, "-replicas is for -store memcached")
	default:
		fault(true, "-store is memcached or embedded, not %q", c.Store)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
