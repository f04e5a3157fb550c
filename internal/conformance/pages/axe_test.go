package pages_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/conformance/browsertest"
	"github.com/counterd/counterd/internal/testkit/pagetest"
)

// violation is a rule of axe-core that a page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// runAxe opens all details of the page, and returns how many rules of axe-core it keeps, and its violations.
const runAxe = `document.querySelectorAll("details").forEach(d => d.open = true), axe.run(document, {resultTypes: ["violations"]}).then(found => ({Passes: found.passes.length, Violations: found.violations.map(v => ({
	ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map(n => ({HTML: n.html, FailureSummary: n.failureSummary})),
}))}))`

// No page breaks a rule of axe-core whose impact is serious or critical. The browser's debugger runs the script: so the
// page is as it is served, with its policy.
func TestAccessibility(t *testing.T) {
	ctx, server := browsertest.Start(t), newServer(t)
	axe, err := os.ReadFile(filepath.Join("..", "..", "..", "bin", "axe.min.js"))
	require.NoError(t, err, "make deps-all puts axe-core there")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280} {
			l := browsertest.Look{Width: width, Scheme: scheme}
			for _, name := range []string{"overview", "denied", "several", "limits-of-event", "rules", "tried"} {
				t.Run(name+" "+l.String(), func(t *testing.T) {
					tab := browsertest.Open(t, ctx, server.URL+pagetest.ShownPages()[name], l)
					require.NoError(t, chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](string(axe))))
					found, err := chromedp.Run(tab, chromedp.Evaluate[struct {
						Passes     int
						Violations []violation
					}](runAxe, chromedp.EvalAwaitPromise))
					require.NoError(t, err)
					assert.Greater(t, found.Passes, 20, "rules that it keeps")
					for _, v := range found.Violations {
						text := fmt.Sprintf("%s %s: %s %+v", v.Impact, v.ID, v.Help, v.Nodes)
						if t.Log(text); v.Impact == "serious" || v.Impact == "critical" {
							assert.Fail(t, text)
						}
					}
				})
			}
		}
	}
}
