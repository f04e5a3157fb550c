package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
)

// DataItem returns an item that may hold bytes.
func DataItem(number int64) uint64 { return store.Item(store.OtherLevels, number) }

// dataKit makes ops with data for a test.
type dataKit struct {
	store.Store
	t       testing.TB
	counter string
}

func hour() int64 { return time.Now().Add(time.Hour).Unix() }

// do makes an op that has to succeed.
func (k dataKit) do(op store.Op) *store.Op {
	k.t.Helper()
	op.Counter, op.Data = k.counter, true
	k.Do(context.Background(), &op)
	require.NoError(k.t, op.Err)
	return &op
}

func (k dataKit) read(item uint64) store.Read {
	k.t.Helper()
	return k.do(store.Op{Reads: []store.Read{{Item: item}}}).Reads[0]
}

func (k dataKit) write(kind store.Kind, item uint64, data string) (wrote bool) {
	k.t.Helper()
	op := k.do(store.Op{Writes: []store.Write{{Kind: kind, Item: item, Data: []byte(data), Expires: hour()}}})
	require.Equal(k.t, 1, op.Receipt.On(0))
	return op.Writes[0].Result == 1
}

// versions returns the version of the item on each replica, by the name of its server; of a
// store with one server by no name.
func (k dataKit) versions(item uint64) map[string]uint64 {
	k.t.Helper()
	op := k.do(store.Op{Reads: []store.Read{{Item: item}}})
	if len(op.Replicas) == 0 {
		require.False(k.t, k.Capabilities().Replicated())
		return map[string]uint64{"": op.Reads[0].Version}
	}
	all := map[string]uint64{}
	for _, part := range op.Replicas {
		require.NoError(k.t, part.Err)
		all[part.Server] = part.Reads[0].Version
	}
	return all
}

// swap swaps the item on every replica. It reports whether all did, or none.
func (k dataKit) swap(item uint64, versions map[string]uint64, data string) (swapped bool) {
	k.t.Helper()
	first := true
	for server, version := range versions {
		op := k.do(store.Op{Server: server, Writes: []store.Write{{Kind: store.Swap, Item: item, Version: version, Data: []byte(data), Expires: hour()}}})
		did := op.Writes[0].Result == 1
		require.True(k.t, first || did == swapped, "one replica swapped and another one did not")
		swapped, first = did, false
	}
	return swapped
}

// put writes the item of every replica.
func (k dataKit) put(item uint64, data string) {
	k.t.Helper()
	op := store.Op{Counter: k.counter, Data: true, Reads: []store.Read{{Item: item}}}
	k.Do(context.Background(), &op) // its fault, if there is one, is of the item
	for _, server := range append(op.Replicas, store.Op{})[:max(len(op.Replicas), 1)] {
		put := k.do(store.Op{Server: server.Server, Writes: []store.Write{{Kind: store.Put, Item: item, Data: []byte(data), Expires: hour()}}})
		require.EqualValues(k.t, 1, put.Writes[0].Result)
		require.Equal(k.t, 1, put.Receipt.On(0))
	}
}

// Data is what every store has to do with items of bytes.
func Data(t *testing.T, kept store.Store) {
	require.True(t, kept.Capabilities().Writes.Has(store.Append))
	for name, test := range map[string]func(*testing.T, dataKit){
		"one round trip": dataInOneTrip, "swaps": dataSwaps, "any bytes": anyBytes, "many items": manyDataItems,
		"deletes": dataDeletes, "counts": dataAndCounts, "unsupported": dataUnsupported,
		"too large": dataTooLarge, "canceled": dataCanceled, "at once": dataAtOnce, "an op again": dataAgain,
	} {
		test(t, dataKit{kept, t, "data: " + name})
	}
}

