package wire

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

// A turn is awaited to the millisecond, unless the context ends before or too many wait.
func TestAwaitATurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		await := func(ctx context.Context, wait time.Duration) (took time.Duration, err error) {
			begin := time.Now()
			err = turns.Await(ctx, wait)
			return time.Since(begin), err
		}
		for _, wait := range []time.Duration{0, 200 * time.Millisecond, 2 * time.Second} {
			took, err := await(t.Context(), wait)
			assert.NoError(t, err)
			assert.Equal(t, wait, took)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, err := await(soon, time.Second+1)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, took, "in vain")

		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		go func() {
			time.Sleep(500 * time.Millisecond)
			took, err := await(t.Context(), time.Second)
			assert.ErrorIs(t, err, ErrTooManyWait)
			assert.Zero(t, took)
		}()
		took, err = await(left, 2*time.Second)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, took)
		synctest.Wait()
		_, err = await(t.Context(), time.Second)
		assert.NoError(t, err, "its place is free again")
	})
}

func TestPlacesOfTurns(t *testing.T) {
	assert.Equal(t, DefaultMaxWaiting, cap(NewTurns(0)))
	assert.NoError(t, NewTurns(-1).Await(t.Context(), time.Hour), "it does not wait")
}
