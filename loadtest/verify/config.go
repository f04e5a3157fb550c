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
	"github.com/counterd/counterd/loadtest/progress"
)

// Defaults of a Config.
const (
	DefaultDuration  = 30 * time.Second
	DefaultClients   = 16
	DefaultFeatures  = 40
	DefaultMaxEvents = 1_000_000
	DefaultSkew      = 500 * time.Millisecond
	DefaultProcesses = 2
	DefaultServers   = 2
	DefaultEvent     = "verify" // of OwnRules
	// MinSoak leaves time for a server to be killed and to come back.
	MinSoak = 5 * time.Second
	// DefaultTimeout is what counterd has, OwnTimeout what processes of our own are started
	// with: on a busy machine it is not the store that is slow.
	DefaultTimeout = 100 * time.Millisecond
	OwnTimeout     = time.Second
)

// Stores that processes of our own are started with.
const (
	Memcached = "memcached"
	Embedded  = "embedded"
)

// OwnRules are those of processes of our own, where there are no others.
const OwnRules = `
headers: [ratelimit, x-ratelimit]
events:
  verify:
    retention: 24h
    limits:
      - {per: user, rate: [4/s, 10/3s, 24/10s, 60/m, 1000/d], on_error: deny}
      - {per: ip, rate: [12/s, 50/10s], on_error: deny}
      - {per: [ip, user], rate: 20/8s, on_error: deny}
      - {per: ip, rate: 30/6s, shadow: true, on_error: deny}
`

// Config names the targets, the load, and its duration.
type Config struct {
	URLs  []string               // the targets'; none: Own is started
	Token func() (string, error) // nil: none is sent
	TLS   *tls.Config            // what https is spoken with; nil: the system's authorities, and no certificate
	Event string                 // empty: DefaultEvent
	Own   Own

	Duration  time.Duration // 0: DefaultDuration
	Clients   int           // that call at once; 0: DefaultClients
	Features  int           // that they call for; 0: DefaultFeatures
	Rate      float64       // calls of the Clients a second, a quarter as many of those beside them; 0: each when its call before was answered
	MaxEvents int           // that the log may hold; 0: DefaultMaxEvents
	Skew      time.Duration // by which the targets' clocks may differ from this one's; 0: DefaultSkew
	// Timeout is that of the targets: what took longer may not have been rolled back. 0:
	// DefaultTimeout, and OwnTimeout for Own.
	Timeout time.Duration
	Seed    uint64
	// Soak goes on with a new log when one is full, and holds the processes of Own to their
	// goroutines, memory and response times, too. It takes at least MinSoak.
	Soak     bool
	Progress progress.Progress

	maxSlack time.Duration // that a busy machine may add to an answer; 0: maxSlack

	transport http.RoundTripper // tests' own; nil: one that the TLS applies to
}

// Own is what is started where there are no targets.
type Own struct {
	Counterd  string // the program
	Memcached string // the program
	Store     string // empty: Memcached
	Processes int    // 0: DefaultProcesses, or 1 on the embedded store
	Servers   int    // 0: DefaultServers
	Replicas  int    // 0: 1
	Protocol  string // empty: counterd's default
	Rules     string // the text of the rules; empty: OwnRules
	Chaos     bool   // its servers are killed, and started again, empty
}

// Check finds all that is wrong with the config.
func (c Config) Check() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.Duration < 0, "-duration is more than 0, not %s", c.Duration)
	fault(c.Soak && c.duration() < MinSoak, "-soak is at least %s, not %s", MinSoak, c.Duration)
	fault(c.Clients < 0 || c.Clients > 10_000, "-clients is 1 to 10000, not %d", c.Clients)
	fault(c.Features < 0 || c.Features > 1_000_000, "-features is 1 to 1000000, not %d", c.Features)
	fault(c.Rate < 0, "-rate is at least 0, not %g", c.Rate)
	fault(c.MaxEvents < 0 || c.MaxEvents > 1<<30, "-max-events is 1 to %d, not %d", 1<<30, c.MaxEvents)
	fault(c.Skew < 0, "-skew is at least 0, not %s", c.Skew)
	fault(c.Timeout < 0, "-timeout is more than 0, not %s", c.Timeout)
	fault(!events.ValidName(c.event()), "-event is not the name of an event")
	for _, target := range c.URLs {
		base, err := url.Parse(target)
		fault(err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https",
			"-url is written like http://127.0.0.1:8080")
	}
	if len(c.URLs) > 0 {
		fault(c.Soak, "-soak watches processes that were started here: not with -url")
		fault(c.Own.Chaos, "-chaos kills servers that were started here: not with -url")
		return errors.Join(faults...)
	}
	return errors.Join(append(faults, c.Own.check())...)
}

func (o Own) check() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Processes < 0 || o.Processes > 64, "-processes is 1 to 64, not %d", o.Processes)
	fault(o.Servers < 0 || o.Servers > 64, "-servers is 1 to 64, not %d", o.Servers)
	programs := []string{o.Counterd}
	switch o.store() {
	case Memcached:
		programs = append(programs, o.Memcached)
		fault(o.replicas() < 1 || o.replicas() > o.servers(), "-replicas is 1 to the number of -servers, %d, not %d", o.servers(), o.replicas())
	case Embedded:
		fault(o.processes() > 1, "-store embedded is each process's own: -processes 1")
		fault(o.Chaos, "-chaos kills Memcached servers: not with -store embedded")
		fault(o.replicas() != 1, "-replicas is for -store memcached")
	default:
		fault(true, "-store is memcached or embedded, not %q", o.Store)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (o Own) store() string { return cmp.Or(o.Store, Memcached) }

func (o Own) processes() int {
	if o.store() == Embedded {
		return cmp.Or(o.Processes, 1)
	}
	return cmp.Or(o.Processes, DefaultProcesses)
}

func (o Own) servers() int {
	if o.store() == Embedded {
		return 0
	}
	return cmp.Or(o.Servers, DefaultServers)
}

func (o Own) replicas() int { return cmp.Or(o.Replicas, 1) }

// lines reports whether all hits on a counter are decided in one line.
func (o Own) lines() bool { return o.processes() == 1 && o.replicas() == 1 }

func (o Own) rules() string { return cmp.Or(o.Rules, OwnRules) }

func (c Config) own() bool               { return len(c.URLs) == 0 }
func (c Config) event() string           { return cmp.Or(c.Event, DefaultEvent) }
func (c Config) duration() time.Duration { return cmp.Or(c.Duration, DefaultDuration) }
func (c Config) clients() int            { return cmp.Or(c.Clients, DefaultClients) }
func (c Config) features() int           { return cmp.Or(c.Features, DefaultFeatures) }
func (c Config) maxEvents() int          { return cmp.Or(c.MaxEvents, DefaultMaxEvents) }
func (c Config) slack() time.Duration    { return cmp.Or(c.maxSlack, maxSlack) }
func (c Config) skew() time.Duration     { return cmp.Or(c.Skew, DefaultSkew) }

func (c Config) timeout() time.Duration {
	if c.own() {
		return cmp.Or(c.Timeout, OwnTimeout)
	}
	return cmp.Or(c.Timeout, DefaultTimeout)
}
