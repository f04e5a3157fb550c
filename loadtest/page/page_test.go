package page_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/loadtest/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, p page.Page) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	return out.String()
}

func TestNothingIsDrawn(t *testing.T) {
	assert.Contains(t, write(t, page.Page{Sections: []page.Section{{}, {Plot: &page.Plot{}}, {Table: &page.Table{}}}}), "</html>")
}

func TestNoValueIsTooOdd(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, 1, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e300, -1e300, 1e-300, 1e15, 1e15 + 1}
	units := []page.Unit{page.Plain, page.Seconds, page.Milliseconds, page.Bytes, page.Percent, page.PerSecond, page.Moment, page.Nines, "odd"}
	for _, a := range odd {
		for _, b := range odd {
			for _, unit := range units {
				axis := page.Axis{Unit: unit}
				log := page.Axis{Unit: unit, Log: true}
				lines := []page.Line{{X: []float64{a, b}, Y: []float64{b, a, a}, Steps: true}, {X: []float64{b}, Y: []float64{a}}}
				text := write(t, page.Page{Sections: []page.Section{{Plot: &page.Plot{X: axis, Y: axis, Lines: lines}}, {Plot: &page.Plot{X: log, Y: log, Lines: lines}}}})
				require.NotRegexp(t, `d="[^"]*[NI]`, text)
				require.NotRegexp(t, `[xy]="[^"]*[NI]`, text)
			}
		}
	}
}
