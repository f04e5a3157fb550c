package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/progress"
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

func newRun(config Config) *run {
	return &run{config: config, findings: newFindings(), alone: config.own(), killing: rand.New(rand.NewPCG(config.Seed, 1<<41)), report: Report{Kills: []Kill{}}}
}

func (r *run) run(ctx context.Context) (report *Report, err error) {
	if err := r.config.Check(); err != nil {
		return nil, err
	}
	targets := r.config.URLs
	if r.config.own() {
		if r.fleet, err = startFleet(ctx, r.config); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.fleet.Close()) }()
		for _, process := range r.fleet.Processes {
			targets = append(targets, "http://"+process.Addr)
		}
	}
	if err := r.prepare(ctx, targets); err != nil {
		return nil, err
	}
	defer r.caller.http.CloseIdleConnections()
	if r.config.Soak {
		err = r.soak(ctx)
	} else {
		err = r.round(ctx, r.config.duration(), r.chaos())
	}
	if err != nil {
		return nil, err
	}
	report = r.finish(ctx)
	if report.OK() && report.Admitted+report.Denied == 0 {
		if report.Interrupted {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: of %d hits, alone and in batches, none was decided", ErrNothing, report.Calls[hit.String()]+report.Calls[batch.String()])
	}
	return report, nil
}

// soak repeats rounds, each with a log of its own, until the time is over. After a slow call
// the load is repeated.
func (r *run) soak(ctx context.Context) error {
	r.report.Soak = &Soak{} // of a run that is interrupted in its first load
	if err := r.round(ctx, warmUp, false); err != nil || ctx.Err() != nil {
		return err
	}
	r.caller.http.CloseIdleConnections()
	r.monitor = newMonitor(r.config, r.fleet)
	if err := r.monitor.begin(ctx); err != nil {
		return err
	}
	for length := r.config.duration(); ; length = min(length, repeatFor) {
		r.caller.slowest.Store(0)
		if err := r.load(ctx, length); err != nil {
			return err
		}
		r.monitor.slow = append(r.monitor.slow, time.Duration(r.caller.slowest.Load()))
		if ctx.Err() != nil || r.findings.any() || !r.monitor.undecided() {
			break
		}
	}
	r.caller.http.CloseIdleConnections()
	var wrong []string
	r.report.Soak, wrong = r.monitor.finish(ctx, r.report.Duration >= MinSoak)
	for _, text := range wrong {
		r.findings.add(Violation{Check: CheckProcesses, Text: text})
	}
	return nil
}

