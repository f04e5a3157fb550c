package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/rlsclient"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// rlsRules are the rules of the same target, as a file has them.
const (
	slidingFile = "events: {verify: {limits: [{per: user, rate: [3/s, 5/3s]}, {per: ip, rate: 8/2s}]}}"
	fixedFile   = "events: {verify: {limits: [{per: user, rate: 5/4s, algorithm: fixed-window}]}}"
	theirsFile  = "events: {verify: {limits: [{per: user, rate: 5/4s, algorithm: fixed-window, count: all}]}}"
)

// rlsTarget has a target answer as Envoy's RateLimitService does.
type rlsTarget struct {
	*network
	says func(*rlsclient.Response)
}

func (s rlsTarget) Ask(_ context.Context, in *rlsclient.Request) (*rlsclient.Response, error) {
	s.travel()
	features := map[string]string{}
	for _, e := range in.Descriptors[0].Entries {
		features[e.Key] = e.Value
	}
	cost := int64(in.Descriptors[0].HitsAddend.Value)
	d := s.server.(*target).decide(features, max(cost, 1), cost > 0, false)
	s.travel()
	answer := &rlsclient.Response{OverallCode: rlsclient.OK, Statuses: []*rlsclient.Status{{Code: rlsclient.OK}}}
	status, said := answer.Statuses[0], 0
	if !d.Allowed {
		answer.OverallCode, status.Code = rlsclient.OverLimit, rlsclient.OverLimit
	}
	for i, l := range d.Limits {
		switch than := d.Limits[said]; {
		case l.Allowed && than.Allowed && l.Remaining < than.Remaining, !l.Allowed && than.Allowed,
			!l.Allowed && !than.Allowed && *l.Reset > *than.Reset:
			said = i
		}
	}
	l := d.Limits[said]
	window, err := time.ParseDuration(l.Window)
	if err != nil {
		return nil, err
	}
	status.CurrentLimit = &rlsclient.Limit{
		Name: l.Name, RequestsPerUnit: uint32(l.Limit), Unit: 1, UnitMultiplier: wrapperspb.UInt32(uint32(window / time.Second)),
	}
	if status.DurationUntilReset = durationpb.New(time.Duration(*l.Reset) * time.Second); d.Allowed {
		status.LimitRemaining = uint32(l.Remaining)
	}
	if s.says != nil {
		s.says(answer)
	}
	return answer, nil
}

func againstRLS(rules string, s rlsTarget) Config {
	config := Config{
		RLS: []string{"a:1", "b:1"}, askers: []rlsclient.Asker{s, s}, Duration: 6 * time.Second, Clients: 4, Features: 12, Rate: 300, Seed: 1,
		Skew: time.Millisecond,
	}
	config.Fleet.Rules = rules
	return config
}

// rulesIn returns a target of the rules of a file.
func rulesIn(file string, change ...func(*target)) *network {
	s := &target{}
	switch file {
	case slidingFile:
		s.rules = targetRules
	case fixedFile:
		s.rules = append(s.rules, with(ruleOf("user", "5/4s"), by("fixed-window")))
	case theirsFile:
		s.rules = append(s.rules, with(ruleOf("user", "5/4s"), by("fixed-window"), allHits))
	}
	for _, f := range change {
		f(s)
	}
	return s.transport().(*network)
}

// What is right passes, and all was looked at.
func TestRightRLSTargets(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"sliding": slidingFile, "fixed": fixedFile, "as envoyproxy/ratelimit": theirsFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				report, text := reportOf(t, againstRLS(file, rlsTarget{network: rulesIn(file)}))
				require.True(t, report.OK(), text)
				c := report.Checked
				for name, n := range map[string]int64{
					"windows": c.Windows, "denials": c.Denials, "counts": c.Counts, "bodies": c.Bodies, "waits": c.Waits, "predictions": 2*c.Predictions - c.Lone,
					"checks": report.Calls["check"], "retries": c.Retries,
				} {
					assert.Positive(t, n, name)
				}
				assert.Equal(t, map[string]int64{
					"batch": 0, "increment": 0, "late": 0, "count": 0, "reset": 0, "settle": 0, "renew": 0,
					"hit": report.Calls["hit"], "check": report.Calls["check"],
				}, report.Calls)
				assert.Contains(t, text, "not held")
			})
		})
	}
}

