package suggest

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/whatif"
)

// DefaultDeny is the share of features that a suggestion denies at the most: 0.1%.
const DefaultDeny = share.Whole / 1000

var (
	// ErrNoFeatures is returned for a kind of which the log has no feature.
	ErrNoFeatures = errors.New("suggest: no features")
	// ErrDenies is returned where the engine denies other features than was reckoned. That
	// is a fault of this program.
	ErrDenies = errors.New("suggest: the engine does not agree")
)

// Config sets up a run. Log and Kinds are needed.
type Config struct {
	Log   *accesslog.Log
	Name  string   // of the log, for the comments of the rules file
	Kinds []string // of features, each once, in the order of the report
	// CostKind is the kind of an actor's features that is no feature, but what its hits
	// cost; a hit without it, or of "", costs 1.
	CostKind   string
	Event      string      // of the rules file
	IPv6Prefix int         // bits by which IPv6 addresses are counted; 0: as rules have it by default
	Deny       share.Share // of the features of a kind, at the most
	Top        int         // most denied features to name; 0: whatif.DefaultTop
	MaxBytes   int64       // of the counters; 0: whatif.DefaultMaxBytes
	Progress   progress.Progress
}

// Run suggests limits, and tries them. Errors wrap those of this package and of package
// whatif, and that of the context when it ends.
func Run(ctx context.Context, config Config) (*Report, error) {
	r := &Report{
		Event: config.Event, Log: config.Name, Lines: config.Log.Lines, Filtered: config.Log.Filtered, Malformed: config.Log.Malformed, Deny: config.Deny,
		ipv6Prefix: config.IPv6Prefix,
	}
	if n := len(config.Log.Events); n > 0 {
		r.From, r.To = utc(config.Log.Events[0].Second()), utc(config.Log.Events[n-1].Second())
	}
	if config.Deny < 0 || config.Deny >= share.Whole {
		return nil, fmt.Errorf("suggest: the share to deny: %w", share.Err)
	}
	for _, kind := range config.Kinds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := newPopulation(config.Log, kind, config.CostKind, config.IPv6Prefix)
		if err != nil {
			return nil, err
		}
		r.Kinds = append(r.Kinds, newKind(kind, c, config.Deny, r.To.Unix()-r.From.Unix()+1))
	}
	if err := r.try(ctx, config); err != nil {
		return nil, err
	}
	r.Rules = r.commented(rulesFile(config.Event, config.IPv6Prefix, r.Kinds))
	if _, err := events.ParseRules([]byte(r.Rules)); err != nil {
		return nil, fmt.Errorf("suggest: the rules file: %w", err)
	}
	return r, nil
}

// try has the engine decide the log by the rules of each kind, and by all of them.
func (r *Report) try(ctx context.Context, config Config) error {
	for i := range r.Kinds {
		k := &r.Kinds[i]
		report, err := config.whatIf(ctx, rulesFile(config.Event, config.IPv6Prefix, r.Kinds[i:i+1]))
		if err != nil {
			return err
		}
		if report.All.EverDenied != k.Denied || report.All.Features != k.Features {
			return fmt.Errorf("%w: of %s it denied %d of %d, not %d of %d", ErrDenies, k.Kind,
				report.All.EverDenied, report.All.Features, k.Denied, k.Features)
		}
		r.WhatIf = report
	}
	if len(r.Kinds) == 1 {
		return nil
	}
	report, err := config.whatIf(ctx, rulesFile(config.Event, config.IPv6Prefix, r.Kinds))
	r.WhatIf = report
	return err
}

func (config Config) whatIf(ctx context.Context, file string) (*whatif.Report, error) {
	rules, err := events.ParseRules([]byte(file))
	if err != nil {
		return nil, fmt.Errorf("suggest: the rules file: %w", err)
	}
	return whatif.Run(ctx, whatif.Config{
		Event: rules.Events[config.Event], Log: config.Log, CostKind: config.CostKind,
		Top: config.Top, MaxBytes: config.MaxBytes, Progress: config.Progress,
	})
}

// newKind describes a population, and the limits for it. The log is of so many seconds.
func newKind(kind string, c *population, deny share.Share, seconds int64) Kind {
	k := Kind{Kind: kind, Features: c.features, Hits: c.hits, Missing: c.missing}
	usable := 0
	for usable < len(windows()) && windows()[usable].seconds <= seconds {
		usable++
	}
	chosen := choose(c, usable, deny.Of(c.features))
	k.Denied, k.Traffic, k.DeniedTraffic = chosen.denied(-1), c.total(), chosen.traffic()
	attack := against(c, usable)
	k.Attack = Attack{Features: c.attackers(), Denied: attack.denied(-1), DeniedTraffic: attack.traffic()}
	for i, w := range windows() {
		sorted := c.sorted(i)
		alone := smallest(sorted, deny.Of(len(sorted)))
		described := Window{
			Window: w.name,
			P50:    quantile(sorted, 500), P90: quantile(sorted, 900), P99: quantile(sorted, 990), P999: quantile(sorted, 999), Max: sorted[len(sorted)-1],
			Alone: alone, AloneDenied: above(sorted, alone), counts: sorted,
		}
		described.rate(i, w, chosen)
		if k.Attack.Denied > 0 && i < usable && attack.idle(i) == "" {
			described.AttackRate = fmt.Sprintf("%d/%s", attack.limits[i], w.unit)
			k.Attack.Rates = append(k.Attack.Rates, described.AttackRate)
		}
		k.Windows = append(k.Windows, described)
	}
	return k
}

// rate sets the rate that the window has in the rules file, or why it has none.
func (d *Window) rate(i int, w window, chosen together) {
	if i >= chosen.usable {
		d.LeftOut = "the log is shorter"
		return
	}
	d.Chosen = chosen.limits[i]
	rate := fmt.Sprintf("%d/%s", d.Chosen, w.unit)
	if d.LeftOut = chosen.idle(i); d.LeftOut == "" {
		d.Rate = rate
	}
}
