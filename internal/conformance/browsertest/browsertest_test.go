package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/conformance/browsertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What Faults looks for is found where it is.
func TestFaultsAreSeen(t *testing.T) {
	ctx := browsertest.Start(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	const plot = `<svg class="plot" viewBox="0 0 300 300" width="300"><title>P</title><path class="line" stroke="#000" d="M0,0L1,1"/>`
	l := browsertest.Look{Width: 400, Scheme: "light"}
	for _, example := range []struct{ name, body, fault string }{
		{"request", `<img src="` + server.URL + `/x.png">`, "request: http"},
		{"console", `<script>console.error("x")</script>`, "said: console"},
		{"exception", `<script>throw 1</script>`, "said: Uncaught"},
		{"wide", `<div style="width:500px">x</div>`, "the page is 500 wide"},
		{"hidden", `<div style="overflow:hidden"><p style="width:500px">x</p></div>`, "beyond the window: p"},
		{"pale", `<p style="color:#999">x</p>`, "the contrast of p"},
		{"pale line", plot + `<path class="line" stroke="#aaa" d="M0,0L9,9"/></svg>`, "the contrast of line"},
		{"outside", plot + `<text x="290" y="50">long text</text></svg>`, "outside of plot P: long text"},
		{"line outside", plot + `<path class="line" stroke="#000" d="M0,0L9,-9"/></svg>`, "outside of plot P: path"},
		{"overlapping", plot + `<text x="50" y="50">long</text><text x="60" y="52">text</text></svg>`, "overlapping in plot P: long, text"},
		{"small", `<svg class="plot" viewBox="0 0 300 300" width="100"><title>P</title></svg>`, "plot P is 100 by 100"},
		{"blank", ``, "the screenshot has 1 colors"},
		{"dark", `<style>body{background:#000;color:#fff}</style>x`, "the paper has a luminance of 0.00"},
	} {
		t.Run(example.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.html")
			require.NoError(t, os.WriteFile(file, []byte("<!DOCTYPE html><meta name=viewport content=width=device-width><style>body{margin:0}</style>"+example.body), 0o600))
			assert.Contains(t, strings.Join(browsertest.Open(t, ctx, file, l).See(t).Faults(), "\n"), example.fault)
		})
	}
	assert.Positive(t, asked.Load())
}
