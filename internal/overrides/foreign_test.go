package overrides_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// The tests of this file have another client of the Memcached servers write the item of overrides.

// replicated is a store of replicas, by their names, for ops with data.
type replicated map[string]store.Store

func (r replicated) Capabilities() store.Capabilities {
	return store.Capabilities{Replicas: len(r)}
}

func (r replicated) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Server != "" {
			r[op.Server].Do(ctx, op)
			continue
		}
		op.Replicas = nil
		for name, replica := range r {
			part := store.Op{Counter: op.Counter, Server: name, Data: true, Reads: slices.Clone(op.Reads)}
			replica.Do(ctx, &part)
			op.Replicas, op.Err = append(op.Replicas, part), part.Err
		}
	}
}

// onReplicas runs a test on a store with one replica, and on one with two, with those replicas.
func onReplicas(t *testing.T, test func(t *testing.T, s store.Store, replicas ...store.Store)) {
	t.Run("one replica", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := embedded()
			test(t, s, s)
		})
	})
	t.Run("two replicas", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			r := replicated{"a": embedded(), "b": embedded()}
			test(t, r, r["a"], r["b"])
		})
	})
}

// foreign returns what another client writes, as a state with those records.
func foreign(changed int64, records ...map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"changed": changed, "records": records})
	if err != nil {
		panic(err)
	}
	sealed, err := seal.Key(nil).Seal(text)
	if err != nil {
		panic(err)
	}
	return sealed
}

// record returns a record of an address that is allowed for an hour from now, with changes.
func record(change map[string]any) map[string]any {
	r := map[string]any{
		"event": "login", "kind": "ip", "value": "198.51.100.1", "listing": "allow",
		"until": time.Now().Add(time.Hour).Unix(), "set": time.Now().UnixMilli(),
	}
	for key, value := range change {
		r[key] = value
	}
	return r
}

func put(t *testing.T, s store.Store, data []byte) {
	t.Helper()
	op := overrides.ReadOp()
	op.Writes, op.Reads = []store.Write{{Kind: store.Put, Item: op.Reads[0].Item, Data: data, Expires: time.Now().Unix() + 1000}}, nil
	s.Do(t.Context(), op)
	require.NoError(t, op.Err)
}

// An item that cannot be read, and records that no counterd writes, are replaced by what the processes know.
func TestForeignOverrides(t *testing.T) {
	onReplicas(t, func(t *testing.T, s store.Store, replicas ...store.Store) {
		now := time.Now()
		p := start(t, s, quietly)
		p.put(t, of("192.0.2.1", now.Add(9*time.Hour)))
		contents := map[string][]byte{"nothing": nil, "text": []byte("text"), "no object": foreign(-1)}
		for name, change := range map[string]map[string]any{
			"a stamp of 2^62":     {"set": int64(1) << 62},
			"a stamp below zero":  {"set": -1},
			"an end in a century": {"until": now.AddDate(100, 0, 0).Unix()},
			"no event":            {"event": "a/b"},
			"no kind":             {"kind": ""},
			"a long value":        {"kind": "user", "value": strings.Repeat("x", 2000)},
			"an unknown list":     {"listing": "some"},
			"neither":             {"listing": ""},
			"both":                {"rates": []string{"9/m"}},
			"no rate":             {"listing": "", "rates": []string{"fast"}},
			"many rates":          {"listing": "", "rates": slices.Repeat([]string{"9/m"}, 1000)},
			"a long name":         {"by": strings.Repeat("x", 2000)},
		} {
			contents[name] = foreign(now.UnixMilli(), record(change))
		}
		for name, content := range contents {
			put(t, replicas[0], content)
			follow()
			assert.Equal(t, []string{"ip:192.0.2.1 allow"}, p.names(t), name)
			late := start(t, s)
			assert.Equal(t, []string{"ip:192.0.2.1 allow"}, late.names(t), "%s: it was replaced", name)
			late.Close()
		}
	})
}

// An item that holds no bytes of counterd is replaced, also where no override is in force.
func TestAForeignItemInsteadOfOverrides(t *testing.T) {
	onReplicas(t, func(t *testing.T, s store.Store, replicas ...store.Store) {
		spoil := func() {
			t.Helper()
			for _, replica := range replicas {
				op := overrides.ReadOp()
				item := op.Reads[0].Item
				for _, write := range []store.Write{{Kind: store.Delete, Item: item}, {Kind: store.Add, Item: item, By: 7, Expires: time.Now().Unix() + 100_000}} {
					op := store.Op{Counter: op.Counter, Writes: []store.Write{write}}
					replica.Do(t.Context(), &op)
					require.NoError(t, op.Err)
				}
			}
		}
		spoil()
		p := start(t, s, quietly)
		follow()
		assert.False(t, p.Failing())
		spoil()
		p.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
		spoil()
		follow()
		follow()
		assert.False(t, p.Failing())
		assert.Equal(t, []string{"ip:192.0.2.1 allow"}, start(t, s).names(t))
	})
}

// A removal that returns true has removed the override, whatever its stamp is.
func TestARemovedOverrideIsGone(t *testing.T) {
	onReplicas(t, func(t *testing.T, s store.Store, replicas ...store.Store) {
		ahead := time.Now().Add(20 * 24 * time.Hour).UnixMilli()
		for _, set := range []int64{time.Now().UnixMilli(), ahead, 1 << 62} {
			p := start(t, s, quietly)
			put(t, replicas[0], foreign(time.Now().UnixMilli(), record(map[string]any{"set": set})))
			follow()
			_, removed, err := p.Remove(t.Context(), "login", "ip", "198.51.100.1")
			require.NoError(t, err)
			assert.Equal(t, set <= ahead, removed)
			follow()
			assert.Empty(t, p.List(), "stamp %d", set)
			p.Close()
		}
	})
}

// held returns how many bytes the process holds.
func held() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// However much another client writes, a process keeps no more overrides than there may be.
func TestTheItemOfOverridesIsBounded(t *testing.T) {
	onReplicas(t, func(t *testing.T, s store.Store, replicas ...store.Store) {
		p := start(t, s, quietly)
		before := held()
		for i := range 3 {
			for _, n := range []int{150, 4000} { // of which the second is larger than any state
				var records []map[string]any
				for j := range n {
					records = append(records, record(map[string]any{"kind": "user", "value": fmt.Sprintf("%d-%d", i, j)}))
				}
				put(t, replicas[0], foreign(time.Now().UnixMilli(), records...))
				follow()
				require.LessOrEqual(t, len(p.List()), overrides.Max)
				op := overrides.ReadOp()
				replicas[0].Do(t.Context(), op)
				require.NoError(t, op.Err)
				require.Less(t, len(op.Reads[0].Data), 2*overrides.MaxBytes)
			}
		}
		require.Len(t, p.List(), overrides.Max)
		grown := held() - before
		t.Logf("the process and its servers hold %d KiB more", grown>>10)
		require.Less(t, grown, int64(8<<20))
		_, removed, err := p.Remove(t.Context(), "login", "user", p.List()[0].Value)
		require.NoError(t, err)
		require.True(t, removed)
		p.put(t, of("192.0.2.1", time.Now().Add(time.Hour)))
	})
}
