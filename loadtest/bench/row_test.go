package bench

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ids(rows []row) []string {
	var list []string
	for _, r := range rows {
		list = append(list, r.id)
	}
	return list
}

func TestRowsFit(t *testing.T) {
	all := allRows()
	known := ids(all)
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(known))), len(all), "an identity is given twice")
	for i, r := range all {
		assert.NotEmpty(t, r.name)
		assert.Positive(t, r.callers, r.id)
		for _, other := range r.against {
			at := slices.Index(known, other)
			require.GreaterOrEqual(t, at, 0, "%s is compared with %s", r.id, other)
			assert.Less(t, at, i, "%s is compared with a later row", r.id)
			assert.Equal(t, r.stage, all[at].stage, "rows of two stages do not take turns")
		}
	}
}

func TestChosenRowsBringThoseTheyAreComparedWith(t *testing.T) {
	choice := func(pattern string) []string {
		return ids(Config{Rows: regexp.MustCompile(pattern)}.chosen())
	}
	assert.Equal(t, []string{"A1"}, choice("^A1 "))
	assert.Equal(t, []string{"A1", "A2", "A3"}, choice("^A3 "))
	assert.Equal(t, []string{"A1", "A2", "A3", "A5", "A6"}, choice("one counter$|^A6$")[:5])
	assert.Equal(t, []string{"B1", "B2", "B14"}, choice("^B14 "))
	assert.Equal(t, []string{"D2", "D4"}, choice("^D"), "without a peer")
	assert.Empty(t, choice("no such row"))
	assert.Len(t, Config{Peer: "it"}.chosen(), len(allRows()))
}
