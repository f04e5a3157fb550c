package memcache_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

type callerKey struct{}

// toldTrips keeps what a fleet tells of its trips.
type toldTrips struct {
	mu      sync.Mutex
	trips   []memcache.RoundTrip
	callers []any // what the context of each has of its caller
}

func (t *toldTrips) tripped(ctx context.Context, trip memcache.RoundTrip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trips = append(t.trips, trip)
	t.callers = append(t.callers, ctx.Value(callerKey{}))
}

// take returns the trips that were reported since the last time, each as a line.
func (t *toldTrips) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for i, trip := range t.trips {
		lines = append(lines, fmt.Sprintf("%s of %v: %d, %d, %s", trip.Kind, t.callers[i], trip.Adds, trip.Reads, memcache.OutcomeOf(trip.Err)))
	}
	t.trips, t.callers = nil, nil
	return lines
}

func TestTripsAreTold(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		told := &toldTrips{}
		fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, OnRoundTrip: told.tripped})
		ctx := context.WithValue(t.Context(), callerKey{}, "me")
		began := time.Now()
		landed, _, err := tripOf(ctx, fleet, 2, 3)
		require.NoError(t, err)
		trip := told.trips[0]
		assert.Equal(t, server.Addr, trip.Server)
		assert.WithinRange(t, trip.Began, began, time.Now())
		assert.WithinRange(t, trip.Began.Add(trip.Took), trip.Began, time.Now())
		require.Equal(t, []string{"exchange of me: 2, 3, ok"}, told.take())

		values := make([]int64, 2)
		for _, op := range doTogether(ctx, fleet, "a", "b") {
			require.NoError(t, op.Err)
		}
		require.Equal(t, []string{"exchange of me: 1, 1, ok", "exchange of me: 1, 1, ok"}, told.take())

		require.NoError(t, storetest.RollBack(ctx, fleet, "a", 1, []uint64{1, 2}, landed))
		require.NoError(t, storetest.Delete(ctx, fleet, "a", []uint64{1, 2, 3}))
		require.Equal(t, []string{"roll_back of me: 2, 0, ok", "delete of me: 3, 0, ok"}, told.take())

		require.NoError(t, storetest.Look(ctx, fleet, "a", server.Addr, []uint64{1, 2}, values, make([]uint64, 2)))
		for _, want := range []bool{true, false} { // the second time it is there
			raised, err := storetest.Raise(ctx, fleet, "a", server.Addr, 1, 0, 5, later())
			require.NoError(t, err)
			require.Equal(t, want, raised)
		}
		require.Equal(t, []string{"repair_read of me: 0, 2, ok", "repair_write of me: 1, 0, ok", "repair_write of me: 1, 0, ok"}, told.take())

		_, err = storetest.Trip(ctx, fleet, "a", 1, nil, nil, nil, nil)
		require.NoError(t, err)
		require.Empty(t, told.take(), "no server was asked")
		require.NoError(t, fleet.Close())
		_, _, err = tripOf(ctx, fleet, 1, 1)
		require.ErrorIs(t, err, memcache.ErrClosed)
		require.Equal(t, []string{"exchange of me: 1, 1, closed"}, told.take())
	})
}

// Failed trips are reported, and so are calls that a breaker stopped.
func TestFailedTripsAreTold(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		told := &toldTrips{}
		fleet := openConfig(t, memcache.Unwatched(memcache.Config{Servers: []string{server.Addr}, Protocol: protocol, OnRoundTrip: told.tripped}))
		server.Stop()
		var want []string
		for range 3 { // the breaker opens with the third
			_, _, err := tripOf(t.Context(), fleet, 1, 0)
			require.Error(t, err)
			want = append(want, "exchange of <nil>: 1, 0, refused")
		}
		_, _, err := tripOf(t.Context(), fleet, 2, 1)
		require.ErrorIs(t, err, memcache.ErrDown)
		for _, op := range doTogether(t.Context(), fleet, "a", "b") {
			require.ErrorIs(t, op.Err, memcache.ErrDown)
		}
		want = append(want, "exchange of <nil>: 2, 1, down", "exchange of <nil>: 1, 1, down", "exchange of <nil>: 1, 1, down")
		require.Equal(t, want, told.take())
	})
}

