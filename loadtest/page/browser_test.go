package page_test

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/loadtest/page"
)

// browser returns the program of a Chromium.
func browser(t *testing.T) string {
	t.Helper()
	return testkit.Program(t, "apt-get install --no-install-recommends chromium fonts-liberation",
		"chromium", "chromium-browser", "google-chrome",
		"/Applications/Chromium.app/Contents/MacOS/Chromium",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
}

// startBrowser starts a Chromium, which ends with the test, and its profile with it.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(folder, "chromedp*"))
		require.NoError(t, err)
		assert.Empty(t, left, "the browser's profile")
	})
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(browser(t)),
		chromedp.NoSandbox, // it is refused to root; what is opened is our own
		chromedp.WSURLReadTimeout(time.Minute),
	)
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(end)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(closeBrowser)
	require.NoError(t, chromedp.Do(ctx)) // starts it
	profiles, err := filepath.Glob(filepath.Join(folder, "chromedp*"))
	require.NoError(t, err)
	require.Len(t, profiles, 1)
	t.Cleanup(func() { assert.NoError(t, chromedp.Cancel(ctx)) })
	return ctx
}

// look is how a reader views a page.
type look struct {
	width  int64
	scheme string
	medium string // empty: a screen
}

func (l look) String() string { return fmt.Sprintf("%d %s%s", l.width, l.scheme, l.medium) }

func (l look) isDark() bool { return l.scheme == "dark" && l.medium == "" }

// looks are those on screens of each width, and on paper.
func looks() (list []look) {
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 800, 400, 320} {
			list = append(list, look{width, scheme, ""})
		}
	}
	return append(list, look{700, "dark", " print"})
}

// seen is what a browser shows of a page. Measures are in pixels.
type seen struct {
	Inner, Scroll float64  // widths of the window and of what is in it
	Wide          []string // elements that go beyond the window
	Plots         []seenPlot
	Texts         []seenColors
	Strokes       []seenColors
	Tables        []struct{ Width, Height float64 }

	said     []string // console, errors, violations
	requests []string // that are not for the page
	shot     image.Image
}

type seenPlot struct {
	Title         string
	Width, Height float64
	Lines         []string // their paths
	Points        int      // the ones drawn as dots
	Outside       []string // texts and lines that are not within the plot
	Overlapping   []string // texts that are on one another
}

// seenColors are a color and what is behind it.
type seenColors struct {
	What          string
	Color, Behind [3]float64
}

//go:embed testdata/look.js
var lookScript string

// open opens a page in a tab of its own.
func open(t *testing.T, parent context.Context, file string, l look) seen {
	t.Helper()
	var mu sync.Mutex
	var said, requests []string
	address := file
	if !strings.Contains(file, "://") {
		address = "file://" + file
	}
	ctx, closeTab := chromedp.NewContext(parent, chromedp.WithListener(func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch event := event.(type) {
		case *runtime.EventConsoleAPICalled:
			said = append(said, fmt.Sprint("console: ", event.Type))
		case *runtime.EventExceptionThrown:
			said = append(said, event.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			said = append(said, event.Entry.Text)
		case *network.EventRequestWillBeSent:
			if event.Request.URL != address {
				requests = append(requests, event.Request.URL)
			}
		}
	}))
	defer closeTab()
	media := emulation.SetEmulatedMediaParams{Media: strings.TrimSpace(l.medium), Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}}
	require.NoError(t, chromedp.Do(ctx,
		call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		call(emulation.SetEmulatedMedia, media),
		chromedp.EmulateViewport(l.width, 900),
		chromedp.Navigate(address),
	))
	result, err := chromedp.Run(ctx, chromedp.Evaluate[seen](lookScript))
	require.NoError(t, err)
	take := chromedp.CaptureScreenshot()
	if os.Getenv(screenshots) != "" {
		take = chromedp.FullScreenshot(100)
	}
	shot, err := chromedp.Run(ctx, take)
	require.NoError(t, err)
	result.shot, err = png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	result.said, result.requests = said, requests
	return result
}

// call is a command of the protocol, as a step.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, command, params)
		return err
	})
}

