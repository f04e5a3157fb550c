package plan

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// What is assumed where nothing else is said.
const (
	DefaultPeak      = 3
	DefaultReplicas  = 2
	DefaultProcesses = 2
	DefaultMemory    = 4 << 30
	DefaultCores     = 4 // Memcached's threads, unless it is told otherwise
	DefaultBusy      = 0.5
	DefaultHeadroom  = 0.25
)

// Config is what to plan for. Either Features and Events are given, or Log.
type Config struct {
	Rules *events.Rules
	Event string // only this one; "": all that the rules name
	// Features are how many do an event each day, and Events how often they do it, all
	// together. Each event has its own, which may be the same.
	Features, Events Amounts
	Peak             float64 // how much more comes in the busiest time than on the average; 0: DefaultPeak
	Sessions         Sessions
	// Log is who did the event, and when, in the order of time. The rules have one event
	// then, or Event names it. It is read once.
	Log iter.Seq2[time.Time, events.Features]

	Replicas  int           // copies of each counter; 0: DefaultReplicas
	Processes int           // of counterd, among which hits are spread; 0: DefaultProcesses
	Grace     time.Duration // 0: hierarchy.DefaultGrace
	Server    Server
	Costs     Costs // zero: DefaultCosts

	filled time.Duration // for how long the servers have been filled; 0: for longer than buckets live
}

// Server is a machine for Memcached.
type Server struct {
	Memory int64   `json:"memory_bytes"` // that Memcached may take as a whole; 0: DefaultMemory
	Cores  float64 `json:"cores"`        // 0: DefaultCores
	Busy   float64 `json:"busy"`         // the most of their time that may be taken at the peak, up to 1; 0: DefaultBusy
	// Headroom is what of the items' memory is kept free beside it: for items that have
	// expired and not been collected yet, and for what the plan does not know.
	Headroom float64 `json:"headroom"` // negative: none; 0: DefaultHeadroom
}

// Amounts are numbers for all counters, for those per some kinds, or for those of one
// event: under "", "ip", "ip+user", "event/ip" or, for all of an event, "event/".
type Amounts map[string]float64

// ParseAmounts reads amounts, as in 1000000 or 1000000,ip=300000,login/ip=20000.
func ParseAmounts(text string) (Amounts, error) {
	amounts := Amounts{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(part, "=")
		if !named {
			name, number = "", part
		}
		var amount float64
		if _, err := fmt.Sscanf(number+"\n", "%g\n", &amount); err != nil || !(amount > 0 && amount <= 1e15) {
			return nil, fmt.Errorf("%q is not a number above 0, of at most 1e15", number)
		}
		if _, twice := amounts[name]; twice {
			return nil, fmt.Errorf("%q is given twice", part)
		}
		amounts[name] = amount
	}
	return amounts, nil
}

// of returns the amount that is closest to what is asked for.
func (a Amounts) of(event, per string) (float64, bool) {
	for _, name := range []string{event + "/" + per, per, event + "/", ""} {
		if amount, found := a[name]; found {
			return amount, true
		}
	}
	return 0, false
}

// withDefaults returns the config with all that is left out.
func (c Config) withDefaults() Config {
	c.Peak = cmp.Or(c.Peak, DefaultPeak)
	c.Replicas = cmp.Or(c.Replicas, DefaultReplicas)
	c.Processes = cmp.Or(c.Processes, DefaultProcesses)
	c.Grace = cmp.Or(c.Grace, hierarchy.DefaultGrace)
	c.Server.Memory = cmp.Or(c.Server.Memory, DefaultMemory)
	c.Server.Cores = cmp.Or(c.Server.Cores, DefaultCores)
	c.Server.Busy = cmp.Or(c.Server.Busy, DefaultBusy)
	c.Server.Headroom = max(cmp.Or(c.Server.Headroom, DefaultHeadroom), 0)
	c.Costs = c.Costs.withDefaults()
	return c
}

