package memcache_test

import (
	"testing"

	"github.com/counterd/counterd/store"
	"github.com/counterd/counterd/store/storetest"
)

func TestData(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) { storetest.Data(t, kept) })
}