// faults are what is wrong with what is seen, whatever page it is.
func (s seen) faults(l look) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if s.Scroll > s.Inner {
		add("the page is %g wide in a window of %g", s.Scroll, s.Inner)
	}
	for _, name := range s.Wide {
		add("beyond the window: %s", name)
	}
	for _, what := range s.said {
		add("said: %s", what)
	}
	for _, address := range s.requests {
		add("request: %s", address)
	}
	for _, plot := range s.Plots {
		if plot.Width < min(300, 0.9*float64(l.width)) || plot.Width < 0.6*min(float64(l.width), 800) || plot.Height < 200 || plot.Height > 600 {
			add("plot %s is %g by %g", plot.Title, plot.Width, plot.Height)
		}
		for _, name := range plot.Outside {
			add("outside of plot %s: %s", plot.Title, name)
		}
		for _, name := range plot.Overlapping {
			add("overlapping in plot %s: %s", plot.Title, name)
		}
	}
	for _, text := range s.Texts {
		if ratio := contrast(text.Color, text.Behind); ratio < 4.5 {
			add("the contrast of %s is %.2f", text.What, ratio)
		}
	}
	for _, stroke := range s.Strokes {
		if ratio := contrast(stroke.Color, stroke.Behind); ratio < 3 {
			add("the contrast of %s is %.2f", stroke.What, ratio)
		}
	}
	if different := colorsOf(s.shot); different < 20 {
		add("the screenshot has %d colors", different)
	}
	if corner := luminance(rgb(s.shot.At(1, 1))); corner < 0.5 != l.isDark() {
		add("the paper has a luminance of %.2f", corner)
	}
	return list
}

// contrast is that of the Web Content Accessibility Guidelines 2.
func contrast(a, b [3]float64) float64 {
	bright, dark := luminance(a), luminance(b)
	if bright < dark {
		bright, dark = dark, bright
	}
	return (bright + 0.05) / (dark + 0.05)
}

func luminance(rgb [3]float64) float64 {
	var linear [3]float64
	for i, v := range rgb {
		if v /= 255; v <= 0.04045 {
			linear[i] = v / 12.92
		} else {
			linear[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*linear[0] + 0.7152*linear[1] + 0.0722*linear[2]
}

func rgb(c color.Color) [3]float64 {
	r, g, b, _ := c.RGBA()
	return [3]float64{float64(r >> 8), float64(g >> 8), float64(b >> 8)}
}

// colorsOf counts up to a hundred.
func colorsOf(shot image.Image) int {
	found := map[color.Color]bool{}
	for y := shot.Bounds().Min.Y; y < shot.Bounds().Max.Y; y++ {
		for x := shot.Bounds().Min.X; x < shot.Bounds().Max.X && len(found) < 100; x++ {
			found[shot.At(x, y)] = true
		}
	}
	return len(found)
}

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
	ctx := startBrowser(t)
	for _, example := range []struct {
		name  string
		page  page.Page
		looks []look
	}{{"report", report(), looks()}, {"hostile", hostile(), []look{{1280, "light", ""}, {400, "dark", ""}, {700, "light", " print"}}}, {"axes", axes(), []look{{1280, "dark", ""}, {360, "light", ""}}}} {
		file := save(t, example.page)
		for _, l := range example.looks {
			t.Run(example.name+" "+l.String(), func(t *testing.T) {
				found := open(t, ctx, file, l)
				assert.Empty(t, found.faults(l))
				assertPlots(t, example.page, found)
				keep(t, found, example.name+" "+l.String())
			})
		}
	}
}

// screenshots names the folder that whole pages are kept in, if any.
const screenshots = "COUNTERD_SCREENSHOTS"

func keep(t *testing.T, found seen, name string) {
	folder := os.Getenv(screenshots)
	if folder == "" {
		return
	}
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, found.shot))
	require.NoError(t, os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".png"), out.Bytes(), 0o600))
}

// assertPlots holds the plots that are seen to those of the page.
func assertPlots(t *testing.T, p page.Page, found seen) {
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

// What the test above looks for is found where it is.
func TestFaultsAreSeen(t *testing.T) {
	ctx := startBrowser(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	const plot = `<svg class="plot" viewBox="0 0 300 300" width="300"><title>P</title><path class="line" stroke="#000" d="M0,0L1,1"/>`
	l := look{400, "light", ""}
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
			assert.Contains(t, strings.Join(open(t, ctx, file, l).faults(l), "\n"), example.fault)
		})
	}
	assert.Positive(t, asked.Load())
}
