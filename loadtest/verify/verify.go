package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/loadtest/fleet"
)

// ErrNothing is returned where there is nothing to hold to the contract: that is no success.
var ErrNothing = errors.New("verify: nothing was verified")

// mercy is how long calls under way may still take when a run is interrupted: an answer that
// is not waited for is an outcome that nobody knows.
const mercy = 2 * time.Second

// Run calls the targets and holds what they say to the contract. What it finds is in the
// report; an error says that it could not be run. When the context ends it calls no more,
// and the report is of what was seen until then; where that is nothing, the error is the
// context's.
func Run(ctx context.Context, config Config) (*Report, error) { return newRun(config).run(ctx) }

func newRun(config Config) *run {
	return &run{config: config, findings: newFindings(), alone: config.own()}
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
	if err := r.drive(ctx); err != nil {
		return nil, err
	}
	r.closing(ctx)
	r.report.Interrupted = ctx.Err() != nil
	report = r.judge()
	if report.OK() && report.Admitted+report.Denied == 0 {
		if report.Interrupted {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: of %d hits, alone and in batches, none was decided", ErrNothing, r.hits())
	}
	return report, nil
}

// hits returns how many were made.
func (r *run) hits() (n int) {
	for _, e := range r.log.entries {
		if e.kind == hit || e.kind == batch {
			n++
		}
	}
	return n
}

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
	alone    bool         // nobody else calls for the event
	contract *contract
	people   *people
	log      *log
	findings *findings
	caller   *caller
	killer   *killer
	began    time.Time
	report   Report
	pasts    map[int32]int64 // of each counter, a second of the past that something was added to
}

// prepare asks the targets for their rules, and makes up whom to call for.
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
	r.people, r.log = newPeople(r.contract, r.config.features()), newLog(r.contract, r.config.maxEvents())
	r.caller = &caller{
		contract: r.contract, people: r.people, log: r.log, findings: r.findings, token: r.config.Token, skew: r.config.skew(),
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
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 2*c.clients()+maxCrowd
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

// drive has clients call, and servers die, for the time of the run or until it is interrupted.
func (r *run) drive(ctx context.Context) error {
	// Without its clock reading a time is the wall's alone; with it, what is added to it is
	// measured by a clock that nobody sets.
	r.began = time.Now()
	r.caller.began = r.began
	driving, stop := context.WithTimeout(ctx, r.config.duration())
	defer stop()
	calling, cut := outlasting(ctx, mercy)
	defer cut()
	d := &driver{caller: r.caller, config: r.config, began: r.began}
	var others sync.WaitGroup
	var killed error
	if r.config.own() && r.config.Own.Chaos {
		r.killer = &killer{
			fleet: r.fleet, rng: rand.New(rand.NewPCG(r.config.Seed, 1<<41)), pace: min(r.config.duration()/5, 10*time.Second),
			copies: r.config.Own.replicas(), timeout: r.config.timeout(), now: r.caller.now,
		}
		others.Go(func() {
			// Interrupted, it leaves a server away: that is known of it.
			if killed = r.killer.run(driving, ctx); ctx.Err() != nil && errors.Is(killed, ctx.Err()) {
				killed = nil
			}
			if killed != nil {
				stop()
			}
		})
	}
	others.Go(func() { r.progress(driving) })
	d.start(driving, calling)
	d.running.Wait()
	r.report.Duration = time.Since(r.began)
	stop()
	others.Wait()
	if killed != nil || r.fleet == nil {
		return killed
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
func (r *run) progress(ctx context.Context) {
	p := r.config.progress()
	p.Start("calling", int(r.config.duration()/time.Second))
	for ctx.Err() == nil {
		fleet.Sleep(ctx, time.Second)
		p.Add(1)
	}
}

// judge holds the log to the contract, and reports.
func (r *run) judge() *Report {
	t := &trial{
		contract: r.contract, people: r.people, log: r.log, findings: r.findings, began: r.began,
		event:   func(i int32) Event { return r.caller.event(r.log.entries[i], r.log.countsOf(i)) },
		lookOf:  r.lookEvent,
		timeout: nanoseconds(r.config.timeout()), ours: r.config.own(), alone: r.alone, copies: 1,
	}
	if t.ours {
		t.copies = r.config.Own.replicas()
		t.lines = r.config.Own.lines() && !r.contract.hasWhole()
	}
	if r.killer != nil {
		t.losses = r.killer.losses
	}
	t.judge()
	r.tell(t)
	return &r.report
}

func (r *run) lookEvent(k look) Event {
	e := r.caller.event(entry{sent: k.sent, answered: k.answered, client: k.client, target: k.target, kind: count}, nil)
	e.Answer = fmt.Sprint("count ", k.count)
	return e
}
