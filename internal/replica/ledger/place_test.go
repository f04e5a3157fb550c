package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
)

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("memcached-%d:11211", i))
	}
	return list
}

func TestSlotOf(t *testing.T) {
	assert.Equal(t, 0xabc, SlotOf(store.Hash{0xab, 0xcd}))
	assert.Equal(t, Slots-1, SlotOf(store.Hash{0xff, 0xff}))
}

func TestSlotSetText(t *testing.T) {
	s := slotsOf(0, 7, 8, 63, 64, Slots-1)
	text, err := s.MarshalText()
	require.NoError(t, err)
	var read SlotSet
	require.NoError(t, read.UnmarshalText(text))
	assert.Equal(t, s, read)
	assert.Equal(t, 6, read.Len())
	for _, bad := range []string{"", "AAAA", string(text[1:]), string(text) + "AAAA", "!" + string(text[1:])} {
		assert.Error(t, read.UnmarshalText([]byte(bad)), "%.8s", bad)
	}
}

func TestSlotsAreOnDifferentServers(t *testing.T) {
	for _, replicas := range []int{1, 2, 3, 5} {
		l := NewList(names(4), replicas)
		shuffled := []string{names(4)[3], names(4)[1], names(4)[0], names(4)[2], names(4)[1]}
		assert.Equal(t, l, NewList(shuffled, replicas), "the order must not matter")
		for slot := range Slots {
			servers := map[string]bool{}
			for _, s := range l.Replicas(slot) {
				servers[s] = true
				require.True(t, l.Slots(s).Has(slot))
			}
			require.Len(t, servers, min(replicas, 4))
		}
	}
	assert.True(t, NewList(names(1), 2).Slots("other").IsEmpty())
}

// A server that joins takes its share of each other one. Nothing else moves.
func TestAServerThatJoinsMovesItsShare(t *testing.T) {
	before, after := NewList(names(4), 2), NewList(names(5), 2)
	joined, moved := names(5)[4], 0
	for slot := range Slots {
		if after.Slots(joined).Has(slot) {
			moved++
			continue
		}
		require.Equal(t, before.Replicas(slot), after.Replicas(slot))
	}
	assert.InEpsilon(t, Slots*2/5, moved, 0.1)
}

// The fullest server has a few percent more than the mean.
func TestSlotsAreEven(t *testing.T) {
	for servers, most := range map[int]float64{3: 1.05, 5: 1.08, 16: 1.15} {
		l, fullest := NewList(names(servers), 2), 0
		for _, s := range l.Servers() {
			fullest = max(fullest, l.Slots(s).Len())
		}
		mean := float64(Slots*2) / float64(servers)
		assert.LessOrEqual(t, float64(fullest)/mean, most, "%d servers", servers)
	}
}
