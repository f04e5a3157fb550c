package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// A turn is awaited to the millisecond, unless the context ends before or too many wait.
func TestAwaitATurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		await := func(ctx context.Context, wait float64) (took time.Duration, err error) {
			begin := time.Now()
			err = turns.await(ctx, wire.Decision{Allowed: true, Wait: wait})
			return time.Since(begin), err
		}
		for wait, want := range map[float64]time.Duration{0: 0, 0.2: 200 * time.Millisecond, 1.95: 1950 * time.Millisecond} {
			took, err := await(t.Context(), wait)
			assert.NoError(t, err)
			assert.Equal(t, want, took)
		}
		assert.NoError(t, turns.await(t.Context(), wire.Decision{Wait: 1}), "a denied hit has no turn")
		assert.NoError(t, newTurns(-1).await(t.Context(), wire.Decision{Allowed: true, Wait: 1}))
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, err := await(soon, 1.001)
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, took, "in vain")

		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		go func() {
			time.Sleep(500 * time.Millisecond)
			took, err := await(t.Context(), 1)
			assert.ErrorIs(t, err, ErrUnavailable)
			assert.ErrorIs(t, err, errCrowded)
			assert.Zero(t, took)
		}()
		took, err = await(left, 2)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, took)
		synctest.Wait()
	})
}
