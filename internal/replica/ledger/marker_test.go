package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const now = 1_800_000_000

func slotsOf(slots ...int) (set SlotSet) {
	for _, slot := range slots {
		set.Add(slot)
	}
	return set
}

func exampleMarker() *Marker {
	return &Marker{
		ID: 1 << 63, Created: now, Why: "evicted", Servers: []string{"a:11211", "b:11211"}, Replicas: 2, Listed: now + 1,
		Since:  []Number{{now - 5, slotsOf(1, 63, 64)}, {now + 2, slotsOf(0, Slots-1)}},
		Raised: now, Evictions: 7, Evicted: now, Debts: Debts{{"a:11211", 1<<64 - 1}: now + 15, {"b:11211", 2}: -now},
	}
}

func TestMarkerText(t *testing.T) {
	least := &Marker{ID: 1, Created: 1, Servers: []string{"a"}, Replicas: 1, Evictions: UnknownEvictions}
	for _, m := range []*Marker{exampleMarker(), least} {
		text := m.Text()
		assert.Zero(t, len(text)%markerBytes)
		read, err := Parse(text, now)
		require.NoError(t, err)
		assert.Equal(t, m, read)
		assert.True(t, m.equal(read))
	}
}

// Another client may write the item.
func TestParseRefusesForeignText(t *testing.T) {
	for name, change := range map[string]func(*Marker){
		"no ID":                     func(m *Marker) { m.ID = 0 },
		"no time of creation":       func(m *Marker) { m.Created = 0 },
		"a long cause":              func(m *Marker) { m.Why = strings.Repeat("x", maxName+1) },
		"no servers":                func(m *Marker) { m.Servers = nil },
		"servers out of order":      func(m *Marker) { m.Servers = []string{"b", "a"} },
		"a server twice":            func(m *Marker) { m.Servers = []string{"a", "a"} },
		"a server without a name":   func(m *Marker) { m.Servers = []string{""} },
		"no replicas":               func(m *Marker) { m.Replicas = 0 },
		"too many replicas":         func(m *Marker) { m.Replicas = 6 },
		"a list of next week":       func(m *Marker) { m.Listed = now + 7*maxAhead },
		"a raise of next week":      func(m *Marker) { m.Raised = now + 7*maxAhead },
		"a raise before time":       func(m *Marker) { m.Raised = -1 },
		"evictions below none":      func(m *Marker) { m.Evictions = -2 },
		"a slot twice":              func(m *Marker) { m.Since[0].Slots.Add(0) },
		"numbers out of order":      func(m *Marker) { m.Since[0], m.Since[1] = m.Since[1], m.Since[0] },
		"a number without slots":    func(m *Marker) { m.Since[0].Slots = SlotSet{} },
		"a number of next week":     func(m *Marker) { m.Since[1].Second = now + 7*maxAhead },
		"a debt of next week":       func(m *Marker) { m.Debts[Debt{"a", 1}] = now + 7*maxAhead },
		"a paid debt of next week":  func(m *Marker) { m.Debts[Debt{"a", 1}] = -now - 7*maxAhead },
		"a debt without a second":   func(m *Marker) { m.Debts[Debt{"a", 1}] = 0 },
		"a debt without a server":   func(m *Marker) { m.Debts[Debt{"", 1}] = now },
		"a number for each of nine": func(m *Marker) { m.Since = manyNumbers(MaxNumbers + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := exampleMarker()
			change(m)
			_, err := Parse(m.Text(), now)
			assert.ErrorIs(t, err, errMarker)
		})
	}
	for _, text := range []string{"", "null", "{}", "7", strings.Repeat(" ", maxText) + exampleMarker().Text()} {
		_, err := Parse(text, now)
		assert.ErrorIs(t, err, errMarker)
	}
}

func manyNumbers(n int) (since []Number) {
	for i := range n {
		since = append(since, Number{int64(i + 1), slotsOf(i)})
	}
	return since
}

