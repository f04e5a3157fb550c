// Package migrate asks two servers of Envoy's RateLimitService the same, in the same order, and finds each verdict in
// which they differ, and why.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/rlsclient"
)

const (
	// maxListed is how many differences are listed; further ones are counted.
	maxListed = 100
	// maxRemembered is of how many descriptors the answers are remembered: of others most causes are not found.
	maxRemembered = 1 << 16
)

// ErrNothing is returned if no request had a verdict of both servers.
var ErrNothing = errors.New("migrate: no request had a verdict of both")

// ErrNoLimit is returned, with a report, if neither server has found a limit for any request: a domain or a key may be
// misspelt.
var ErrNoLimit = errors.New("migrate: nothing was compared: neither server has a limit for what was asked")

// Request is what both are asked.
type Request struct {
	Logged   time.Time // when it was, in a log; zero: it was made up
	Kinds    []string  // the keys of the descriptor's entries, in their order
	Features events.Features
	Cost     int64 // 0: it only looks
}

// Config says what to ask of which servers. All but Progress and Clock are needed.
type Config struct {
	From, To rlsclient.Asker
	Domain   string
	Requests iter.Seq[Request]
	Progress progress.Progress
	Clock    func() time.Time // nil: time.Now
}

// Report is what came of it.
type Report struct {
	From        string       `json:"from"` // the caller's, as To and Traffic
	To          string       `json:"to"`
	Domain      string       `json:"domain"`
	Traffic     string       `json:"traffic"`
	Interrupted bool         `json:"interrupted,omitzero"`
	Requests    int64        `json:"requests"`
	Admitted    int64        `json:"admitted"`            // by both
	Denied      int64        `json:"denied"`              // by both
	Failed      int64        `json:"failed"`              // without a verdict of either
	NoLimit     int64        `json:"no_limit"`            // of those admitted: neither names a limit
	OtherLimit  int64        `json:"other_limit"`         // of the same verdict: they name limits that differ, or one names none
	Example     [2]string    `json:"other_limit_example"` // what -from and -to named first of these
	Different   int64        `json:"different"`
	Causes      []Cause      `json:"causes"` // the most frequent first
	Differences []Difference `json:"differences"`
}

// Cause is a cause, and of how many differences.
type Cause struct {
	Cause    string `json:"cause"`
	Requests int64  `json:"requests"`
}

// Difference is a request of which the verdicts differ.
type Difference struct {
	Number     int64     `json:"number"` // from 1
	Asked      time.Time `json:"asked"`
	Logged     time.Time `json:"logged,omitzero"`
	Descriptor string    `json:"descriptor"`
	Cost       int64     `json:"cost"`
	From       Answer    `json:"from"`
	To         Answer    `json:"to"`
	Cause      string    `json:"cause"`
}

// Answer is what one of the servers said.
type Answer struct {
	Verdict   string `json:"verdict"`         // OK or OVER_LIMIT, or the code of an error
	Limit     string `json:"limit,omitempty"` // what it admits, as 10/h; empty: none is named
	Remaining uint32 `json:"remaining"`
	Reset     int64  `json:"reset"` // seconds; -1: it does not say

	limit  *rlsclient.Limit
	window time.Duration
}

func (a Answer) failed() bool {
	return a.Verdict != rlsclient.OK.String() && a.Verdict != rlsclient.OverLimit.String()
}

func (a Answer) admits() bool { return a.Verdict == rlsclient.OK.String() }

// answerOf returns an answer, or the error in its place.
func answerOf(said *rlsclient.Response, err error) Answer {
	if err != nil {
		return Answer{Verdict: status.Code(err).String(), Reset: -1}
	}
	s := said.Statuses[0]
	a := Answer{Verdict: said.OverallCode.String(), Remaining: s.LimitRemaining, Reset: -1, limit: s.CurrentLimit}
	if a.limit != nil {
		a.Limit, a.window = rlsclient.Rate(a.limit), rlsclient.Window(a.limit)
	}
	if s.DurationUntilReset != nil {
		a.Reset = int64(s.DurationUntilReset.AsDuration() / time.Second)
	}
	return a
}

