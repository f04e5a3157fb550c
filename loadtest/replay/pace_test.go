package replay_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/bubble"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/loadtest/replay"
)

// inProcess is a server that is reached without a network, which knows no fake time.
type inProcess struct {
	server http.Handler
	takes  func(r *http.Request) time.Duration // the way to the server; nil: nothing
	back   time.Duration                       // and back, of increments

	mu       sync.Mutex
	arrivals []time.Time // of increments
}

func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	increments := strings.HasSuffix(r.URL.Path, "/increment")
	if increments {
		p.mu.Lock()
		p.arrivals = append(p.arrivals, time.Now())
		p.mu.Unlock()
	}
	if p.takes != nil {
		time.Sleep(p.takes(r))
	}
	served := r.WithContext(r.Context())
	if served.Body == nil { // a server always has one
		served.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	p.server.ServeHTTP(recorder, served)
	if increments {
		time.Sleep(p.back)
	}
	return recorder.Result(), nil
}

// offsets returns how long after the first one increments arrived, in order.
func (p *inProcess) offsets() []time.Duration {
	slices.SortFunc(p.arrivals, time.Time.Compare)
	var offsets []time.Duration
	for _, at := range p.arrivals {
		offsets = append(offsets, at.Sub(p.arrivals[0]))
	}
	return offsets
}

// pacedConfig returns a configuration for the server, in a bubble.
func pacedConfig(t *testing.T, server *inProcess, speed float64) replay.Config {
	t.Helper()
	c, err := client.New(client.Config{URL: "http://counterd.test", Transport: server, Timeout: time.Hour})
	require.NoError(t, err)
	return replay.Config{Client: c, Event: "e", Speed: speed}
}

// milliseconds is a log of an event by one of three users at each of the moments.
func milliseconds(t *testing.T, moments ...int) *accesslog.Log {
	t.Helper()
	var text strings.Builder
	for i, at := range moments {
		fmt.Fprintf(&text, `{"ts": %d.%03d, "user": "%d"}`+"\n", 1_431_857_000+at/1000, at%1000, i%3)
	}
	return readLogOf(t, "user", text.String())
}

// Each event is sent when it is due, to the nanosecond, however slow the answers are.
func TestEventsAreSentWhenTheyAreDue(t *testing.T) {
	for _, speed := range []float64{1, 0.5, 60} {
		bubble.Test(t, func(t *testing.T) {
			server := &inProcess{server: &fakeserver.Server{Event: events.Event{Name: "e"}}, back: 3700 * time.Millisecond}
			moments := []int{0, 10, 10, 1500, 1999, 2000, 61_000, 61_001, 200_000}
			log := milliseconds(t, moments...)
			result, err := replay.Run(t.Context(), pacedConfig(t, server, speed), log)
			require.NoError(t, err)
			for i, offset := range server.offsets() {
				assert.InDelta(t, float64(moments[i])*1e6/speed, float64(offset), 1, "event %d at speed %v", i, speed)
			}
			assert.Equal(t, len(moments), result.Events)
			assert.Zero(t, result.Late)
			assert.Zero(t, result.Skipped)
			assert.Equal(t, speed, result.Speed)
			assert.True(t, result.OK(), "%v", result.FirstDifferences)
			assert.Equal(t, 3, result.Counters)
			took := replay.Takes(log, speed) + server.back
			assert.Equal(t, took.Seconds(), result.Seconds)
		})
	}
}

// With too many under way an event waits for its turn, and that is said.
func TestEventsThatWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := &inProcess{server: &fakeserver.Server{Event: events.Event{Name: "e"}}, back: time.Second}
		config := pacedConfig(t, server, 1)
		config.Concurrency = 2
		result, err := replay.Run(t.Context(), config, milliseconds(t, 0, 0, 0, 0, 0, 950, 9000))
		require.NoError(t, err)
		const s = time.Second
		assert.Equal(t, []time.Duration{0, 0, s, s, 2 * s, 2 * s, 9 * s}, server.offsets())
		assert.Equal(t, 4, result.Late)
		assert.Equal(t, 2.0, result.Latest)
		assert.True(t, result.OK())
		var text strings.Builder
		require.NoError(t, result.WriteText(&text))
		assert.Contains(t, text.String(), "speed        1  times the log's own\nlate         4  sent more than 100ms after they were due, up to 2s\n")
		assert.NotContains(t, text.String(), "skipped")
	})
}

// What is on its way for long is counted where the server says, not where it was sent: the
// exact log agrees, in every window.
func TestStampsAreTheServers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n atomic.Int64
		server := &inProcess{server: &fakeserver.Server{Event: events.Event{Name: "e"}}, takes: func(r *http.Request) time.Duration {
			if !strings.HasSuffix(r.URL.Path, "/increment") {
				return 0
			}
			return time.Duration(n.Add(1)*7%5) * 900 * time.Millisecond
		}}
		config := pacedConfig(t, server, 1)
		config.Windows = []time.Duration{time.Second, 2 * time.Second, time.Minute}
		config.Moments = 20
		var moments []int
		for i := range 100 {
			moments = append(moments, i*130)
		}
		result, err := replay.Run(t.Context(), config, milliseconds(t, moments...))
		require.NoError(t, err)
		assert.Equal(t, 100, result.Events)
		assert.Greater(t, result.Comparisons, int64(60))
		assert.True(t, result.OK(), "%v", result.FirstDifferences)
	})
}

