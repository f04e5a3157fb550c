package pages_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/conformance/browsertest"
	"github.com/counterd/counterd/internal/testkit/pagetest"
	"github.com/counterd/counterd/loadtest/page"
)

// vertices is how many points a path goes through.
func vertices(path string) int { return strings.Count(path, "M") + strings.Count(path, "L") }

func save(t *testing.T, p page.Page) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	var text bytes.Buffer
	require.NoError(t, p.Write(&text))
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	return file
}

// In each look nothing is cut off, all can be read, nothing is asked for, and every line
// has its points.
func TestReportsInABrowser(t *testing.T) {
	ctx := browsertest.Start(t)
	for _, example := range []struct {
		name  string
		page  page.Page
		looks []browsertest.Look
	}{{"report", pagetest.Report(), browsertest.Looks()}, {"hostile", hostileReport(), []browsertest.Look{{Width: 1280, Scheme: "light"}, {Width: 400, Scheme: "dark"}, {Width: 700, Scheme: "light", Medium: " print"}}}, {"axes", axes(), []browsertest.Look{{Width: 1280, Scheme: "dark"}, {Width: 360, Scheme: "light"}}}} {
		file := save(t, example.page)
		for _, l := range example.looks {
			t.Run(example.name+" "+l.String(), func(t *testing.T) {
				found := browsertest.Open(t, ctx, file, l).See(t)
				assert.Empty(t, found.Faults())
				assertPlots(t, example.page, found)
				found.Keep(t, example.name+" "+l.String())
			})
		}
	}
}

// assertPlots holds the plots that are seen to those of the page.
func assertPlots(t *testing.T, p page.Page, found browsertest.Seen) {
	t.Helper()
	var wanted []*page.Plot
	tables := 0
	for _, section := range p.Sections {
		if section.Plot != nil {
			wanted = append(wanted, section.Plot)
		}
		if section.Table != nil {
			tables++
		}
	}
	require.Len(t, found.Plots, len(wanted))
	assert.Len(t, found.Tables, tables)
	assert.NotEmpty(t, found.Texts)
	for i, plot := range wanted {
		var points []int
		dots := 0
		for _, line := range plot.Lines {
			if n := len(line.X); n == 1 {
				dots++
			} else {
				points = append(points, 2*n-1)
			}
		}
		var drawn []int
		for _, path := range found.Plots[i].Lines {
			drawn = append(drawn, vertices(path))
		}
		assert.Equal(t, points, drawn, plot.Title)
		assert.Equal(t, dots, found.Plots[i].Points, plot.Title)
	}
}

// hostileReport has the attacks wherever there is a string.
func hostileReport() page.Page {
	all := strings.Join(pagetest.Attacks[:len(pagetest.Attacks)-2], " ")
	p := page.Page{Title: all, Subtitle: all}
	table := &page.Table{Head: []string{all, "short"}, Rows: [][]string{{all, all}}}
	plot := &page.Plot{Title: all, X: page.Axis{Label: "x"}, Y: page.Axis{Label: "y"}}
	for i, attack := range pagetest.Attacks {
		table.Rows = append(table.Rows, []string{attack, attack})
		plot.Lines = append(plot.Lines, page.Line{Name: attack, X: []float64{0, 1}, Y: []float64{float64(i), float64(i)}})
	}
	p.Sections = []page.Section{{Title: all, Text: all, Table: table, Plot: plot}}
	for _, attack := range pagetest.Attacks {
		p.Sections = append(p.Sections, page.Section{Title: attack, Text: attack, Table: &page.Table{Head: []string{attack}, Rows: [][]string{{attack}}}})
	}
	return p
}

// axes has a plot for each kind of axis, with ranges from small to large, to look whether their
// marks have room.
func axes() page.Page {
	var p page.Page
	for _, axis := range pagetest.Axes {
		for _, end := range []float64{0.003, 7, 59, 4_000, 200_000, 98_765_432} {
			from := end / 123
			switch axis.Unit {
			case page.Moment:
				from, end = 1431849600, 1431849600+end
			case page.Percent:
				from, end = min(from, 1), min(end, 100)
			}
			line := page.Line{Name: "line", X: []float64{from, end}, Y: []float64{end, from}}
			title := fmt.Sprint(axis, end)
			p.Sections = append(p.Sections, page.Section{Plot: &page.Plot{Title: title, X: axis, Y: axis, Lines: []page.Line{line}}})
		}
	}
	return p
}
