package backend

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
)

// logChanges returns a hook that logs what becomes of the servers: each kind of change of each
// server at most once a second.
func logChanges(log *slog.Logger, replicas int) func(memcache.Change, memcache.ServerHealth) {
	var lines sparse.Lines
	down, emptied := "on_error decides its counters until it is back", "its counters begin again from zero"
	if replicas > 1 {
		down, emptied = "its counters are decided on their other replicas until it is back", "its counters are copied to it from their other replicas"
	}
	return func(change memcache.Change, h memcache.ServerHealth) {
		lines.Do(change.String()+" "+h.Name, func(suppressed int64) {
			log := log.With("server", h.Name, "suppressed", suppressed)
			switch change {
			case memcache.Down:
				log.Warn("a memcached server is down: "+down, "error", h.Err)
			case memcache.Back:
				log.Info("a memcached server is back")
			case memcache.Emptied:
				log.Warn("a memcached server came back empty, or is new: "+emptied, "since", timeOf(h.Lost.Since))
			case memcache.Repaired:
				log.Info("a memcached server is whole: what it had lost or missed was copied to it from the other servers")
			case memcache.Evicting:
				log.Warn("a memcached server is full: it evicts counters that have not expired, and counts on it may be too low",
					"evictions", h.Stats.Evictions, "bytes", h.Stats.Bytes, "max_bytes", h.Stats.MaxBytes)
			case memcache.Several:
				log.Error("the name of a memcached server leads to several servers, which count apart: name each of them, or use dns:NAME:PORT")
			case memcache.Same:
				log.Error("two names in the list lead to one memcached server: this name is not used; name each server once",
					"used", h.SameAs)
			case memcache.OtherSecret:
				log.Warn("another process that uses a memcached server has another key secret, "+
					"or has one where this process has none: the two count apart", "host", h.OtherHost)
			}
		})
	}
}

// logClock returns a hook that logs what becomes of this process's clock.
func logClock(log *slog.Logger) func(ahead time.Duration, wrong bool) {
	return func(ahead time.Duration, wrong bool) {
		if wrong {
			log.Warn("the clock of this process, or those of others, are wrong: limits are incomplete until they agree; set them (NTP)", "clock", clockInWords(ahead))
			return
		}
		log.Info("the clock of this process agrees with those of the others again, as far as is known")
	}
}

func clockInWords(ahead time.Duration) string {
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("at least %.1f s %s the other processes", ahead.Abs().Seconds(), side)
}

// EmbeddedName stands for the name of a server if the store is embedded.
const EmbeddedName = "embedded"

// Clock returns in words that the clock is wrong, for readyz; empty: as far as is known it is not.
func (b *Backend) Clock() string {
	if b.fleet == nil || !b.fleet.ClockWrong() {
		return ""
	}
	ahead, _ := b.fleet.ClockAhead()
	return clockInWords(ahead)
}

// timeOf returns the time of a Unix second; the zero time for 0.
func timeOf(second int64) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return time.Unix(second, 0).UTC()
}

// States returns a function that returns how the servers are, for readyz. The embedded store is always ready, and is
// named only if it has evicted counters of late.
func (b *Backend) States() func() []service.ServerState {
	if b.fleet == nil {
		return func() []service.ServerState {
			lost := timeOf(b.embedded.Lost())
			if lost.IsZero() || b.retention != nil && time.Since(lost) > b.retention()+24*time.Hour {
				return nil
			}
			return []service.ServerState{{Name: EmbeddedName, Reachable: true, EmptyFrom: lost, Evicting: true}}
		}
	}
	return func() (states []service.ServerState) {
		for _, h := range b.fleet.Health() {
			states = append(states, service.ServerState{
				Name: h.Name, Reachable: h.Up, EmptyFrom: timeOf(h.Lost.Since), Evicting: h.Evicted, Away: h.Missed,
				Repairing: h.Repairing, Repaired: h.Percent, Unrepairable: h.Left, OtherSecret: h.OtherSecret,
				OtherHost: h.OtherHost, Several: h.Several,
			})
		}
		return states
	}
}
