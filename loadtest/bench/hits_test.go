package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/store"
	"github.com/counterd/counterd/store/storetest"
)

// badStore fails, or forgets adds, on demand.
type badStore struct {
	store.Store
	fails, forgets bool
}

func (s *badStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if op.Err = errors.New("down"); s.fails && storetest.IsTrip(op) {
			return
		}
		s.Store.Do(ctx, op)
		if s.forgets && op.Err == nil && op.Kind() == store.Add {
			var undo store.Op
			undo.RollBack(op.Counter, op.Writes, op.Receipt, op.Writes[0].By)
			s.Store.Do(ctx, &undo)
			op.Err = undo.Err
		}
	})
}

// What is not the work that a row is meant to do fails it.
func TestHitsThatAreNotWhatTheyShouldBe(t *testing.T) {
	s := newStage(Config{sizes: sizes{addresses: 4, timeout: 5 * time.Second}})
	hits := func(rates string) (*hitting, *subject, *badStore) {
		store := &badStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now})}
		h, subject, err := newHittingOn(s, row{id: "X1", callers: 1}, store, rates, "24h")
		require.NoError(t, err)
		return h, subject, store
	}
	h, subject, store := hits(farRates)
	steps := subject.steps()
	for range 50 {
		n, err := steps[0]()
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	assert.NoError(t, subject.verify(t.Context()))
	assert.EqualValues(t, 50, h.store.counts.trips.Load())
	assert.ErrorContains(t, h.deny(0), "was admitted")

	store.fails = true
	_, err := steps[0]()
	assert.ErrorContains(t, err, "without the store", "the rule admits it all the same")

	_, subject, store = hits(farRates)
	store.forgets = true
	steps = subject.steps()
	_, err = steps[0]()
	require.NoError(t, err)
	assert.ErrorContains(t, subject.verify(t.Context()), "holds 0, and 1 were added")

	h, _, _ = hits("[1/s, 1/m, 1/h, 1/d]")
	_, err = h.admit(0, h.features[0])
	require.NoError(t, err)
	assert.NoError(t, h.deny(0))
	_, err = h.admit(0, h.features[0])
	assert.ErrorContains(t, err, "was denied")
}
