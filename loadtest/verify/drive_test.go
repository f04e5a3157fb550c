package verify

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/bubble"
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
	tr := trialOf(t, wire.Limit{Name: "l", Limit: 2, Window: "30s"})
	return &driver{config: config, began: time.Now(), caller: &caller{
		contract: tr.contract, people: tr.people, log: tr.log, findings: tr.findings, began: time.Now(),
		targets: []*url.URL{{Scheme: "http", Host: "target"}}, http: &http.Client{Transport: target},
	}}
}

// The end of the run lets calls under way end; one who ends it before does not wait for them.
func TestHowCallsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted bool
		took        time.Duration
	}{
		"at the end of the run": {false, callTimeout},
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
				assert.Equal(t, c.took, time.Since(d.began))
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
		config := Config{Clients: 4, Features: 1, Rate: 40, Duration: 10 * time.Second}
		d := driverOf(t, config, refusing{calls})
		d.start(ctx, t.Context())
		d.running.Wait()
		crowds := (10_000/int(burstEvery/time.Millisecond) + 1) * min(maxCrowd, 2*3+8)
		assert.InDelta(t, 40*10*5/4+crowds, len(calls), 40, "%d are of crowds", crowds)
	})
}
