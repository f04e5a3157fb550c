package verify

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/verify/contract"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

// stalled is a target that never answers. It notes when it is called.
type stalled struct {
	began time.Time
	calls chan time.Duration
}

func (s stalled) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls <- time.Since(s.began)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// driverOf drives clients against a target that answers so.
func driverOf(t *testing.T, config Config, target http.RoundTripper) *driver {
	t.Helper()
	rule := wire.Rule{Per: []string{"user"}, Limits: []wire.Limit{{Name: "l", Limit: 2, Window: "30s"}}, Precision: "second"}
	c, err := contract.New(wire.Event{Name: "e", Retention: "1h", Rules: []wire.Rule{rule}})
	require.NoError(t, err)
	d := &driver{config: config}
	d.caller, err = newCaller(config, []string{"http://target"}, target)
	require.NoError(t, err)
	d.Contract, d.log = c, judge.NewLog(c, d.hosts, 10_000, 1)
	return d
}

// The end of the run lets calls under way end; an interrupt does not wait for them.
func TestHowCallsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted bool
		took        time.Duration
	}{
		"at the end of the run": {false, judge.CallTimeout},
		"interrupted":           {true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				whole, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				ctx, end := context.WithTimeout(whole, time.Second)
				defer end()
				d := driverOf(t, Config{Clients: 4, Features: 1, Duration: time.Minute}, stalled{time.Now(), make(chan time.Duration, 1000)})
				d.start(ctx, whole)
				<-ctx.Done()
				if c.interrupted {
					interrupt()
				}
				d.running.Wait()
				assert.Equal(t, c.took, time.Since(d.log.Began))
			})
		})
	}
}

type refusing struct{ calls chan time.Duration }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.calls <- 0
	return nil, errors.New("nobody is there")
}

// A rate holds for those, too, that call for a feature of their own.
func TestTheRateHoldsForAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		calls := make(chan time.Duration, 10_000)
		const rate = 37 // with which the last turn is not at the end
		config := Config{Clients: 4, Features: 1, Rate: rate, Duration: 10 * time.Second}
		d := driverOf(t, config, refusing{calls})
		d.start(ctx, t.Context())
		d.running.Wait()
		bursts := (10_000/int(burstEvery/time.Millisecond) + 1) * min(maxBurst, 2*3+8)
		assert.InDelta(t, rate*10*5/4+bursts, len(calls), 40, "%d are of bursts", bursts)
	})
}
