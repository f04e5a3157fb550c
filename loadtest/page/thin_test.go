package page_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/page"
)

// linesOf returns the heights, from the top, of the points of each line of a page's first
// plot.
func linesOf(t *testing.T, p page.Page) (lines [][]float64) {
	t.Helper()
	for node := range elements(t, write(t, p), "svg")[0].Descendants() {
		if !strings.HasPrefix(attribute(node, "class"), "line") {
			continue
		}
		var heights []float64
		for place := range strings.FieldsFuncSeq(attribute(node, "d"), func(r rune) bool { return r == 'M' || r == 'L' }) {
			_, y, _ := strings.Cut(place, ",")
			v, err := strconv.ParseFloat(y, 64)
			require.NoError(t, err)
			heights = append(heights, v)
		}
		lines = append(lines, heights)
	}
	return lines
}

func pageOfLine(y []float64) page.Page {
	x := make([]float64, len(y))
	for i := range x {
		x[i] = float64(i)
	}
	return page.Page{Sections: []page.Section{{Plot: &page.Plot{Lines: []page.Line{{X: x, Y: y}}}}}}
}

// A single peak or gap among a hundred thousand points is drawn, wherever it is.
func TestThinLinesKeepTheirExtremes(t *testing.T) {
	const points = 100_000
	for _, at := range []int{0, 1, 249, 250, 251, 12_345, points - 2, points - 1} {
		y := make([]float64, points)
		y[at], y[(at+points/2)%points] = 1000, -1000
		lines := linesOf(t, pageOfLine(y))
		require.Len(t, lines, 1)
		assert.LessOrEqual(t, len(lines[0]), page.MaxPoints)
		var above, below []float64
		for _, height := range lines[0] {
			switch middle := lines[0][len(lines[0])/3]; {
			case height < middle:
				above = append(above, height)
			case height > middle:
				below = append(below, height)
			}
		}
		assert.Len(t, above, 1, at)
		assert.Len(t, below, 1, at)
	}
	gap := make([]float64, points)
	gap[12_345] = math.NaN()
	assert.Len(t, linesOf(t, pageOfLine(gap)), 2)
}

func TestShortLinesAreNotThinned(t *testing.T) {
	y := make([]float64, page.MaxPoints)
	for i := range y {
		y[i] = float64(i % 7)
	}
	assert.Len(t, linesOf(t, pageOfLine(y))[0], page.MaxPoints)
	assert.Less(t, len(linesOf(t, pageOfLine(append(y, 0)))[0]), page.MaxPoints)
}

// What has no place is a gap; a point between two of them is a dot.
func TestGaps(t *testing.T) {
	nan := math.NaN()
	p := pageOfLine([]float64{1, 2, nan, 3, math.Inf(1), 4, 5, 0})
	assert.Len(t, linesOf(t, p), 2)
	assert.Equal(t, 2, strings.Count(write(t, p), `class="dot c0"`)) // in each size
	p.Sections[0].Plot.Y.Log = true
	lines := linesOf(t, p)
	require.Len(t, lines, 2)
	assert.Len(t, lines[1], 2, "zero has no place on a logarithmic axis")
}
