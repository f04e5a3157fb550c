package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/limiter/engine"
)

func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		held, cost, ceiling int64
		want                engine.Outcome
	}{
		{0, 1, 1, engine.Fits}, {1, 1, 1, engine.Full}, {9, 1, 10, engine.Fits}, {9, 2, 10, engine.Full}, {30, 1, 10, engine.Full}, {0, 1, 0, engine.Full},
	} {
		assert.Equal(t, test.want, engine.OutcomeOf(test.held, test.cost, test.ceiling), "%+v", test)
	}
}

func TestWaits(t *testing.T) {
	assert.Equal(t, int64(2), engine.Wait(1001*time.Millisecond).Seconds())
	assert.Equal(t, int64(60), engine.Seconds(60).Seconds())
	assert.Equal(t, engine.Never, engine.Seconds(60).Longer(engine.Never))
	assert.Equal(t, engine.Seconds(60), engine.Wait(time.Millisecond).Longer(engine.Seconds(60)))
}