func dataInOneTrip(t *testing.T, k dataKit) {
	item := DataItem(1)
	op := k.do(store.Op{
		Writes: []store.Write{{Kind: store.Append, Item: item, Data: []byte("lost")}},
		Reads:  []store.Read{{Item: item}},
	})
	require.Zero(t, op.Writes[0].Result, "there is nothing to append to")
	require.Equal(t, 1, op.Receipt.On(0))
	require.Zero(t, op.Reads[0].Version)
	require.Empty(t, op.Reads[0].Data)

	op = k.do(store.Op{
		Writes: []store.Write{
			{Kind: store.Create, Item: item, Data: []byte("head"), Expires: hour()}, {Kind: store.Append, Item: item, Data: []byte(" a")},
			{Kind: store.Create, Item: item, Data: []byte("again"), Expires: hour()}, {Kind: store.Append, Item: item, Data: []byte(" b")},
		},
		Reads: []store.Read{{Item: item}, {Item: DataItem(2)}},
	})
	for i, want := range []int64{1, 1, 0, 1} {
		require.Equal(t, want, op.Writes[i].Result)
	}
	require.Equal(t, 4, op.Receipt.On(0))
	require.Equal(t, "head a b", string(op.Reads[0].Data))
	require.NotZero(t, op.Reads[0].Version)
	require.Zero(t, op.Reads[1].Version)

	if k.Capabilities().Replicated() {
		require.NotEmpty(t, op.Replicas)
	}
	for i, part := range op.Replicas {
		require.Equal(t, len(op.Writes), op.Receipt.On(i))
		require.Equal(t, "head a b", string(part.Reads[0].Data))
		named := k.do(store.Op{Server: part.Server, Reads: []store.Read{{Item: item}}})
		require.Equal(t, "head a b", string(named.Reads[0].Data))
		require.True(t, store.SameVersion(part.Reads[0].Version, named.Reads[0].Version))
		require.Empty(t, named.Replicas)
	}
}

func dataSwaps(t *testing.T, k dataKit) {
	item := DataItem(1)
	for server := range k.versions(item) {
		require.False(t, k.swap(item, map[string]uint64{server: 7}, "none"), "there is no item")
	}
	require.True(t, k.write(store.Create, item, "one"))
	first := k.versions(item)
	again := k.versions(item)
	for server := range first {
		require.True(t, store.SameVersion(first[server], again[server]), "it has not changed")
	}
	require.True(t, k.swap(item, first, "two"))
	require.Equal(t, "two", string(k.read(item).Data))
	require.False(t, k.swap(item, first, "three"), "it has changed")
	second := k.versions(item)
	require.True(t, k.write(store.Append, item, "+"))
	third := k.versions(item)
	for server := range second {
		require.False(t, store.SameVersion(second[server], third[server]))
	}
	require.False(t, k.swap(item, second, "three"))
	require.Equal(t, "two+", string(k.read(item).Data))
	require.NoError(t, Delete(context.Background(), k, k.counter, []uint64{item}))
	require.True(t, k.write(store.Create, item, "new"))
	require.False(t, k.swap(item, third, "three"), "it is another item")
	last := k.versions(item)
	k.put(item, "put")
	require.Equal(t, "put", string(k.read(item).Data))
	require.False(t, k.swap(item, last, "three"), "it has changed")
	require.True(t, k.swap(item, k.versions(item), ""))
	require.NotZero(t, k.read(item).Version, "it is there and empty")
	require.True(t, k.write(store.Append, item, "x"))
	require.Equal(t, "x", string(k.read(item).Data))
}

