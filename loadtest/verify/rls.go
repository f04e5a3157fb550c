package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/rlsclient"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// prepareRLS reads the rules that the targets shall have, and makes sure that they have a limit for what is called.
func (r *run) prepareRLS(ctx context.Context) error {
	rules, err := rulesfile.Parse([]byte(r.config.Fleet.Rules))
	if err != nil {
		return err
	}
	event, err := rules.Event(r.config.Event)
	if err != nil {
		return err
	}
	r.caller = &caller{findings: &judge.Findings{}, skew: r.config.Skew, hosts: r.config.RLS, rls: r.config.askers}
	if r.Contract, err = contract.Of(event); err != nil {
		return err
	}
	if r.HasLeases() {
		return fmt.Errorf("%w: the rate limit service has no leases", contract.ErrRules)
	}
	for _, addr := range r.config.RLS[len(r.rls):] {
		client, err := rlsclient.New(rlsclient.Config{Addr: addr, TLS: r.config.TLS, Token: r.config.Token, Timeout: judge.CallTimeout})
		if err != nil {
			return err
		}
		before := r.idle
		r.idle = func() { _ = client.Close(); before() } // it is not used any more
		r.rls = append(r.rls, client)
	}
	user := judge.NewLog(r.Contract, r.hosts, 1, 1).User(0)
	for i, to := range r.rls {
		said, err := to.Ask(ctx, rlsclient.NewRequest(r.Event, r.Kinds, user.Features, 0))
		if err == nil && said.Statuses[0].CurrentLimit == nil {
			err = fmt.Errorf("%w: no limit of the domain %s is for a descriptor of %v", ErrNothing, r.Event, r.Kinds)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.hosts[i], err)
		}
	}
	return nil
}

// ask makes one hit, or check, of the rate limit service, and notes what became of it.
func (c *caller) ask(ctx context.Context, kind judge.Kind, call judge.Call, user int32, cost int64) judge.Entry {
	addend := cost
	if kind == judge.Check {
		addend, cost = 0, 1
	}
	ctx, a := c.begin(ctx, kind, call, user, cost)
	said, err := c.rls[call.Target].Ask(ctx, rlsclient.NewRequest(c.Event, c.Kinds, a.user.Features, addend))
	a.Answered = int64(time.Since(c.log.Began))
	c.slow(a)
	a.request, a.status = "ShouldRateLimit", int(status.Code(err))
	if err != nil {
		a.body = []byte(err.Error())
		c.unasked(a, status.Code(err))
		c.log.Note(a.Entry, nil)
		return a.Entry
	}
	a.whole = true
	a.body, _ = protojson.Marshal(said) // what was received can be written
	a.Stamp = c.log.At(a.Answered).Unix()
	if said.OverallCode == rlsclient.OverLimit {
		a.Outcome = judge.Denied
	}
	counts, faults := c.statusOf(a, said.Statuses[0])
	c.answered(a, faults)
	c.log.Note(a.Entry, counts)
	return a.Entry
}

// unasked finds out whether a call without a verdict is excused.
func (c *caller) unasked(a *answer, code codes.Code) {
	switch a.Outcome = judge.Unknown; code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	case codes.ResourceExhausted:
		a.Outcome = judge.Refused
	default:
		c.blame(judge.Answers, a, contract.Faults{"a call that is right is answered with the code " + code.String()})
	}
}

// statusOf reads the status of the descriptor: it tells of the limit that says most. No other one denies for longer, or
// has less room. It returns what the limits counted, at the most but for that one, and what is wrong.
func (c *caller) statusOf(a *answer, s *rlsclient.Status) (counts []int64, faults contract.Faults) {
	all := uint64(math.MaxUint64) >> (64 - len(c.Limits))
	said := s.CurrentLimit
	if said == nil { // the limits were not asked, or there are none
		a.OnError = all
		return nil, nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	at := c.placeOf(said)
	if at < 0 {
		fault("the limit is %s, %s, which the rules have not", rlsclient.NameOf(said), rlsclient.Rate(said))
		a.OnError = all
		return nil, faults
	}
	strict := !slices.ContainsFunc(c.Limits, func(l contract.Limit) bool { return !l.Bounded() || l.Ceiling > l.Most() })
	if over := s.Code == rlsclient.OverLimit; over != (a.Outcome == judge.Denied) && (strict || !over) {
		fault("the verdict is another one than that of the descriptor, %s", s.Code)
	}
	left, reset := int64(s.LimitRemaining), s.DurationUntilReset.AsDuration()
	if left > c.Limits[at].Most() {
		fault("%d remain of %s", left, rlsclient.Rate(said))
	}
	for _, l := range c.Limits {
		count := int64(math.MaxInt64)
		if a.Outcome == judge.Admitted && (left > 0 || l.Bounded() && l.Ceiling == l.Most()) {
			count = l.Most() - left
		}
		counts = append(counts, count)
	}
	if a.Inexact = all; a.Outcome == judge.Admitted && s.Code == rlsclient.OK {
		a.Inexact &^= 1 << at
	}
	if a.Outcome != judge.Denied {
		return counts, faults
	}
	a.Denies = 1 << at
	a.RetryAfter = int32(contract.Never)
	if s.DurationUntilReset != nil {
		a.RetryAfter = int32(contract.Ceil(int64(reset), int64(time.Second)))
	}
	fits := int64(a.Cost) <= c.Limits[at].Ceiling
	if left > 0 {
		fault("it is over its limit, and %d remain", left)
	}
	if a.RetryAfter < 1 && fits {
		fault("it is over its limit, and the duration until reset is %s", reset)
	}
	return counts, faults
}

// placeOf returns the place of a limit in the rules, of one without a name the first that admits as much. -1: there
// is none.
func (c *caller) placeOf(said *rlsclient.Limit) int {
	return slices.IndexFunc(c.Limits, func(l contract.Limit) bool {
		named := said.Name == "" || said.Name == l.Name
		return named && l.N == int64(said.RequestsPerUnit) && l.Window == rlsclient.Window(said)
	})
}
