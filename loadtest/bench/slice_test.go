package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
)

func noReading() error { return nil }

func TestDriveCountsWhatIsDone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var done atomic.Int64
		ten := func() (int, error) {
			time.Sleep(30 * time.Millisecond)
			done.Add(10)
			return 10, nil
		}
		began := time.Time{}
		ops, elapsed, err := drive(t.Context(), []step{ten, ten, ten}, time.Second, func() error {
			assert.Zero(t, done.Load(), "nothing is done ahead of the reading")
			began = time.Now()
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, done.Load(), ops)
		assert.EqualValues(t, 3*34*10, ops, "what has begun is finished")
		assert.Equal(t, 34*30*time.Millisecond, elapsed)
		assert.Equal(t, elapsed, time.Since(began))
	})
}

func TestDriveEndsEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(5)
		work := func() (int, error) {
			time.Sleep(time.Millisecond)
			if left.Add(-1) < 0 {
				return 0, errSpent
			}
			return 1, nil
		}
		ops, elapsed, err := drive(t.Context(), []step{work, work}, time.Hour, noReading)
		require.NoError(t, err, "to have spent all is no fault")
		assert.EqualValues(t, 5, ops)
		assert.Less(t, elapsed, time.Second)

		broken := errors.New("broken")
		spent := func() (int, error) {
			time.Sleep(time.Millisecond)
			return 0, errSpent
		}
		fails := func() (int, error) {
			time.Sleep(time.Second)
			return 0, broken
		}
		_, _, err = drive(t.Context(), []step{spent, fails, spent}, time.Hour, noReading)
		assert.ErrorIs(t, err, broken, "an error is told though others had spent all")

		_, _, err = drive(t.Context(), []step{work}, time.Hour, func() error { return broken })
		assert.ErrorIs(t, err, broken)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		forever := func() (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		}
		_, _, err = drive(ctx, []step{forever}, time.Hour, noReading)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