// A replica whose answer is not awaited any longer is reported as timed out, once, also
// where it answers later.
func TestAReplicaGivenUpIsReportedOnce(t *testing.T) {
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic, memcache.Auto} {
		inBubble(t, protocol.String(), func(t *testing.T) {
			told, servers := &toldTrips{}, memories(t, 2)
			config := memcache.Config{Servers: slices.Collect(maps.Keys(servers)), Replicas: 2, Protocol: protocol, OnRoundTrip: told.tripped}
			fleet := openConfig(t, memcache.Unwatched(config))
			keep(t, fleet, "a", 5, 1)
			told.take()
			slow := servers[fleet.Servers("a")[1]]
			slow.Pause()
			landed := landedOf(t, fleet, "a", 1, 1)
			require.ElementsMatch(t, []string{"exchange of <nil>: 1, 0, ok", "exchange of <nil>: 1, 0, timeout"}, told.take())
			slow.Resume()
			testkit.Await(t, maxWait, "the slow server has the cost", func() bool { return holds(t, fleet, "a", slow.Addr, 1)[0] == 6 })
			require.NoError(t, fleet.Close()) // with it end the goroutines that still had it
			require.NotContains(t, fmt.Sprint(told.take()), "exchange of")
			require.NotZero(t, landed)
		})
	}
}

// A trip lies where the wall clock has it, also where that was set since the process began.
func TestTripsAfterTheClockWasSet(t *testing.T) {
	const hour = 60 * 60
	require.True(t, memcache.SetClockForward(hour))
	t.Cleanup(func() { memcache.SetClockForward(-hour) })
	server := memcachedtest.StartMemory(t)
	told := &toldTrips{}
	fleet := openConfig(t, memcache.Config{Servers: []string{server.Addr}, OnRoundTrip: told.tripped})
	began := time.Now()
	add(t, fleet, "a", 1, 1)
	wall := told.trips[0].Began.Round(0)
	assert.WithinRange(t, wall, began.Add(-time.Minute).Round(0), time.Now().Add(time.Minute).Round(0))
	assert.WithinRange(t, told.trips[0].Began, began, time.Now())
}

// A replica's trip ends with its answer, not when its caller, which waits for others first,
// takes it.
func TestATripEndsWithItsAnswer(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		told := &toldTrips{}
		servers := slices.Collect(maps.Keys(memories(t, 2)))
		fleet := openConfig(t, memcache.Config{Servers: servers, Replicas: 2, Protocol: protocol, OnRoundTrip: told.tripped})
		ended := make(chan int, 1)
		op := storetest.Op("a", 1, []uint64{1}, []int64{later()}, nil)
		copied := fleet.StartCopy(t.Context(), op, ended)
		<-ended
		answered := time.Now()
		for !time.Now().After(answered) {
		}
		copied.End(op)
		require.NoError(t, op.Err)
		trip := told.trips[0]
		assert.Positive(t, trip.Took)
		assert.False(t, trip.Began.Add(trip.Took).After(answered))
	})
}

func TestOutcomes(t *testing.T) {
	for want, err := range map[string]error{
		memcache.OutcomeOK:      nil,
		memcache.OutcomeTimeout: fmt.Errorf("a server: %w", os.ErrDeadlineExceeded),
		memcache.OutcomeDown:    fmt.Errorf("a server: %w", memcache.ErrDown),
		memcache.OutcomeClosed:  memcache.ErrClosed,
		memcache.OutcomeError:   errors.New("nonsense"),
	} {
		assert.Equal(t, want, memcache.OutcomeOf(err))
		assert.Contains(t, memcache.Outcomes(), want)
	}
	assert.Equal(t, memcache.OutcomeTimeout, memcache.OutcomeOf(context.DeadlineExceeded))
	assert.Equal(t, memcache.OutcomeError, memcache.OutcomeOf(context.Canceled))
	var kinds []string
	for _, kind := range memcache.RoundTripKinds() {
		kinds = append(kinds, kind.String())
	}
	assert.Equal(t, []string{"exchange", "roll_back", "delete", "repair_read", "repair_write"}, kinds)
	assert.Equal(t, "TripKind(9)", memcache.RoundTripKind(9).String())
}
