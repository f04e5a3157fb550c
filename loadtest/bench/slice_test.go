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
		broken := errors.New("broken")
		work := func() (int, error) {
			time.Sleep(time.Millisecond)
			return 1, nil
		}
		fails := func() (int, error) {
			time.Sleep(time.Second)
			return 0, broken
		}
		ops, elapsed, err := drive(t.Context(), []step{work, fails, work}, time.Hour, noReading)
		assert.ErrorIs(t, err, broken)
		assert.InDelta(t, 2000, ops, 2, "the others do no more than they have begun")
		assert.LessOrEqual(t, elapsed, 1001*time.Millisecond)

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