// Each wrong target is caught, by what it does wrong.
func TestWrongRLSTargets(t *testing.T) {
	t.Parallel()
	said := func(change func(*rlsclient.Status)) func(*rlsclient.Response) {
		return func(r *rlsclient.Response) { change(r.Statuses[0]) }
	}
	over := func(s *rlsclient.Status) bool { return s.Code == rlsclient.OverLimit }
	for name, c := range map[string]struct {
		file   string
		change func(*target)
		says   func(*rlsclient.Response)
		check  string
		slow   bool
	}{
		"admits one too many":     {slidingFile, func(s *target) { s.deniesAbove = func(l contract.Limit) int64 { return l.N + 1 } }, nil, judge.Windows, false},
		"admits one too few":      {slidingFile, func(s *target) { s.deniesAbove = func(l contract.Limit) int64 { return l.N - 1 } }, nil, judge.Denials, false},
		"has fixed windows":       {slidingFile, func(s *target) { s.fixedWindows = true }, nil, judge.Windows, true},
		"forgets a hit":           {slidingFile, func(s *target) { s.forgets = func(n int) bool { return n%10 == 0 } }, nil, judge.Windows, false},
		"counts a hit twice":      {slidingFile, func(s *target) { s.twice = func(n int) bool { return n%10 == 0 } }, nil, judge.Denials, false},
		"counts what it denies":   {slidingFile, func(s *target) { s.takesNoneBack = true }, nil, judge.Denials, false},
		"reads, and adds later":   {slidingFile, func(s *target) { s.readThenIncrement = true }, nil, judge.Windows, false},
		"fixed: one too many":     {fixedFile, func(s *target) { s.deniesAbove = func(l contract.Limit) int64 { return l.N + 1 } }, nil, judge.Windows, false},
		"fixed: slides":           {fixedFile, func(s *target) { s.slides = true }, nil, judge.Denials, true},
		"fixed: turns late":       {fixedFile, func(s *target) { s.turnsLate = 1 }, nil, judge.Denials, false},
		"theirs: forgets denials": {theirsFile, func(s *target) { s.takesBack = true }, nil, judge.Counts, false},
		"remaining is one more":   {slidingFile, nil, said(func(s *rlsclient.Status) { s.LimitRemaining += 1 - min(1, uint32(s.Code-1)) }), judge.Counts, false},
		"remaining is one less":   {slidingFile, nil, said(func(s *rlsclient.Status) { s.LimitRemaining -= min(s.LimitRemaining, 1) }), judge.Counts, false},
		"resets a second too soon": {slidingFile, nil, said(func(s *rlsclient.Status) {
			s.DurationUntilReset.Seconds -= min(1, max(s.DurationUntilReset.Seconds-1, 0))
		}), judge.RetryAfter, false},
		"resets a second too late": {slidingFile, nil, said(func(s *rlsclient.Status) {
			if over(s) {
				s.DurationUntilReset.Seconds++
			}
		}), judge.RetryAfter, false},
		"no reset": {slidingFile, nil, said(func(s *rlsclient.Status) {
			if over(s) {
				s.DurationUntilReset = nil
			}
		}), judge.Bodies, false},
		"another limit": {slidingFile, nil, said(func(s *rlsclient.Status) { s.CurrentLimit.RequestsPerUnit++ }), judge.Bodies, false},
		"over, and the verdict is OK": {slidingFile, nil, func(r *rlsclient.Response) {
			r.OverallCode = rlsclient.OK
		}, judge.Bodies, false},
		"remaining, and over": {slidingFile, nil, said(func(s *rlsclient.Status) {
			if over(s) {
				s.LimitRemaining = 1
			}
		}), judge.Bodies, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				if c.change == nil {
					c.change = func(*target) {}
				}
				config := againstRLS(c.file, rlsTarget{rulesIn(c.file, c.change), c.says})
				if c.slow { // so that windows do not fill at once
					config.Rate, config.Duration = 30, 30*time.Second
				}
				report, text := reportOf(t, config)
				assert.Positive(t, report.Wrong[c.check], "%s", text)
			})
		})
	}
}
