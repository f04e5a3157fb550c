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
			assert.NoError(t, awaitTurn(t.Context(), turns, wire.Decision{Allowed: true, Wait: wait}))
			assert.Equal(t, want, time.Since(begin))
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.NoError(t, awaitTurn(soon, turns, wire.Decision{Wait: 2}), "a denied hit has no turn")
		err := awaitTurn(soon, turns, wire.Decision{Allowed: true, Wait: 1.001})
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