func anyBytes(t *testing.T, k dataKit) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	parts := []string{"", "\r\n", "END\r\n", "STORED\r\n", "7", "\x00", string(all), "VA 1 c1 f3085\r\n"}
	for _, size := range []int{100, 1391, 4095, 4096, 8193, 16_000, 16_383, 16_384, 20_001, 70_000, 300_000} {
		parts = append(parts, strings.Repeat("x\r\ny", size/4+1)[:size])
	}
	item, want := DataItem(1), ""
	for i, part := range parts {
		whole, joined := DataItem(int64(10+i)), DataItem(2)
		op := k.do(store.Op{
			Writes: []store.Write{
				{Kind: store.Create, Item: item, Expires: hour()}, {Kind: store.Append, Item: item, Data: []byte(part)},
				{Kind: store.Create, Item: whole, Data: []byte(part), Expires: hour()}, {Kind: store.Append, Item: whole, Data: []byte("end")},
			},
			Reads: []store.Read{{Item: joined}, {Item: item}, {Item: whole}},
		})
		want += part
		require.True(t, string(op.Reads[1].Data) == want, "%d bytes are other %d bytes", len(want), len(op.Reads[1].Data))
		require.True(t, string(op.Reads[2].Data) == part+"end")
		require.True(t, k.swap(whole, k.versions(whole), part))
		require.True(t, string(k.read(whole).Data) == part)
	}
}

func manyDataItems(t *testing.T, k dataKit) {
	const items = 60
	op := store.Op{}
	for i := range int64(items) {
		if i%3 != 0 {
			op.Writes = append(op.Writes, store.Write{Kind: store.Create, Item: DataItem(i), Data: []byte(fmt.Sprint("item ", i)), Expires: hour()})
		}
		op.Reads = append(op.Reads, store.Read{Item: DataItem(i)}, store.Read{Item: DataItem(i)})
	}
	for i, r := range k.do(op).Reads {
		if number := i / 2; number%3 == 0 {
			require.Zero(t, r.Version)
			require.Empty(t, r.Data)
		} else {
			require.Equal(t, fmt.Sprint("item ", number), string(r.Data))
		}
	}
}

// DataExpires tests that an item lives as long as it was created for, whatever is appended and read, and that a swap
// extends its life. It waits for seconds: the time of the store is that of a bubble.
func DataExpires(t *testing.T, kept store.Store) {
	k, short, long := dataKit{kept, t, "data: expiry"}, DataItem(1), DataItem(2)
	soon := time.Now().Unix() + 3
	op := k.do(store.Op{
		Writes: []store.Write{
			{Kind: store.Create, Item: short, Data: []byte("s"), Expires: soon}, {Kind: store.Create, Item: long, Data: []byte("l"), Expires: soon},
			{Kind: store.Append, Item: short, Data: []byte("s"), Expires: hour()}, {Kind: store.Append, Item: long, Data: []byte("l")},
		},
		Reads: []store.Read{{Item: long}},
	})
	require.Equal(t, "ll", string(op.Reads[0].Data))
	require.True(t, k.swap(long, k.versions(long), "ll"))
	time.Sleep(2 * time.Second)
	require.Equal(t, "ss", string(k.read(short).Data))
	time.Sleep(2 * time.Second)
	require.Zero(t, k.read(short).Version)
	require.Equal(t, "ll", string(k.read(long).Data))
	k.put(short, "put")
	require.False(t, k.write(store.Create, short, "new"), "a put creates, too")
}

func dataDeletes(t *testing.T, k dataKit) {
	require.True(t, k.write(store.Create, DataItem(1), "a"))
	require.True(t, k.write(store.Create, DataItem(2), "b"))
	require.NoError(t, Delete(context.Background(), k, k.counter, []uint64{DataItem(1), DataItem(3)}))
	require.Zero(t, k.read(DataItem(1)).Version)
	require.Equal(t, "b", string(k.read(DataItem(2)).Data))
	require.NoError(t, Delete(context.Background(), k, k.counter, []uint64{DataItem(2)}))
	require.Zero(t, k.read(DataItem(2)).Version)
}

