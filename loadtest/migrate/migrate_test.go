package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/migrate"
	"github.com/counterd/counterd/loadtest/rlsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a small one of the rate limit service, with a limit of n a minute for each value, or as the flags say.
type server struct {
	n         int64
	slides    bool // as counterd does, or a fixed window as envoyproxy/ratelimit
	countsAll bool
	shadow    bool
	unlimited bool
	unknown   bool // it has no limit for what is asked
	fails     func(n int) codes.Code

	clock *testkit.Clock
	asked int
	log   map[string][]hit
}

type hit struct {
	at   time.Time
	cost int64
}

func (s *server) Ask(_ context.Context, in *rlsclient.Request) (*rlsclient.Response, error) {
	if s.asked++; s.fails != nil && s.fails(s.asked) != codes.OK {
		return nil, status.Error(s.fails(s.asked), "as the test has it")
	}
	answer := &rlsclient.Response{OverallCode: rlsclient.OK, Statuses: []*rlsclient.Status{{Code: rlsclient.OK}}}
	said := answer.Statuses[0]
	switch {
	case s.unlimited:
		said.LimitRemaining = math.MaxUint32
		return answer, nil
	case s.unknown:
		return answer, nil
	}
	d, now := in.Descriptors[0], s.clock.Now()
	cost, key := int64(d.HitsAddend.Value), d.Entries[0].Value
	begins := now.Truncate(time.Minute)
	reset := begins.Add(time.Minute).Sub(now)
	if s.slides {
		begins, reset = now.Add(-time.Minute+1), 0
	}
	held := int64(0)
	for _, h := range s.log[key] {
		if !h.at.Before(begins) {
			held += h.cost
		}
	}
	over := held+cost > s.n || s.slides && held+max(cost, 1) > s.n
	if s.log == nil {
		s.log = map[string][]hit{}
	}
	if !over || s.countsAll || s.shadow {
		s.log[key] = append(s.log[key], hit{now, cost})
	}
	said.CurrentLimit = &rlsclient.Limit{RequestsPerUnit: uint32(s.n), Unit: 1, UnitMultiplier: wrapperspb.UInt32(60)}
	switch {
	case !over:
		said.LimitRemaining = uint32(s.n - held - cost)
	case !s.shadow:
		if answer.OverallCode, said.Code = rlsclient.OverLimit, rlsclient.OverLimit; s.slides {
			reset = s.log[key][0].at.Add(time.Minute).Sub(now)
		}
	}
	said.DurationUntilReset = durationpb.New(reset.Round(time.Second))
	return answer, nil
}

// ask is a request of so many seconds after the one before.
type ask struct {
	after int
	user  string
	cost  int64
}

func times(n int, a ask) (list []ask) {
	for range n {
		list = append(list, a)
	}
	return list
}

func compare(t *testing.T, from, to *server, asks ...ask) *migrate.Report {
	t.Helper()
	clock := testkit.NewClock(time.Unix(1_000_000*60+30, 0))
	from.clock, to.clock = clock, clock
	report, err := migrate.Run(t.Context(), migrate.Config{
		From: from, To: to, Domain: "d", Clock: clock.Now, Requests: requests(clock, asks),
	})
	require.NoError(t, err)
	return report
}

func requests(clock *testkit.Clock, asks []ask) iter.Seq[migrate.Request] {
	return func(yield func(migrate.Request) bool) {
		for _, a := range asks {
			clock.Advance(time.Duration(a.after) * time.Second)
			if !yield(migrate.Request{Kinds: []string{"user"}, Features: events.Features{"user": a.user}, Cost: a.cost}) {
				return
			}
		}
	}
}

