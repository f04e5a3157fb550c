// Package browsertest shows tests what a Chromium shows of a page, and what is wrong with that.
package browsertest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
)

// browser returns the program of a Chromium.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome",
		"/Applications/Chromium.app/Contents/MacOS/Chromium",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.FailNow(t, "this test needs a browser: apt-get install --no-install-recommends chromium fonts-liberation")
	return ""
}

// Start starts a Chromium, which ends with the test, and its profile with it.
func Start(t *testing.T) context.Context {
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

// Look is how a reader views a page.
type Look struct {
	Width  int64  // in pixels
	Scheme string // light or dark
	Medium string // empty: a screen
}

func (l Look) String() string { return fmt.Sprintf("%d %s%s", l.Width, l.Scheme, l.Medium) }

func (l Look) isDark() bool { return l.Scheme == "dark" && l.Medium == "" }

// Looks are those on screens of each width, and on paper.
func Looks() (list []Look) {
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 800, 400, 320} {
			list = append(list, Look{width, scheme, ""})
		}
	}
	return append(list, Look{700, "dark", " print"})
}

// Seen is what a browser shows of a page. Measures are in pixels.
type Seen struct {
	Inner, Scroll float64  // widths of the window and of what is in it
	Wide          []string // elements that go beyond the window
	Plots         []Plot
	Texts         []Colors
	Strokes       []Colors
	Tables        []struct{ Width, Height float64 }

	look     Look
	said     []string // console, errors, violations
	requests []string // that are not for the page
	shot     image.Image
}

type Plot struct {
	Title         string
	Width, Height float64
	Lines         []string // their paths
	Points        int      // the ones drawn as dots
	Outside       []string // texts and lines that are not within the plot
	Overlapping   []string // texts that are on one another
}

// Colors are a color and what is behind it.
type Colors struct {
	What          string
	Color, Behind [3]float64
}

//go:embed look.js
var lookScript string

// Tab is a page in a tab of its own.
type Tab struct {
	context.Context // of the tab, for steps of chromedp
	look            Look

	mu             sync.Mutex
	said, requests []string
}

// Open opens a page, at an address or in a file, until the test ends.
func Open(t *testing.T, parent context.Context, address string, l Look) *Tab {
	t.Helper()
	tab := &Tab{look: l}
	if !strings.Contains(address, "://") {
		address = "file://" + address
	}
	var closeTab context.CancelFunc
	tab.Context, closeTab = chromedp.NewContext(parent, chromedp.WithListener(func(event any) { tab.note(event, address) }))
	t.Cleanup(closeTab)
	media := emulation.SetEmulatedMediaParams{Media: strings.TrimSpace(l.Medium), Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.Scheme}}}
	require.NoError(t, chromedp.Do(tab,
		call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		call(emulation.SetEmulatedMedia, media),
		chromedp.EmulateViewport(l.Width, 900),
		chromedp.Navigate(address),
	))
	return tab
}

// note keeps what the page says, and asks for: of a server, from elsewhere.
func (tab *Tab) note(event any, address string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		tab.said = append(tab.said, fmt.Sprint("console: ", event.Type))
	case *runtime.EventExceptionThrown:
		tab.said = append(tab.said, event.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		tab.said = append(tab.said, event.Entry.Text)
	case *network.EventRequestWillBeSent:
		if event.Request.URL != address && originOf(event.Request.URL) != originOf(address) {
			tab.requests = append(tab.requests, event.Request.URL)
		}
	}
}

// originOf returns where an address is served; of a file it is the file.
func originOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" {
		return address
	}
	return parsed.Scheme + "://" + parsed.Host
}

// See returns what the tab shows.
func (tab *Tab) See(t *testing.T) Seen {
	t.Helper()
	result, err := chromedp.Run(tab, chromedp.Evaluate[Seen](lookScript))
	require.NoError(t, err)
	take := chromedp.CaptureScreenshot()
	if os.Getenv(screenshots) != "" {
		take = chromedp.FullScreenshot(100)
	}
	shot, err := chromedp.Run(tab, take)
	require.NoError(t, err)
	result.shot, err = png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	tab.mu.Lock()
	defer tab.mu.Unlock()
	result.look, result.said, result.requests = tab.look, slices.Clone(tab.said), slices.Clone(tab.requests)
	return result
}

// call is a command of the protocol, as a step.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, command, params)
		return err
	})
}

// Faults are what is wrong with what is seen, whatever page it is.
func (s Seen) Faults() (list []string) {
	l := s.look
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
		if plot.Width < 0.6*min(float64(l.Width), 800) || plot.Height < 200 || plot.Height > 600 {
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

// screenshots names the folder that whole pages are kept in, if any.
const screenshots = "COUNTERD_SCREENSHOTS"

// Keep writes the screenshot to that folder.
func (s Seen) Keep(t *testing.T, name string) { s.KeepRows(t, name, 0, math.MaxInt) }

// KeepRows writes the rows of the screenshot from one up to another to that folder.
func (s Seen) KeepRows(t *testing.T, name string, from, to int) {
	folder := os.Getenv(screenshots)
	if folder == "" {
		return
	}
	size := s.shot.Bounds().Size()
	part := image.NewNRGBA(image.Rect(0, 0, size.X, min(to, size.Y)-from))
	draw.Draw(part, part.Bounds(), s.shot, image.Pt(0, from), draw.Src)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, part))
	require.NoError(t, os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".png"), out.Bytes(), 0o600))
}
