package whatif

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/share"
)

// DefaultDeny is the share of features that a suggestion denies at the most: 0.1%.
const DefaultDeny = share.Whole / 1000

const (
	// attackPercent is the part of the traffic of a log of failures that its attackers made.
	attackPercent = 90
	// attackFloor is what limits against them leave to every user: users mistype, too.
	attackFloor = 5
)

var (
	// ErrNoFeatures is returned for a kind of which the log has no feature.
	ErrNoFeatures = errors.New("suggest: no features")
	// ErrDenies is returned where the engine denies other features than was reckoned. That
	// is a fault of this program.
	ErrDenies = errors.New("suggest: the engine does not agree")
)

// SuggestConfig sets up a suggestion. Log and Kinds are needed, and Config.Event is not.
type SuggestConfig struct {
	Config
	Name      string   // of the log, for the comments of the rules file
	Kinds     []string // of features, each once, in the order of the report
	EventName string   // of the rules file
	Deny      share.Share
	Failures  bool // the log is of failures: suggest the limits of Attack
}

// Suggest suggests the smallest limits that would have denied at most the share Deny of the
// features of each kind, or, of a log of failures, the limits against its attackers, and tries
// them as Run does. Every figure is exact. Errors are as those of Run.
func Suggest(ctx context.Context, config SuggestConfig) (*Suggestion, error) {
	r := &Suggestion{Event: config.EventName, Log: config.Name, Deny: config.Deny, Failures: config.Failures}
	seconds := int64(0) // of the log
	if list := config.Log.Events; len(list) > 0 {
		seconds = list[len(list)-1].Second() - list[0].Second() + 1
	}
	if config.Deny < 0 || config.Deny >= share.Whole {
		return nil, fmt.Errorf("suggest: the share to deny: %w", share.Err)
	}
	for _, kind := range config.Kinds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := config.population(kind)
		if err != nil {
			return nil, err
		}
		r.Kinds = append(r.Kinds, p.describe(kind, config.Deny, seconds, config.Failures))
	}
	return r, r.try(ctx, config.Config)
}

// try has the engine decide the log by the rules of all kinds. Of a single kind it denies as
// many features as were reckoned.
func (r *Suggestion) try(ctx context.Context, config Config) error {
	rules, err := rulesfile.Parse([]byte(r.file()))
	if err != nil {
		return fmt.Errorf("suggest: the rules file: %w", err)
	}
	config.Event = rules.Events[r.Event]
	if r.WhatIf, err = Run(ctx, config); err != nil {
		return err
	}
	r.Rules = r.comments() + r.file()
	k, all := &r.Kinds[0], r.WhatIf.All
	reckoned := k.Denied
	if r.Failures {
		reckoned = k.Attack.Denied
	}
	if len(r.Kinds) == 1 && (all.EverDenied != reckoned || all.Features != k.Features) {
		return fmt.Errorf("%w: of %s it denied %d of %d, not %d of %d",
			ErrDenies, k.Kind, all.EverDenied, all.Features, reckoned, k.Features)
	}
	return nil
}

// span is a length of windows that limits are suggested for.
type span struct {
	name    string
	seconds int64
	unit    string // of a rate
}

// spans are in the order of their lengths.
func spans() []span {
	return []span{{"second", 1, "s"}, {"minute", 60, "m"}, {"hour", 60 * 60, "h"}, {"day", 24 * 60 * 60, "d"}}
}

// population is what the features of one kind did.
type population struct {
	hits    int
	missing int       // lines without such a feature
	traffic []int64   // what the hits cost together, by feature
	largest [][]int64 // counts in any window, by span, then by feature
	logs    []exactlog.Log
}