// Each cause is found, and named by the side that it is of.
func TestCauses(t *testing.T) {
	one, look := ask{1, "a", 1}, ask{1, "a", 0}
	fixed, slides := func() *server { return &server{n: 3} }, func() *server { return &server{n: 3, slides: true} }
	failing := func(code codes.Code) *server {
		return &server{n: 3, fails: func(n int) codes.Code {
			if n == 2 {
				return code
			}
			return codes.OK
		}}
	}
	for name, c := range map[string]struct {
		from, to *server
		asks     []ask
		cause    string
		n        int64
	}{
		"fixed window that was reset": {fixed(), slides(), append(append([]ask{{20, "a", 1}}, times(2, one)...), ask{10, "a", 1}), "" +
			"fixed against sliding window: that of -from has been reset, that of -to still holds earlier hits", 1},
		"the other way around": {slides(), fixed(), append(append([]ask{{20, "a", 1}}, times(2, one)...), ask{10, "a", 1}), "" +
			"fixed against sliding window: that of -to has been reset, that of -from still holds earlier hits", 1},
		"a sliding window that ends as a fixed one": {fixed(), slides(), []ask{{10, "b", 3}, {1, "b", 1}, {18, "a", 3}, {2, "a", 1}}, "" +
			"fixed against sliding window: that of -from has been reset, that of -to still holds earlier hits", 1},
		"fixed window, full": {fixed(), slides(), []ask{{20, "a", 3}, {15, "a", 3}, {46, "a", 3}}, "" +
			"fixed against sliding window: earlier hits have left that of -to, that of -from is full until its end", 1},
		"denied hits count": {&server{n: 10, countsAll: true}, &server{n: 10, slides: true}, []ask{{1, "a", 7}, {1, "a", 5}, {1, "a", 3}}, "" +
			"denied hits count at -from, not at -to", 1},
		"denied hits count in a sliding window": {slides(), &server{n: 3, slides: true, countsAll: true}, append(append(times(3, one), times(6, ask{9, "a", 1})...), ask{8, "a", 1}), "" +
			"denied hits count at -to, not at -from", 1},
		"no limit":         {fixed(), &server{unknown: true}, times(4, one), "no limit found at -to, or its store did not answer; there is one at -from", 1},
		"unlimited":        {&server{unlimited: true}, fixed(), times(5, one), "unlimited at -from, limited at -to", 2},
		"different limits": {&server{n: 3}, &server{n: 5}, times(4, one), "different limits: 5/m at -to, 3/m at -from", 1},
		"shadow":           {&server{n: 3, shadow: true}, fixed(), times(5, one), "admitted beyond the limit at -from, as in shadow mode; enforced at -to", 2},
		"shadow that slides": {fixed(), &server{n: 3, shadow: true, slides: true}, times(4, one), "" +
			"admitted beyond the limit at -to, as in shadow mode; enforced at -from", 1},
		"a look":            {fixed(), slides(), append(times(3, one), look), "a look at a full limit: OK at -from, OVER_LIMIT at -to", 1},
		"an error":          {fixed(), failing(codes.Unavailable), times(2, one), "-to gives no verdict: Unavailable", 1},
		"a timeout":         {failing(codes.DeadlineExceeded), fixed(), times(2, one), "-from gives no verdict: DeadlineExceeded", 1},
		"errors of both":    {failing(codes.Internal), failing(codes.Internal), times(3, one), "", 0},
		"nothing different": {fixed(), fixed(), times(9, one), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			report := compare(t, c.from, c.to, c.asks...)
			if c.n == 0 {
				assert.Zero(t, report.Different, "%+v", report.Differences)
				return
			}
			require.Contains(t, report.Causes, migrate.Cause{Cause: c.cause, Requests: c.n}, "%+v", report.Differences)
			assert.Len(t, report.Causes, 1+strings.Count(name, ", full"), "that was reset before")
			assert.EqualValues(t, len(c.asks), report.Admitted+report.Denied+report.Failed+report.Different)
			last := report.Differences[len(report.Differences)-1]
			assert.Equal(t, c.cause, last.Cause)
			assert.Equal(t, "user=a", last.Descriptor)
			assert.EqualValues(t, len(c.asks), last.Number)
		})
	}
}

// A target that other callers also use has counted more.
func TestLessIsCounted(t *testing.T) {
	to := &server{n: 3, slides: true, log: map[string][]hit{"a": {{time.Unix(1_000_000*60+30, 0), 1}}}}
	report := compare(t, &server{n: 3}, to, times(3, ask{1, "a", 1})...)
	assert.Equal(t, []migrate.Cause{{Cause: "less is counted at -from than at -to", Requests: 1}}, report.Causes)
}

// Of many differences some are listed, and the others counted.
func TestManyDifferences(t *testing.T) {
	report := compare(t, &server{n: 1}, &server{unknown: true}, times(300, ask{0, "a", 1})...)
	assert.EqualValues(t, 299, report.Different)
	assert.Len(t, report.Differences, 100)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "and 199 more\n")
	assert.Contains(t, text.String(), "OVER_LIMIT, 0 of 1/m, reset in 30s  OK, no limit  no limit found at -to")
}

// An interrupt ends it, and what was asked until then is reported.
func TestAnInterruptOfMigrate(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	clock := testkit.NewClock(time.Unix(0, 0))
	from, to := &server{n: 3, clock: clock}, &server{n: 3, clock: clock}
	to.fails = func(n int) codes.Code {
		if n == 3 {
			interrupt()
		}
		return codes.OK
	}
	report, err := migrate.Run(ctx, migrate.Config{From: from, To: to, Requests: requests(clock, times(9, ask{1, "a", 1}))})
	require.NoError(t, err)
	assert.True(t, report.Interrupted)
	assert.EqualValues(t, 2, report.Requests)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), fmt.Sprintf("%-10s 2; interrupted\n", "requests"))
}
