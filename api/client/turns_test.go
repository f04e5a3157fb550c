package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// The turn of an admitted hit is awaited to the millisecond; else the server is unavailable for it.
func TestAwaitATurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := wire.NewTurns(1)
		for wait, want := range map[float64]time.Duration{0: 0, 0.2: 200 * time.Millisecond, 1.95: 1950 * time.Millisecond} {
			begin := time.Now()
			assert.NoError(t, awaitTurn(t.Context(), turns, wire.Decision{Allowed: true, Wait: wait}, begin.Add(2*time.Second)))
			assert.Equal(t, want, time.Since(begin))
		}
		soon := time.Now().Add(time.Second)
		assert.NoError(t, awaitTurn(t.Context(), turns, wire.Decision{Wait: 2}, soon), "a denied hit has no turn")
		ending, cancel := context.WithDeadline(t.Context(), soon)
		defer cancel()
		for _, wait := range []float64{1.001, 1e17, 1e300} {
			for _, err := range []error{
				awaitTurn(t.Context(), turns, wire.Decision{Allowed: true, Wait: wait}, soon),
				awaitTurn(ending, turns, wire.Decision{Allowed: true, Wait: wait}, soon.Add(time.Hour)),
			} {
				assert.ErrorIs(t, err, ErrUnavailable)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		assert.Equal(t, soon.Add(-time.Second), time.Now(), "none has waited")
	})
}
