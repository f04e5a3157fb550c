package compare

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/traffic"
)

const second = int64(time.Second)

// Drawn traffic is of users.
const (
	DrawnKind = "user"
	DrawnName = "10,000 features by Zipf's law (s=1.1), 30 hits a second for 3h"
)

// opening is the moment at which drawn traffic begins: no window begins there.
var opening = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// Drawn returns the built-in traffic, as a log.
func Drawn() *accesslog.Log { return draw(10_000, 1.1, 30, 3*time.Hour) }

// draw returns hits of so many users by Zipf's law, which come independently of one another,
// as a Poisson process does, at a rate a second.
func draw(users int, s, rate float64, length time.Duration) *accesslog.Log {
	const seed = 1
	population := traffic.NewZipf(DrawnKind, users, s, rand.New(rand.NewPCG(seed, 0)))
	log, numbers := &accesslog.Log{}, map[string]uint32{}
	when := rand.New(rand.NewPCG(seed, 1))
	for after := time.Duration(0); ; {
		after += time.Duration(when.ExpFloat64() / rate * float64(time.Second))
		if after >= length {
			return log
		}
		features := population()
		actor, known := numbers[features[DrawnKind]]
		if !known {
			actor = uint32(len(log.Actors))
			numbers[features[DrawnKind]] = actor
			log.Actors = append(log.Actors, features)
		}
		log.Events = append(log.Events, accesslog.Event{Micros: opening.Add(after).UnixMicro(), Actor: actor})
	}
}

// hit is an event of the traffic that has a feature.
type hit struct {
	at      int64 // nanoseconds since 1970
	feature string
}

// hits returns the hits of the traffic, in the order of their times. counterd counts IPv6
// addresses by their network, and so do all then: by the first address of it.
func (c Config) hits() (hits []hit, err error) {
	event := eventOf(events.Limit{}, c.Kind, events.Second)
	first := map[string]string{}
	counted := make([]string, len(c.Traffic.Actors))
	for i, features := range c.Traffic.Actors {
		if features[c.Kind] == "" {
			continue
		}
		applied, err := event.Apply(nil, features)
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		id := applied[0].ID
		if first[id] == "" {
			first[id] = features[c.Kind]
		}
		counted[i] = first[id]
	}
	for _, e := range c.Traffic.Events {
		if feature := counted[e.Actor]; feature != "" {
			hits = append(hits, hit{e.Time().UnixNano(), feature})
		}
	}
	switch {
	case len(hits) == 0:
		return nil, errors.New("compare: there is no hit to compare with")
	case hits[0].at <= 0:
		return nil, errors.New("compare: the log has a time before 1970")
	}
	return hits, nil
}