// Check returns all that is wrong with a config, joined.
func (c Config) Check() error {
	c = c.withDefaults()
	var faults []error
	wrong := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	wrong(!(c.Peak >= 1 && c.Peak <= 1000), "the peak is 1 to 1000 times the average")
	wrong(c.Replicas < 1 || c.Replicas > memcache.MaxReplicas, "of a counter there are 1 to %d replicas", memcache.MaxReplicas)
	wrong(c.Processes < 1, "there is at least one process of counterd")
	wrong(c.Grace < 0, "the grace is not negative")
	wrong(c.Costs.MemcachedHit < 0 || c.Costs.CounterdHit < 0, "a hit does not cost less than nothing")
	wrong(c.Server.Memory < minMemory, "a server has at least %s of memory", bytesText(minMemory))
	wrong(!(c.Server.Cores > 0 && c.Server.Cores <= 1024), "a server has more than 0 cores, and at most 1024")
	wrong(!(c.Server.Busy > 0 && c.Server.Busy <= 1), "a server is busy for more than 0 of its time, and at most 1")
	wrong(!(c.Server.Headroom <= 100), "the headroom is at most 100 times the items")
	wrong(c.Sessions.Events < 0 || c.Sessions.Length < 0 || c.Sessions.Length > 24*time.Hour, "a session is of events, and at most a day")
	wrong((c.Sessions.Events > 1) != (c.Sessions.Length > 0), "a session has events, more than 1, and a length")
	if c.Rules == nil {
		return errors.Join(append(faults, errors.New("rules are wanted"))...)
	}
	chosen, err := c.chosen()
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	if c.Log == nil {
		faults = append(faults, c.checkAmounts(chosen))
	}
	return errors.Join(faults...)
}

// chosen returns the events that are planned for.
func (c Config) chosen() ([]*events.Event, error) {
	all := c.Rules.All()
	if c.Event == "" {
		if c.Log != nil && len(all) != 1 {
			return nil, fmt.Errorf("a log is of one event, and the rules name %d: say which", len(all))
		}
		return all, nil
	}
	event, err := c.Rules.Event(c.Event)
	if err != nil {
		return nil, fmt.Errorf("the rules do not name the event %q", c.Event)
	}
	return []*events.Event{event}, nil
}

// checkAmounts finds amounts that are missing, or that nothing of the rules asks for.
func (c Config) checkAmounts(chosen []*events.Event) error {
	if len(c.Features) == 0 || len(c.Events) == 0 {
		return errors.New("the features a day and the events a day are wanted, or a log")
	}
	var faults []error
	known := []string{""}
	for _, event := range chosen {
		known = append(known, event.Name+"/")
		for _, counter := range countersOf(event) {
			known = append(known, counter.per, event.Name+"/"+counter.per)
			if counter.whole() {
				continue
			}
			if _, err := c.trafficOf(event, counter); err != nil {
				faults = append(faults, err)
			}
		}
		if _, found := c.Events.of(event.Name, ""); !found {
			faults = append(faults, fmt.Errorf("the events a day of %s are wanted", event.Name))
		}
	}
	for _, name := range slices.Sorted(mapsKeys(c.Features, c.Events)) {
		if !slices.Contains(known, name) {
			faults = append(faults, fmt.Errorf("%q is given a number, and the rules have no such counters", name))
		}
	}
	return errors.Join(faults...)
}

// mapsKeys yields the names of both.
func mapsKeys(all ...Amounts) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, amounts := range all {
			for name := range amounts {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// trafficOf returns the traffic on the counters of an event.
func (c Config) trafficOf(event *events.Event, counter counters) (Traffic, error) {
	perDay, _ := c.Events.of(event.Name, "")
	t := Traffic{Features: 1, Events: perDay, Peak: c.Peak, Sessions: c.Sessions}
	if counter.whole() {
		t.Sessions = Sessions{}
		return t, nil
	}
	var found bool
	t.Features, found = c.featuresOf(event.Name, counter.kinds)
	switch {
	case !found:
		return t, fmt.Errorf("the features a day of %s per %s are wanted", event.Name, counter.per)
	case t.Features > t.Events:
		return t, fmt.Errorf("%s per %s: %g features cannot do %g events a day", event.Name, counter.per, t.Features, t.Events)
	}
	return t, nil
}

// featuresOf returns how many of those kinds do the event each day. Of several kinds
// together, unless something is said of them, there are as many as of the most numerous.
func (c Config) featuresOf(event string, kinds []string) (most float64, found bool) {
	if amount, found := c.Features[event+"/"+perOf(kinds)]; found {
		return amount, true
	}
	if amount, found := c.Features[perOf(kinds)]; found {
		return amount, true
	}
	for _, kind := range kinds {
		amount, known := c.Features.of(event, kind)
		most, found = max(most, amount), found || known
	}
	if len(kinds) == 0 {
		return c.Features.of(event, "")
	}
	return most, found
}
