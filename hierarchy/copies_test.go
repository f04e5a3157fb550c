package hierarchy

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withCopies makes a simulation one with copies, and breaks nothing.
var withCopies = sabotage{copies: func(*simCopies) {}}

// While one copy is reached by every hit no window holds more than its limit, whatever
// befalls the others; and when these are well again and have been paid what they were
// owed, it may die.
func TestNoWindowHoldsMoreWithCopies(t *testing.T) {
	const parts = 4
	var total outcome
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for part := range uint64(parts) {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				o := simulate(t, part*1_000_000, copiedSeeds/parts, withCopies, false)
				assert.Zero(t, o.broken, o.first)
				mu.Lock()
				defer mu.Unlock()
				total.seeds += o.seeds
				total.admitted += o.admitted
				total.denied += o.denied
				total.missed += o.missed
				total.handed += o.handed
			})
		}
	})
	t.Logf("%d seeds: %d hits admitted, %d denied; %d in which the copy that all reach died, %d in which a hit missed a copy",
		total.seeds, total.admitted, total.denied, total.handed, total.missed)
	require.Greater(t, total.admitted, total.seeds, "hits that are not admitted prove nothing")
	require.Greater(t, total.denied, total.seeds, "limits that do not bind prove nothing")
	require.Greater(t, total.handed, total.seeds/4)
	require.Less(t, total.missed, total.seeds/10, "they prove nothing")
}