// population finds the largest counts of the features of a kind.
func (config SuggestConfig) population(kind string) (*population, error) {
	event := &events.Event{Name: "suggested", Rules: []events.Rule{{Per: []string{kind}}}}
	actors := newActors(event, config.Log.Actors, config.CostKind)
	p := &population{}
	logs := make([]exactlog.Log, len(actors.names))
	for _, e := range config.Log.Events {
		if _, found := config.Log.Actors[e.Actor][kind]; !found {
			p.missing++
		} else if a := &actors.all[e.Actor]; a.fate == decided {
			p.hits++
			logs[a.whole].Add(e.Second(), a.cost)
		}
	}
	if p.hits == 0 {
		return nil, fmt.Errorf("%w: of %d lines none has a feature of the kind %s that can be counted", ErrNoFeatures, config.Log.Lines, kind)
	}
	for _, s := range spans() {
		var largest []int64
		for i := range logs {
			largest = append(largest, logs[i].Largest(s.seconds))
		}
		p.largest = append(p.largest, largest)
	}
	p.logs = logs
	for i := range logs {
		p.traffic = append(p.traffic, logs[i].Total())
	}
	return p, nil
}

// describe describes the population, and the limits for it. The log is of so many seconds.
func (p *population) describe(kind string, deny share.Share, seconds int64, failures bool) Kind {
	usable := 0
	for usable < len(spans()) && spans()[usable].seconds <= seconds {
		usable++
	}
	features := len(p.traffic)
	chosen := p.choose(usable, deny.Of(features))
	attackers := p.attackers()
	attack := p.choose(usable, attackers)
	for i := range attack.limits {
		attack.limits[i] = max(attack.limits[i], attackFloor)
	}
	k := Kind{Kind: kind, Features: features, Hits: p.hits, Missing: p.missing, Traffic: sum(p.traffic), Attack: Attack{Features: attackers}}
	k.Denied, k.DeniedTraffic = chosen.denied(-1)
	k.Attack.Denied, k.Attack.DeniedTraffic = attack.denied(-1)
	for i, s := range spans() {
		counts := slices.Sorted(slices.Values(p.largest[i]))
		alone := smallest(counts, deny.Of(features))
		exceeding, _ := slices.BinarySearch(counts, alone+1)
		w := Window{
			Window: s.name,
			P50:    quantile(counts, 500), P90: quantile(counts, 900), P99: quantile(counts, 990), P999: quantile(counts, 999), Max: counts[features-1],
			Alone: alone, AloneDenied: features - exceeding, LeftOut: "the log is shorter", counts: counts,
		}
		if i < usable {
			w.Chosen = chosen.limits[i]
			if w.LeftOut = chosen.idle(i); w.LeftOut == "" {
				w.Rate = fmt.Sprintf("%d/%s", w.Chosen, s.unit)
			}
			w.Burst, w.BurstDenied = p.burst(alone, s.seconds, deny.Of(features))
			if (k.Attack.Denied > 0 || failures) && attack.idle(i) == "" {
				w.AttackRate = fmt.Sprintf("%d/%s", attack.limits[i], s.unit)
				k.Attack.Rates = append(k.Attack.Rates, w.AttackRate)
			}
		}
		k.Windows = append(k.Windows, w)
	}
	return k
}

// burst returns the smallest burst of a token bucket, to which so many tokens return in so many seconds, that
// denies at most as many features at some time as are to be, and how many it denies. A bucket denies a feature for
// the first time when all its hits before were admitted.
func (p *population) burst(rate, seconds int64, deny int) (burst int64, denied int) {
	var peaks []int64
	for i := range p.logs {
		peaks = append(peaks, p.logs[i].Peak(rate, seconds))
	}
	slices.Sort(peaks)
	burst = smallest(peaks, deny)
	within, _ := slices.BinarySearch(peaks, burst+1)
	return burst, len(peaks) - within
}

// attackers returns the smallest number of features that made attackPercent of the traffic.
func (p *population) attackers() (n int) {
	total, made := sum(p.traffic), int64(0)
	for _, traffic := range slices.Backward(slices.Sorted(slices.Values(p.traffic))) {
		if made*100 >= total*attackPercent {
			break
		}
		made += traffic
		n++
	}
	return n
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}

// quantile returns the smallest value that so many thousandths of the sorted values do not
// exceed.
func quantile(sorted []int64, thousandths int) int64 {
	return sorted[max(0, (len(sorted)*thousandths+999)/1000-1)]
}

// smallest returns the smallest limit, at least 1, that at most so many of the sorted
// values exceed.
func smallest(sorted []int64, exceed int) int64 {
	if exceed >= len(sorted) {
		return 1
	}
	return max(1, sorted[len(sorted)-1-exceed])
}
