package page_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/browsertest"
	"github.com/counterd/counterd/loadtest/page"
)

// vertices is how many points a path goes through.
func vertices(path string) int { return strings.Count(path, "M") + strings.Count(path, "L") }

func save(t *testing.T, p page.Page) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(write(t, p)), 0o600))
	return file
}

// In each look nothing is cut off, all can be read, nothing is asked for, and every line
// has its points.
func TestPagesInABrowser(t *testing.T) {
	ctx := browsertest.Start(t)
	for _, example := range []struct {
		name  string
		page  page.Page
		looks []browsertest.Look
	}{{"report", report(), browsertest.Looks()}, {"hostile", hostile(), []browsertest.Look{{Width: 1280, Scheme: "light"}, {Width: 400, Scheme: "dark"}, {Width: 700, Scheme: "light", Medium: " print"}}}, {"axes", axes(), []browsertest.Look{{Width: 1280, Scheme: "dark"}, {Width: 360, Scheme: "light"}}}} {
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