// Run asks both, each request when both have answered the one before it. When the context ends it asks no more, and the
// report is of what was asked until then. It returns an error of the first request that a server does not
// answer at all, ErrNothing, and ErrNoLimit.
func Run(ctx context.Context, config Config) (*Report, error) {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	bar := progress.Or(config.Progress)
	r := &Report{Domain: config.Domain, Differences: []Difference{}}
	var slides sliding
	known, causes := map[string]*pair{}, map[string]int64{}
	for request := range config.Requests {
		in := rlsclient.NewRequest(config.Domain, request.Kinds, request.Features, request.Cost)
		now := config.Clock()
		from, to, err := both(ctx, config, in)
		if ctx.Err() != nil {
			break
		}
		if r.Requests++; r.Requests == 1 && err != nil {
			return nil, err
		}
		bar.Add(1)
		name := nameOf(in)
		of := known[name]
		if of == nil {
			of = &pair{first: now}
			if len(known) < maxRemembered {
				known[name] = of
			}
		}
		cause := of.compare(now, &slides, request.Cost, from, to)
		r.note(cause == "", from, to)
		switch {
		case from.failed() && to.failed():
			r.Failed++
		case cause == "" && from.admits():
			r.Admitted++
		case cause == "":
			r.Denied++
		default:
			causes[cause]++
			if r.Different++; len(r.Differences) < maxListed {
				r.Differences = append(r.Differences, Difference{r.Requests, now, request.Logged, name, request.Cost, from, to, cause})
			}
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		r.Causes = append(r.Causes, Cause{cause, causes[cause]})
	}
	slices.SortStableFunc(r.Causes, func(a, b Cause) int { return cmp.Compare(b.Requests, a.Requests) })
	switch r.Interrupted = ctx.Err() != nil; {
	case r.Requests == r.Failed:
		return r, cmp.Or(ctx.Err(), ErrNothing)
	case r.Requests == r.Failed+r.NoLimit:
		return r, cmp.Or(ctx.Err(), ErrNoLimit)
	}
	return r, nil
}

// isUnmatched reports whether no limit was found. One that is unlimited is known, and says how much remains.
func (a Answer) isUnmatched() bool { return a.Limit == "" && a.Remaining == 0 }

// note notes which limits two answers name, if their verdict is the same.
func (r *Report) note(same bool, from, to Answer) {
	switch {
	case !same || from.failed():
	case from.isUnmatched() && to.isUnmatched():
		r.NoLimit++
	case from.Limit != to.Limit:
		if r.OtherLimit++; r.OtherLimit == 1 {
			r.Example = [2]string{cmp.Or(from.Limit, noLimit), cmp.Or(to.Limit, noLimit)}
		}
	}
}

// both asks both at once. An error is that of a server that is not there, or refuses all.
func both(ctx context.Context, config Config, in *rlsclient.Request) (from, to Answer, err error) {
	var toErr error
	var asking sync.WaitGroup
	asking.Go(func() {
		var said *rlsclient.Response
		said, toErr = config.To.Ask(ctx, in)
		to = answerOf(said, toErr)
	})
	said, fromErr := config.From.Ask(ctx, in)
	from = answerOf(said, fromErr)
	asking.Wait()
	refuses := func(err error) bool {
		code := status.Code(err)
		return err != nil && code != codes.DeadlineExceeded && code != codes.Unknown
	}
	switch {
	case refuses(fromErr):
		return from, to, fmt.Errorf("-from: %w", fromErr)
	case refuses(toErr):
		return from, to, fmt.Errorf("-to: %w", toErr)
	}
	return from, to, nil
}

// nameOf returns the entries of the descriptor of a request, as key=value,key=value.
func nameOf(in *rlsclient.Request) string {
	var parts []string
	for _, e := range in.Descriptors[0].Entries {
		parts = append(parts, e.Key+"="+e.Value)
	}
	return strings.Join(parts, ",")
}