// Whatever a server does wrong is found in a paced replay, too.
func TestWrongServersInAPacedReplay(t *testing.T) {
	run := func(t *testing.T, server *fakeserver.Server) (*replay.Result, error) {
		server.Event.Name = "e"
		config := pacedConfig(t, &inProcess{server: server}, 2)
		config.Windows = []time.Duration{time.Minute} // to be asked for as of the last event
		return replay.Run(t.Context(), config, milliseconds(t, 0, 400, 2000, 2001, 9000))
	}
	for wrong := 1; wrong <= 5; wrong++ {
		for _, times := range []int{0, 2} {
			bubble.Test(t, func(t *testing.T) {
				result, err := run(t, &fakeserver.Server{Times: func(n int) int {
					if n == wrong {
						return times
					}
					return 1
				}})
				require.NoError(t, err)
				assert.NotZero(t, result.Differences, "increment %d counted %d times", wrong, times)
			})
		}
	}
	bubble.Test(t, func(t *testing.T) {
		result, err := run(t, &fakeserver.Server{Sum: func(from, to int64) (int64, int64) { return from, to - 1 }})
		require.NoError(t, err)
		assert.NotZero(t, result.Differences, "the last second is not in its windows")
	})
	for _, off := range []int{-2, 2, 3600} {
		bubble.Test(t, func(t *testing.T) {
			_, err := run(t, &fakeserver.Server{Stamped: func(i *wire.Incremented) { i.At.Time = i.At.Add(time.Duration(off) * time.Second) }})
			require.ErrorIs(t, err, replay.ErrContract, "%d s off", off)
		})
	}
	bubble.Test(t, func(t *testing.T) {
		result, err := run(t, &fakeserver.Server{Status: func(n int) int {
			if n == 2 {
				return http.StatusServiceUnavailable
			}
			return 0
		}})
		require.NoError(t, err)
		assert.Equal(t, 1, result.Failed)
		assert.Equal(t, 1, result.Unsure)
		assert.Equal(t, 4, result.Events)
		assert.False(t, result.OK())
	})
	bubble.Test(t, func(t *testing.T) {
		result, err := run(t, &fakeserver.Server{Status: func(int) int { return http.StatusBadRequest }})
		require.ErrorIs(t, err, client.ErrInvalid, "nothing of a paced replay is too old")
		assert.Zero(t, result.Skipped)
	})
}

func TestItIsSaidHowLongItStillTakes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := milliseconds(t, 0, 7000, 7300, 9000)
		config := pacedConfig(t, &inProcess{server: &fakeserver.Server{Event: events.Event{Name: "e"}}}, 2)
		var told []time.Duration
		var added atomic.Int64
		config.Progress = progress{
			start: func(string) { added.Store(0) },
			add:   func() { added.Add(1) },
			left: func(d time.Duration) {
				if told = append(told, d); len(told) == 1 {
					assert.Zero(t, added.Load(), "it is told before the first step")
				}
			},
		}
		_, err := replay.Run(t.Context(), config, log)
		require.NoError(t, err)
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{4500 * ms, 3500 * ms, 2500 * ms, 1500 * ms, 500 * ms}, told)
	})
}

// A replay that is ended while it waits ends, and says what it had sent.
func TestAPacedReplayIsInterrupted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancel()
		server := &inProcess{server: &fakeserver.Server{Event: events.Event{Name: "e"}}}
		begin := time.Now()
		result, err := replay.Run(ctx, pacedConfig(t, server, 1), milliseconds(t, 0, 3_600_000, 7_200_000))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 90*time.Minute, time.Since(begin))
		assert.Equal(t, 2, result.Events)
	})
}

func TestSpeedsThatCannotBe(t *testing.T) {
	log := milliseconds(t, 0, 1000)
	for _, speed := range []float64{-1, math.NaN(), 1e-9, math.SmallestNonzeroFloat64, math.Inf(1)} {
		_, err := replay.Run(t.Context(), replay.Config{Speed: speed}, log)
		require.ErrorIs(t, err, replay.ErrSpeed)
	}
	require.NoError(t, replay.CheckSpeed(math.MaxFloat64, log))
	assert.Zero(t, replay.Takes(log, math.MaxFloat64))
	assert.Zero(t, replay.Takes(log, 0))
	assert.Zero(t, replay.Takes(&accesslog.Log{}, 1))
	assert.Equal(t, 250*time.Millisecond, replay.Takes(log, 4))
}