// A count that is read as bytes is an error, and so are bytes that are read as a count, or added
// to. Neither is harmed by it.
func dataAndCounts(t *testing.T, k dataKit) {
	ctx, count, data, digits := context.Background(), DataItem(1), DataItem(2), DataItem(3)
	value := make([]int64, 1)
	_, err := Trip(ctx, k, k.counter, 12, []uint64{count}, []int64{hour()}, nil, value)
	require.NoError(t, err)
	require.True(t, k.write(store.Create, data, "abc"))
	require.True(t, k.write(store.Create, digits, "34"))

	op := store.Op{Counter: k.counter, Data: true, Reads: []store.Read{{Item: data}, {Item: count}}}
	k.Do(ctx, &op)
	require.ErrorIs(t, op.Err, store.ErrNoData)
	for _, item := range []uint64{data, digits} {
		_, err = Trip(ctx, k, k.counter, 0, nil, nil, []uint64{item}, value)
		require.ErrorIs(t, err, store.ErrNoCount)
	}
	_, err = Trip(ctx, k, k.counter, 1, []uint64{data}, []int64{hour()}, nil, value)
	require.ErrorIs(t, err, store.ErrNoCount)

	require.Equal(t, "abc", string(k.read(data).Data))
	_, err = Trip(ctx, k, k.counter, 0, nil, nil, []uint64{count}, value)
	require.NoError(t, err)
	require.Equal(t, int64(12), value[0])

	k.put(count, "put")
	require.Equal(t, "put", string(k.read(count).Data))
}

func dataUnsupported(t *testing.T, k dataKit) {
	item := DataItem(1)
	for name, op := range map[string]*store.Op{
		"a bucket written": {Writes: []store.Write{{Kind: store.Create, Item: store.Item(store.OtherLevels-1, 1), Expires: hour()}}},
		"a bucket read":    {Reads: []store.Read{{Item: 1}}},
		"an add":           {Writes: []store.Write{{Kind: store.Add, Item: item}}},
		"a rollback":       {Writes: []store.Write{{Kind: store.Subtract, Item: item}}},
		"a hint":           {Writes: []store.Write{{Kind: store.Hint, Item: item}}},
		"a delete":         {Writes: []store.Write{{Kind: store.Delete, Item: item}}},
		"a mixed swap":     {Writes: []store.Write{{Kind: store.Append, Item: item}, {Kind: store.Swap, Item: item, Version: 1}}},
		"a put and read":   {Writes: []store.Write{{Kind: store.Put, Item: item}}, Reads: []store.Read{{Item: item}}},
		"a swap and read":  {Writes: []store.Write{{Kind: store.Swap, Item: item, Version: 1}}, Reads: []store.Read{{Item: item}}},
	} {
		op.Counter, op.Data = k.counter, true
		k.Do(context.Background(), op)
		require.ErrorIs(t, op.Err, store.ErrUnsupported, name)
	}
	require.True(t, k.write(store.Create, item, "kept"))
	op := &store.Op{Counter: k.counter, Writes: []store.Write{{Kind: store.Append, Item: item}}}
	k.Do(context.Background(), op)
	require.ErrorIs(t, op.Err, store.ErrUnsupported, "an append without data")
	require.Equal(t, "kept", string(k.read(item).Data))
	if k.Capabilities().Replicated() {
		for _, kind := range []store.Kind{store.Swap, store.Put} {
			op := &store.Op{Counter: k.counter, Data: true, Writes: []store.Write{{Kind: kind, Item: item, Version: 1}}}
			k.Do(context.Background(), op)
			require.ErrorIs(t, op.Err, store.ErrUnsupported, "without a server")
		}
	}
}

// What is larger than an item is an error, and harms nothing.
func dataTooLarge(t *testing.T, k dataKit) {
	item := DataItem(1)
	require.True(t, k.write(store.Create, item, strings.Repeat("x", 700_000)))
	require.False(t, k.write(store.Append, item, strings.Repeat("y", 700_000)))
	for range 5 { // more failures than open a breaker
		op := &store.Op{Counter: k.counter, Data: true, Writes: []store.Write{{Kind: store.Create, Item: DataItem(2), Data: make([]byte, 2<<20), Expires: hour()}}}
		k.Do(context.Background(), op)
		require.Error(t, op.Err)
		require.True(t, op.Receipt.None())
	}
	require.Zero(t, k.read(DataItem(2)).Version)
	require.Equal(t, 700_000, len(k.read(item).Data))
}

