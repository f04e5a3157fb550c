// Package plan says what a rules file and the expected traffic need: items and memory, adds,
// reads and round trips, CPU time, and the number of Memcached servers.
//
// Levels, lifetimes and reads are those of package hierarchy. The package's own arithmetic is
// how events spread over buckets, and how Memcached lays out items; a test holds it against
// real servers.
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
	"github.com/counterd/counterd/memcache"
)

// Defaults of a Config.
const (
	DefaultPeak     = 3
	DefaultReplicas = 2
	DefaultMemory   = 4 << 30
	DefaultCores    = 4 // Memcached's default number of threads
)

const (
	processes = 2    // of counterd
	busy      = 0.5  // of the cores' time, at the peak at most
	headroom  = 0.25 // of the items' memory, kept free beside it
)

// Config is what to plan for: either Features and Events, or Log.
type Config struct {
	Rules            *events.Rules
	Event            string  // plans for this event only; "": for all events of the rules
	Features, Events Amounts // a day; events are those of all features together
	Peak             float64 // the busiest rate, in average rates; 0: DefaultPeak
	// Log yields the events of one event in the order of time. Run reads it once.
	Log iter.Seq2[time.Time, events.Features]

	Replicas int // 0: DefaultReplicas
	Server   Server

	processes int           // of counterd
	filled    time.Duration // the age of the oldest bucket; 0: older than buckets live
}

// Server is a machine for Memcached.
type Server struct {
	Memory int64   // of the whole process; 0: DefaultMemory
	Cores  float64 // 0: DefaultCores
}

// CPU times on the machine of docs/performance.md at half the load of its row B2: a hit took 64.2
// µs of counterd and 15.6 of Memcached, about twice as much as in B2, where more hits share each
// system call. Other rows tell the parts apart: A9 less A3 is 33 reads, B4 is adds that share the
// rest. newCost is a part of the adds that no row measures by itself: what an add takes beyond
// addCost if it makes its item.
const (
	tripCost     = 11400 * time.Nanosecond // of Memcached
	addCost      = 800 * time.Nanosecond
	newCost      = 500 * time.Nanosecond
	readCost     = 740 * time.Nanosecond
	requestCost  = 52 * time.Microsecond // of counterd
	exchangeCost = 12200 * time.Nanosecond
)

// Amounts are numbers by what they count: "" everything, "ip", "ip+user", "event/ip", or
// "event/" all of an event.
type Amounts map[string]float64

// ParseAmounts reads amounts such as 1000000 or 1000000,ip=300000,login/ip=20000.
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

// of returns the amount with the first of the names that has one.
func (a Amounts) of(names ...string) (float64, bool) {
	for _, name := range names {
		if amount, found := a[name]; found {
			return amount, true
		}
	}
	return 0, false
}

func (c Config) withDefaults() Config {
	c.Peak = cmp.Or(c.Peak, DefaultPeak)
	c.Replicas = cmp.Or(c.Replicas, DefaultReplicas)
	c.processes = cmp.Or(c.processes, processes)
	c.Server.Memory = cmp.Or(c.Server.Memory, DefaultMemory)
	c.Server.Cores = cmp.Or(c.Server.Cores, DefaultCores)
	return c
}

// Check returns all faults of the config, joined.
func (c Config) Check() error {
	c = c.withDefaults()
	var faults []error
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{!(c.Peak >= 1 && c.Peak <= 1000), "the peak is 1 to 1000 times the average"},
		{c.Replicas < 1 || c.Replicas > memcache.MaxReplicas, fmt.Sprintf("a counter has 1 to %d replicas", memcache.MaxReplicas)},
		{c.Server.Memory < minMemory, "a server has at least " + bytesText(minMemory) + " of memory"},
		{!(c.Server.Cores > 0 && c.Server.Cores <= 1024), "a server has more than 0 cores, and at most 1024"},
		{c.Rules == nil, "rules are needed"},
	} {
		if rule.broken {
			faults = append(faults, errors.New(rule.text))
		}
	}
	if c.Rules == nil {
		return errors.Join(faults...)
	}
	chosen, err := c.chosen()
	if err == nil && c.Log == nil {
		err = c.checkAmounts(chosen)
	}
	return errors.Join(append(faults, err)...)
}

// chosen returns the events to plan for.
func (c Config) chosen() ([]*events.Event, error) {
	if c.Event == "" {
		all := c.Rules.All()
		if c.Log != nil && len(all) != 1 {
			return nil, fmt.Errorf("a log is of one event, and the rules have %d: -event names one", len(all))
		}
		return all, nil
	}
	event, err := c.Rules.Event(c.Event)
	if err != nil {
		return nil, fmt.Errorf("the rules have no event %q", c.Event)
	}
	return []*events.Event{event}, nil
}

// checkAmounts finds missing amounts, and amounts of counters that the rules do not have.
func (c Config) checkAmounts(chosen []*events.Event) error {
	if len(c.Features) == 0 || len(c.Events) == 0 {
		return errors.New("the features a day and the events a day are needed, or a log")
	}
	var faults []error
	known := []string{""}
	for _, event := range chosen {
		known = append(known, event.Name+"/")
		for _, counter := range countersOf(event) {
			known = append(known, counter.per, event.Name+"/"+counter.per)
			_, err := c.trafficOf(event, counter)
			faults = append(faults, err)
		}
	}
	for _, amounts := range []Amounts{c.Features, c.Events} {
		for name := range amounts {
			if !slices.Contains(known, name) {
				faults = append(faults, fmt.Errorf("%q has a number, and the rules have no such counters", name))
			}
		}
	}
	return errors.Join(faults...)
}

// trafficOf returns the traffic on the counters of an event.
func (c Config) trafficOf(event *events.Event, counter counters) (Traffic, error) {
	perDay, found := c.Events.of(event.Name+"/", "")
	t := Traffic{Features: 1, Events: perDay, Peak: c.Peak}
	if !found {
		return t, fmt.Errorf("the events a day of %s are needed", event.Name)
	}
	if counter.whole() {
		return t, nil
	}
	t.Features, found = c.featuresOf(event.Name, counter.kinds)
	switch {
	case !found:
		return t, fmt.Errorf("the features a day of %s per %s are needed", event.Name, counter.per)
	case t.Features > t.Events:
		return t, fmt.Errorf("%s per %s: %g features cannot do %g events a day", event.Name, counter.per, t.Features, t.Events)
	}
	return t, nil
}

// featuresOf returns the features of those kinds, or without any of all, that do the event each
// day. Several kinds together, unless they have a number, are as many as the most numerous kind.
func (c Config) featuresOf(event string, kinds []string) (most float64, found bool) {
	per := strings.Join(kinds, "+")
	if together, found := c.Features.of(event+"/"+per, per); found {
		return together, true
	}
	for _, kind := range kinds {
		amount, known := c.Features.of(event+"/"+kind, kind, event+"/", "")
		most, found = max(most, amount), found || known
	}
	return most, found
}
