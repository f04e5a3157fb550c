package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/memcache"
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
	make := func(h hits) (*hits, *badStore) {
		store := &badStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: s.now})}
		require.NoError(t, h.open(store, s, row{id: "X1"}))
		return &h, store
	}
	h, store := make(far)
	step := h.caller()
	for range 50 {
		n, err := step()
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	assert.NoError(t, h.verify(t.Context()))
	h.denied = true
	err := h.hit(0)
	assert.ErrorContains(t, err, "allowed is true")

	h.denied, store.fails = false, true
	_, err = step()
	assert.ErrorContains(t, err, "without the store", "the rule admits it all the same")

	h, store = make(far)
	store.forgets = true
	_, err = h.caller()()
	require.NoError(t, err)
	assert.ErrorContains(t, h.verify(t.Context()), "holds 0, and 1 were added")

	h, _ = make(hits{day: 1})
	err = h.hit(0)
	require.NoError(t, err)
	err = h.hit(0)
	assert.ErrorContains(t, err, "allowed is false")
	h.denied = true
	err = h.hit(0)
	assert.NoError(t, err)
}