func dataCanceled(t *testing.T, k dataKit) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := &store.Op{Counter: k.counter, Data: true, Writes: []store.Write{{Kind: store.Create, Item: DataItem(1), Expires: hour()}}}
	k.Do(ctx, op)
	require.ErrorIs(t, op.Err, context.Canceled)
	require.Zero(t, k.read(DataItem(1)).Version)
}

// Appends of many callers are whole and none is lost, while others rewrite the item.
func dataAtOnce(t *testing.T, k dataKit) {
	const callers, appends = 8, 60
	item := DataItem(1)
	require.True(t, k.write(store.Create, item, ""))
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for i := range appends {
				op := &store.Op{
					Counter: k.counter, Data: true, Reads: []store.Read{{Item: item}},
					Writes: []store.Write{{Kind: store.Append, Item: item, Data: fmt.Appendf(nil, "<%d %d>", caller, i)}},
				}
				k.Do(context.Background(), op)
				if !assert.NoError(t, op.Err) || !assert.Equal(t, int64(1), op.Writes[0].Result) {
					return
				}
				for _, r := range append(op.Reads, readsOf(op)...) {
					assert.Equal(t, 1, bytes.Count(r.Data, op.Writes[0].Data), "a read follows its append")
				}
				if i%4 != 0 {
					continue
				}
				rewrite(t, k, op)
			}
		})
	}
	running.Wait()
	last := k.do(store.Op{Reads: []store.Read{{Item: item}}})
	for _, r := range append(last.Reads, readsOf(last)...) {
		length := 0
		for caller := range callers {
			for i := range appends {
				entry := fmt.Appendf(nil, "<%d %d>", caller, i)
				require.Equal(t, 1, bytes.Count(r.Data, entry), "%s", entry)
				length += len(entry)
			}
		}
		require.Len(t, r.Data, length)
	}
}

// readsOf returns the first read of each replica.
func readsOf(op *store.Op) (reads []store.Read) {
	for _, part := range op.Replicas {
		reads = append(reads, part.Reads[0])
	}
	return reads
}

// rewrite turns around what the op has read, on each replica.
func rewrite(t *testing.T, k dataKit, op *store.Op) {
	parts := op.Replicas
	if len(parts) == 0 {
		parts = []store.Op{*op}
	}
	for _, part := range parts {
		entries := strings.SplitAfter(string(part.Reads[0].Data), ">")
		for i, j := 0, len(entries)-1; i < j; i, j = i+1, j-1 {
			entries[i], entries[j] = entries[j], entries[i]
		}
		swap := &store.Op{Counter: op.Counter, Server: part.Server, Data: true, Writes: []store.Write{{
			Kind: store.Swap, Item: part.Reads[0].Item, Version: part.Reads[0].Version, Data: []byte(strings.Join(entries, "")), Expires: hour(),
		}}}
		k.Do(context.Background(), swap)
		assert.NoError(t, swap.Err)
	}
}

// An op may be used again, and its memory with it.
func dataAgain(t *testing.T, k dataKit) {
	op := &store.Op{
		Counter: k.counter, Data: true, Reads: []store.Read{{Item: DataItem(1)}, {Item: DataItem(2)}},
		Writes: []store.Write{{Kind: store.Create, Item: DataItem(1), Data: []byte("first"), Expires: hour()}},
	}
	for _, want := range []string{"first", "firstx", "firstxx"} {
		k.Do(context.Background(), op)
		require.NoError(t, op.Err)
		require.Equal(t, want, string(op.Reads[0].Data))
		require.Empty(t, op.Reads[1].Data)
		op.Writes[0].Kind, op.Writes[0].Data = store.Append, []byte("x")
	}
	op.Writes, op.Reads = op.Writes[:0], op.Reads[:1]
	op.Reads[0].Item = DataItem(3)
	k.Do(context.Background(), op)
	require.Zero(t, op.Reads[0].Version)
	require.Empty(t, op.Reads[0].Data, "nothing is left of another item")
}