func FuzzParse(f *testing.F) {
	f.Add(exampleMarker().Text())
	f.Add(`{"id":1,"created":1,"list":["a"],"replicas":1,"evictions":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text, now)
		if err != nil {
			return
		}
		again, err := Parse(m.Text(), now)
		require.NoError(t, err)
		assert.Equal(t, m.Text(), again.Text())
	})
}

func TestRaise(t *testing.T) {
	m := exampleMarker()
	placed := slotsOf(0, 1, 2)
	m.raise(now+1, &placed, "emptied")
	for slot, number := range map[int]int64{0: now + 3, 1: now + 3, 2: now + 3, 3: 0, 63: now - 5} {
		assert.Equal(t, number, m.Number(slot), "slot %d", slot)
	}
	assert.Equal(t, int64(now+1), m.Raised)
	m.raise(now-9, &placed, "missed")
	assert.Equal(t, int64(now+3), m.Number(0), "a raise by a slow clock lowers nothing")
	assert.Equal(t, int64(now+1), m.Raised)
}

// A marker has at most eight numbers, and each number is at least what it would be without that bound.
func TestNumbersAreBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		m, exact := &Marker{}, [16]int64{}
		for second := int64(1); second < 60; second++ {
			slot := rng.IntN(len(exact))
			if rng.IntN(4) > 0 {
				m.raiseSlots(second, slotsOf(slot))
				exact[slot] = second + Margin
			} else if lower := rng.Int64N(max(exact[slot], 1)); lower < m.Number(slot) {
				before := m.Number(slot)
				m.lower(lower, slotsOf(slot))
				assert.LessOrEqual(t, m.Number(slot), before)
				exact[slot] = lower
			}
			require.LessOrEqual(t, len(m.Since), MaxNumbers)
			for slot, number := range exact {
				require.GreaterOrEqual(t, m.Number(slot), number)
			}
		}
	}
}

// The numbers of a marker that overflows grow to a second that no process takes for that of a slow clock (rule 2).
func TestNinthNumberIsNoDoubt(t *testing.T) {
	before := &Marker{Since: manyNumbers(MaxNumbers)}
	m := before.clone()
	m.raiseSlots(now, slotsOf(100))
	require.Len(t, m.Since, MaxNumbers)
	assert.Equal(t, int64(now+Margin), m.Number(MaxNumbers-1))
	assert.Equal(t, SlotSet{}, m.grown(before, now+Margin))
}

func TestRelist(t *testing.T) {
	before, after := NewList([]string{"a", "b", "c"}, 2), NewList([]string{"a", "b", "d"}, 2)
	m := &Marker{Since: []Number{{5, every()}}}
	m.relist(now, "a", before, after)
	for slot := range Slots {
		expected := int64(0)
		if after.Slots("a").Has(slot) {
			expected = now + Margin
			if before.Slots("a").Has(slot) {
				expected = 5
			}
		}
		require.Equal(t, expected, m.Number(slot))
	}
	assert.Equal(t, after.servers, m.Servers)
	assert.Equal(t, int64(now), m.Listed)
}

func TestMergesOfDebtsCommute(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		tables := make([]Debts, 3)
		for i := range tables {
			tables[i] = Debts{}
			for range 4 {
				tables[i][Debt{fmt.Sprint(rng.IntN(2)), rng.Uint64N(2)}] = (1 + rng.Int64N(3)) * (1 - 2*rng.Int64N(2))
			}
		}
		merged := func(order ...int) Debts {
			table := Debts{}
			for _, i := range order {
				table.merge(tables[i])
			}
			return table
		}
		assert.Equal(t, merged(0, 1, 2), merged(2, 0, 1, 2))
		assert.Equal(t, merged(0, 1, 2), merged(1, 1, 2, 0))
	}
	paid := Debts{{"a", 1}: 24}
	paid.merge(Debts{{"a", 1}: -24})
	assert.Equal(t, []int64{-24}, collect(paid))
	paid.merge(Debts{{"a", 1}: 23})
	assert.Equal(t, []int64{-24}, collect(paid), "an old entry does not come back")
}

func collect(table Debts) (list []int64) {
	for v := range maps.Values(table) {
		list = append(list, v)
	}
	return list
}
