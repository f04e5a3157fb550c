package memcache_test

import (
	"testing"

	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/store"
	"github.com/counterd/counterd/store/storetest"
)

func TestData(t *testing.T) {
	leaktest.Parallel(t)
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		t.Parallel()
		storetest.Data(t, kept)
	})
}
