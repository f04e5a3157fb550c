package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/events"
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

func TestCeilSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60, -1: 0, events.Never: 9_223_372_037} {
		assert.Equal(t, want, engine.CeilSeconds(d), d)
	}
}
