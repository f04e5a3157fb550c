package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// ErrNothing is returned where there is nothing to hold to the contract: that is no success.
var ErrNothing = errors.New("verify: nothing was verified")

// interruptGrace is how long calls under way may still take when a run is interrupted: an answer that
// is not waited for is an unknown outcome.
const interruptGrace = 2 * time.Second

// Run calls the targets and holds what they say to the contract. What it finds is in the
// report; an error says that it could not be run. When the context ends it calls no more,
// and the report is of what was seen until then; where that is nothing, the error is the
// context's.
func Run(ctx context.Context, config Config) (*Report, error) { return newRun(config).run(ctx) }

// run is one of them.
type run struct {
	*caller
	config Config
	fleet  *fleet.Fleet // nil: the targets are others'
	alone  bool         // only this run has called for the event
	rounds int
	kills  []judge.Kill // of the round
	rng    *rand.Rand   // of the kills
	idle   func()       // closes idle connections
	report Report
}

func newRun(config Config) *run {
	config = config.Filled()
	return &run{config: config, alone: config.own(), idle: func() {}, rng: rand.New(rand.NewPCG(config.Seed, 1<<41))}
}

func (r *run) run(ctx context.Context) (report *Report, err error) {
	if err := r.config.Check(); err != nil {
		return nil, err
	}
	targets := r.config.URLs
	if r.config.own() {
		if r.fleet, err = fleet.Start(ctx, r.config.Fleet); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.fleet.Close()) }()
		for _, process := range r.fleet.Processes {
			targets = append(targets, "http://"+process.Addr)
		}
	}
	defer func() { r.idle() }()
	prepare := func(ctx context.Context) error { return r.prepare(ctx, targets) }
	if len(r.config.RLS) > 0 {
		prepare = r.prepareRLS
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	if r.config.Soak {
		err = r.soak(ctx)
	} else {
		err = r.load(ctx, r.config.Duration)
	}
	if err != nil {
		return nil, err
	}
	report = r.finish(ctx)
	if report.OK() && report.Admitted+report.Denied == 0 {
		if report.Interrupted {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: of %d hits, alone and in batches, none was decided", ErrNothing, report.Calls[judge.Hit.String()]+report.Calls[judge.Batch.String()])
	}
	return report, nil
}

// prepare asks the targets for their rules.
func (r *run) prepare(ctx context.Context, targets []string) error {
	transport := r.config.transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConns, own.MaxIdleConnsPerHost = 0, 2*r.config.Clients+maxBurst
		own.TLSClientConfig = r.config.TLS.Clone()
		transport, r.idle = own, own.CloseIdleConnections
	}
	var err error
	if r.caller, err = newCaller(r.config, targets, transport); err != nil {
		return err
	}
	for i, target := range r.targets {
		event, err := target.Event(ctx, r.config.Event)
		if err != nil {
			return fmt.Errorf("asking for the rules of %s: %w", r.config.Event, err)
		}
		c, err := contract.New(event)
		switch {
		case err != nil:
			return err
		case i == 0:
			r.Contract = c
		case !r.Same(c):
			return fmt.Errorf("%w: %s and %s have different rules of %s", contract.ErrRules, targets[0], targets[i], r.config.Event)
		}
	}
	return nil
}

// load makes rounds for a time. A round ends early if its log is full.
func (r *run) load(ctx context.Context, length time.Duration) error {
	for end := time.Now().Add(length); ; {
		if err := r.round(ctx, time.Until(end)); err != nil || !r.log.Full() || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// ownSkew is by how much the clock of this process, which does not follow changes of the time, may
// differ from that of processes on this machine.
const ownSkew = 5 * time.Millisecond

// round drives clients for a time, and holds the answers to the contract.
func (r *run) round(ctx context.Context, length time.Duration) error {
	r.log, r.kills = judge.NewLog(r.Contract, r.hosts, r.config.maxEvents, r.config.Features), nil
	r.log.Unstamped = len(r.rls) > 0
	r.alone = r.alone && (r.rounds == 0 || !r.HasWhole()) // of the whole event this round knows not what the others counted
	r.rounds++
	if err := r.drive(ctx, length); err != nil {
		return err
	}
	if len(r.rls) == 0 {
		r.closing(ctx)
	}
	skew := r.config.Skew
	if r.config.own() {
		skew = ownSkew
	}
	judge.Case{
		Log: r.log, Findings: r.findings, Kills: r.kills, Timeout: r.config.Timeout, Skew: skew, Replicas: max(r.config.Fleet.Replicas, 1),
		Ours: r.config.own(), Alone: r.alone, Queued: r.queued() && !r.HasWhole(),
	}.Judge()
	r.add()
	return nil
}

// queued reports whether all hits on a counter are decided in one queue.
func (r *run) queued() bool {
	return r.config.own() && r.config.Fleet.Processes == 1 && r.config.Fleet.Replicas == 1
}

// drive has clients call, and servers die, for a time or until the run is interrupted.
func (r *run) drive(ctx context.Context, length time.Duration) error {
	driving, stop := context.WithTimeout(ctx, length)
	defer stop()
	calling, cut := outlasting(ctx, interruptGrace)
	defer cut()
	others, driving := errgroup.WithContext(driving)
	if r.config.Chaos {
		k := &killer{fleet: r.fleet, rng: r.rng, pace: min(r.config.Duration/5, 10*time.Second), config: r.config.Fleet}
		others.Go(func() error {
			err := k.run(driving, ctx)
			r.kills = k.kills
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return nil // an interrupt leaves a server away, and the killer says so
			}
			return err
		})
	}
	others.Go(func() error { r.progress(driving, length); return nil })
	d := &driver{caller: r.caller, config: r.config, length: length}
	d.start(driving, calling)
	d.running.Wait()
	r.report.Duration += time.Since(r.log.Began)
	stop()
	if err := others.Wait(); err != nil || r.fleet == nil {
		return err
	}
	return r.fleet.Alive()
}

// outlasting returns a context that ends so long after the other one.
func outlasting(ctx context.Context, long time.Duration) (context.Context, context.CancelFunc) {
	outlasting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { fleet.Sleep(outlasting, long); end() })
	return outlasting, func() { stop(); end() }
}

// progress tells how much of the time is over.
func (r *run) progress(ctx context.Context, length time.Duration) {
	p := progress.Or(r.config.Progress)
	p.Start("calling", int(length/time.Second))
	for ctx.Err() == nil {
		fleet.Sleep(ctx, time.Second)
		p.Add(1)
	}
}