// load makes rounds for a time. A round ends early if its log is full.
func (r *run) load(ctx context.Context, length time.Duration) error {
	for end := time.Now().Add(length); ; {
		if err := r.round(ctx, time.Until(end), r.chaos()); err != nil || !r.log.full || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// round drives clients for a time, and holds the answers to the contract.
func (r *run) round(ctx context.Context, length time.Duration, chaos bool) error {
	r.users, r.log = newUsers(r.contract, r.config.features()), newLog(r.contract, r.config.maxEvents())
	r.caller.users, r.caller.log = r.users, r.log
	r.rounds++
	if err := r.drive(ctx, length, chaos); err != nil {
		return err
	}
	r.closing(ctx)
	r.judge()
	r.alone = r.alone && !r.contract.hasWhole() // of the whole event the next round knows not what this one counted
	return nil
}

func (r *run) chaos() bool { return r.config.own() && r.config.Own.Chaos }

func startFleet(ctx context.Context, config Config) (*fleet.Fleet, error) {
	own := config.Own
	return fleet.Start(ctx, fleet.Config{
		Counterd: own.Counterd, Memcached: own.Memcached, Processes: own.processes(), Servers: own.servers(),
		Replicas: own.replicas(), Protocol: own.Protocol, Rules: own.rules(), Timeout: config.timeout(),
	})
}

// run is one of them.
type run struct {
	config   Config
	fleet    *fleet.Fleet // nil: the targets are others'
	alone    bool         // only this run has called for the event
	rounds   int
	contract *contract
	users    *users // of the round, as the log
	log      *log
	findings *findings
	caller   *caller
	killer   *killer // of the round; nil: no server is killed
	killing  *rand.Rand
	monitor  *monitor // of a soak
	began    time.Time
	report   Report
	pasts    map[int32]int64 // of each counter, a second of the past that something was added to
}

// prepare asks the targets for their rules.
func (r *run) prepare(ctx context.Context, targets []string) error {
	for _, target := range targets {
		c, err := r.rulesOf(ctx, target)
		if err != nil {
			return err
		}
		if r.contract == nil {
			r.contract = c
		}
		if !r.contract.same(c) {
			return fmt.Errorf("%w: %s and %s have different rules of %s", ErrRules, targets[0], target, r.config.event())
		}
	}
	r.caller = &caller{
		contract: r.contract, findings: r.findings, token: r.config.Token, skew: r.config.skew(),
		http: &http.Client{Transport: r.config.roundTripper(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, target := range targets {
		base, err := url.Parse(target)
		if err != nil {
			return err
		}
		r.caller.targets = append(r.caller.targets, base)
		r.report.Targets = append(r.report.Targets, base.Host)
	}
	return nil
}

// roundTripper returns what makes the calls.
func (c Config) roundTripper() http.RoundTripper {
	if c.transport != nil {
		return c.transport
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 2*c.clients()+maxBurst
	transport.TLSClientConfig = c.TLS.Clone()
	return transport
}

func (r *run) rulesOf(ctx context.Context, target string) (*contract, error) {
	c, err := client.New(client.Config{URL: target, Token: r.config.Token, TLS: r.config.TLS, Transport: r.config.transport})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	event, err := c.Event(ctx, r.config.event())
	if err != nil {
		return nil, fmt.Errorf("asking for the rules of %s: %w", r.config.event(), err)
	}
	return newContract(event)
}

// drive has clients call, and servers die, for a time or until the run is interrupted.
func (r *run) drive(ctx context.Context, length time.Duration, chaos bool) error {
	// The reading of the monotonic clock stays in it: stamps are compared with the wall clock.
	r.began = time.Now()
	r.caller.began, r.killer = r.began, nil
	driving, stop := context.WithTimeout(ctx, length)
	defer stop()
	calling, cut := outlasting(ctx, interruptGrace)
	defer cut()
	d := &driver{caller: r.caller, config: r.config, began: r.began, length: length}
	var others errgroup.Group
	beside := func(do func() error) {
		others.Go(func() error {
			err := do()
			if err != nil {
				stop()
			}
			return err
		})
	}
	if chaos {
		r.killer = &killer{
			fleet: r.fleet, rng: r.killing, pace: min(r.config.duration()/5, 10*time.Second),
			copies: r.config.Own.replicas(), timeout: r.config.timeout(), now: r.caller.now,
		}
		beside(func() error {
			// An interrupt leaves a server away, and the killer says so.
			if err := r.killer.run(driving, ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
				return err
			}
			return nil
		})
	}
	if r.monitor != nil {
		beside(func() error { return r.monitor.watch(driving, max(r.config.duration()/maxSamples, time.Second/4)) })
	}
	beside(func() error { r.progress(driving, length); return nil })
	d.start(driving, calling)
	d.running.Wait()
	r.report.Duration += time.Since(r.began)
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

// judge holds the log of a round to the contract.
func (r *run) judge() {
	j := &judge{
		contract: r.contract, users: r.users, log: r.log, findings: r.findings, began: r.began,
		event:   func(i int32) Event { return r.caller.event(r.log.entries[i], r.log.countsOf(i)) },
		lookOf:  r.lookEvent,
		timeout: nanoseconds(r.config.timeout()), ours: r.config.own(), alone: r.alone, copies: 1,
		checked: r.report.Checked, excused: r.report.Excused,
	}
	if j.ours {
		j.copies = r.config.Own.replicas()
		j.lines = r.config.Own.lines() && !r.contract.hasWhole()
	}
	if r.killer != nil {
		j.losses = r.killer.losses
	}
	j.judge()
	r.add(j)
}

func (r *run) lookEvent(k look) Event {
	e := r.caller.event(entry{sent: k.sent, answered: k.answered, client: k.client, target: k.target, kind: count}, nil)
	e.Answer = fmt.Sprint("count ", k.count)
	return e
}
