package hierarchy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

// The list of open reservations is bounded, whatever is reserved, and what another client wrote there is replaced.
func TestTheListOfOpenReservations(t *testing.T) {
	const now = 1_700_000_000
	kept := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: func() time.Time { return time.Unix(now, 0) }})
	read := func() []byte {
		op := store.Op{Counter: "c", Data: true, Reads: []store.Read{{Item: openItem}}}
		kept.Do(t.Context(), &op)
		require.NoError(t, op.Err)
		return op.Reads[0].Data
	}
	list := func(id uint64, ends int64) {
		r := engine.Reserved{ID: id, Time: now * 1000, Ends: ends * 1000, Cost: 1}
		recordOpen(t.Context(), kept, "c", appendOpen(nil, r, 1), ends+1, now*1000)
	}
	cost := func(first int64) int64 {
		open := openList{}
		open.read(read(), now*1000)
		return open.cost(first)
	}
	list(1, now+30)
	list(2, now+3600) // the item lives for as long
	assert.EqualValues(t, 2, cost(now))
	assert.Zero(t, cost(now+1))
	open := openList{}
	open.read(read(), (now+31)*1000)
	expires, ok := openExpires(read(), (now+31)*1000)
	assert.True(t, ok)
	assert.Greater(t, expires, int64(now+3600))
	assert.EqualValues(t, 1, open.cost(0), "one has ended")

	for id := range uint64(1000) {
		list(id, now+3600)
		require.LessOrEqual(t, len(read()), maxOpenRead)
	}
	assert.Greater(t, cost(now), int64(60))

	for _, foreign := range []string{"", "x", "\x01", "\x02" + string(make([]byte, 100)), "\x01\xff\xff\xff\xff\xff\xff\xff\xff" + string(make([]byte, 99_999))} {
		put := store.Op{Counter: "c", Data: true, Writes: []store.Write{{Kind: store.Put, Item: openItem, Data: []byte(foreign), Expires: now + 9999}}}
		kept.Do(t.Context(), &put)
		require.NoError(t, put.Err)
		list(7, now+30)
		assert.EqualValues(t, 1, cost(now), "%.20q", foreign)
		assert.LessOrEqual(t, len(read()), maxOpenRead)
	}
	bad := appendOpen(appendOpenHead(now), engine.Reserved{ID: 1, Time: now * 1000, Ends: 1 << 62}, 1)
	bad = appendOpen(bad, engine.Reserved{ID: 2, Time: now * 1000, Ends: now*1000 + 1}, engine.MaxBy+1)
	bad = appendOpen(bad, engine.Reserved{ID: 1 << 60, Time: now * 1000, Ends: now*1000 + 1}, 1)
	open = openList{}
	open.read(bad, now*1000)
	assert.Empty(t, open)
}
