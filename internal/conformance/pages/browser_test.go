package pages_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/conformance/browsertest"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/pagetest"
)

// In each look nothing overflows, all can be read, nothing is loaded from elsewhere, and nothing is said.
func TestPagesInABrowser(t *testing.T) {
	ctx, server := browsertest.Start(t), newServer(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280, 3840} {
			l := browsertest.Look{Width: width, Scheme: scheme}
			for name, path := range pagetest.ShownPages() {
				if every := name == "overview" || name == "denied" || name == "rules"; !every && (width == 3840 || (scheme == "dark") != (width == 360)) {
					continue // the looks of these three are those of all
				}
				t.Run(name+" "+l.String(), func(t *testing.T) {
					found := browsertest.Open(t, ctx, server.URL+path, l).See(t)
					found.Keep(t, name+" "+l.String())
					assert.Empty(t, found.Faults())
				})
			}
		}
	}
}

// newServer serves the pages of a day until the test ends.
func newServer(t *testing.T) *httptest.Server {
	server := httptest.NewServer(pagetest.NewDay(t).Handler())
	t.Cleanup(server.Close)
	return server
}

// longest bounds the wait for a page that a link leads to.
const longest = time.Minute

// heading waits until a tab has a page with that heading, whole: the load of one with a fragment takes the focus.
func heading(t *testing.T, tab *browsertest.Tab, want string) {
	t.Helper()
	testkit.Await(t, longest, want, func() bool {
		got, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.readyState === "complete" ? [...document.querySelectorAll("h1, h2, h3")].map(e => e.textContent).join("|") : ""`))
		return err == nil && strings.Contains(got, want)
	})
}

// press presses keys in a tab.
func press(t *testing.T, tab *browsertest.Tab, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(key)))
	}
}

// focused returns the name of what has the focus.
func focused(t *testing.T, tab *browsertest.Tab) string {
	t.Helper()
	name, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.activeElement.name || document.activeElement.textContent.trim()`))
	require.NoError(t, err)
	return name
}

// A feature is looked up without a mouse, and the first stop is a link past the navigation.
func TestSearchByKeyboard(t *testing.T) {
	tab := browsertest.Open(t, browsertest.Start(t), newServer(t).URL+"/ui/", browsertest.Look{Width: 1280, Scheme: "light"})
	press(t, tab, kb.Tab)
	assert.Equal(t, "Skip to the content", focused(t, tab))
	press(t, tab, kb.Enter, kb.Tab)
	require.Equal(t, "event", focused(t, tab))
	press(t, tab, "u", kb.Tab)
	require.Equal(t, "feature", focused(t, tab))
	press(t, tab, "ip:192.0.2.1", kb.Tab, kb.Tab)
	require.Equal(t, "cost", focused(t, tab))
	press(t, tab, kb.Enter)
	heading(t, tab, "ip:192.0.2.1, url_shorten")
	found := tab.See(t)
	assert.Empty(t, found.Faults())
	outlined, err := chromedp.Run(tab, chromedp.Evaluate[bool](`document.querySelector(".skip").focus(), getComputedStyle(document.activeElement).top === "0px"`))
	require.NoError(t, err)
	assert.True(t, outlined, "the link is seen while it has the focus")
}

// From the day to the seconds of a minute by the links of bars, which keys follow, too, and back.
func TestZoomInABrowser(t *testing.T) {
	tab := browsertest.Open(t, browsertest.Start(t), newServer(t).URL+pagetest.OfIP+"&level=day", browsertest.Look{Width: 1280, Scheme: "dark"})
	follow := func(bar string) {
		t.Helper()
		ok, err := chromedp.Run(tab, chromedp.Evaluate[bool](`(() => { const bar = document.querySelector('.plot a[aria-label^="`+bar+`"]'); bar?.focus(); return document.activeElement === bar; })()`))
		require.NoError(t, err)
		require.True(t, ok, "bar %s takes the focus", bar)
		press(t, tab, kb.Enter)
	}
	heading(t, tab, "Hits by the day")
	follow("14 Mar UTC")
	heading(t, tab, "Hits by the hour")
	follow("14 Mar 11:00 UTC")
	heading(t, tab, "Hits by the minute")
	follow("11:36 UTC")
	heading(t, tab, "Hits by the second")
	require.NoError(t, chromedp.Do(tab, chromedp.Click(`a[rel="prev"]`)))
	heading(t, tab, "Hits by the second")
	assert.Empty(t, tab.See(t).Faults())
}

// A live list shows what comes, without a reload by hand, until it is paused.
func TestALiveListInABrowser(t *testing.T) {
	w := pagetest.NewDay(t)
	server := httptest.NewServer(w.Handler())
	defer server.Close()
	tab := browsertest.Open(t, browsertest.Start(t), server.URL+"/ui/?live=on", browsertest.Look{Width: 1280, Scheme: "light"})
	has := func(feature string) bool {
		got, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.body.textContent`))
		return err == nil && strings.Contains(got, feature)
	}
	require.False(t, has("user:newcomer"))
	for range 100 {
		w.Hot.Add(top.Denied, top.Key{Event: "login", Feature: pagetest.FeatureOf([2]string{"user", "newcomer"})}, "user-5-per-15m")
	}
	testkit.Await(t, longest, "the newcomer is listed", func() bool { return has("user:newcomer") })
	require.NoError(t, chromedp.Do(tab, chromedp.Click(".turn .button")))
	heading(t, tab, "Look a feature up")
	assert.Empty(t, tab.See(t).Faults())
}

// By keyboard a counter is reset whose hits were denied, and they are admitted. The page is not one that a browser
// takes for a foreign one, also where it sends Origin alone, and a value keeps its line ends.
func TestResetInABrowser(t *testing.T) {
	w := pagetest.NewDay(t)
	pages := w.Handler()
	var origins http.CrossOriginProtection
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		assert.NoError(t, origins.Check(r), "by Sec-Fetch-Site")
		r.Header.Del("Sec-Fetch-Site") // without TLS browsers send it to this machine alone
		assert.NoError(t, origins.Check(r), "by Origin %s", r.Header.Get("Origin"))
		pages.ServeHTTP(rw, r)
	}))
	defer server.Close()
	ctx := browsertest.Start(t)
	for name, features := range map[string]events.Features{"two words": {"user": "two words\nand a line"}, "markup": {"user": pagetest.Hostile[1]}, "plain": {"user": "bob"}} {
		t.Run(name, func(t *testing.T) {
			w.Hits(t, "login", 5, features)
			require.False(t, w.Admits(t, "login", features))
			tab := browsertest.Open(t, ctx, server.URL+pagetest.FeaturePage("login", "user:"+features["user"]), browsertest.Look{Width: 360, Scheme: "light"})
			heading(t, tab, "Reset")
			hidden, err := chromedp.Run(tab, chromedp.Evaluate[bool](`!document.querySelector(".change button").checkVisibility()`))
			require.NoError(t, err)
			require.True(t, hidden, "the button is behind a first step")
			require.NoError(t, chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](`document.querySelector(".change summary").focus()`)))
			press(t, tab, kb.Enter, kb.Tab)
			assert.Contains(t, focused(t, tab), "now")
			assert.Empty(t, tab.See(t).Faults())
			press(t, tab, kb.Enter)
			testkit.Await(t, longest, "the reset is confirmed", func() bool {
				text, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.querySelector('[role="status"]')?.textContent ?? ""`))
				return err == nil && strings.Contains(text, "was reset at")
			})
			assert.Empty(t, tab.See(t).Faults())
			assert.True(t, w.Admits(t, "login", features))
		})
	}
}

// By keyboard a feature that is denied is allowed for two hours, and the override ended among the rules.
func TestOverrideInABrowser(t *testing.T) {
	w := pagetest.NewDay(t)
	server := httptest.NewServer(w.Handler())
	defer server.Close()
	ctx := browsertest.Start(t)
	ip := events.Features{"ip": "192.0.2.1"}
	require.False(t, w.Admits(t, "url_shorten", ip))
	tab := browsertest.Open(t, ctx, server.URL+pagetest.OfIP, browsertest.Look{Width: 360, Scheme: "light"})
	heading(t, tab, "Override")
	press := func(keys ...string) { t.Helper(); press(t, tab, keys...) }
	require.NoError(t, chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](`document.querySelector('section[aria-labelledby="override"] summary').focus()`)))
	press(kb.Enter, kb.Tab)
	assert.Equal(t, "rates", focused(t, tab))
	press(kb.Tab)
	assert.Equal(t, "for", focused(t, tab))
	press(kb.Tab, kb.Tab, kb.Tab) // past rates and deny
	assert.Equal(t, "verdict", focused(t, tab))
	found := tab.See(t)
	found.Keep(t, "override form")
	assert.Empty(t, found.Faults())
	press(kb.Enter)
	says := func(words string) {
		t.Helper()
		testkit.Await(t, longest, words, func() bool {
			text, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.readyState === "complete" ? document.body.textContent : ""`))
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), words)
		})
	}
	says("ip:192.0.2.1 is always allowed until 14:30:22 UTC")
	assert.True(t, w.Admits(t, "url_shorten", ip))
	found = tab.See(t)
	found.Keep(t, "override set")
	assert.Empty(t, found.Faults())

	tab = browsertest.Open(t, ctx, server.URL+"/ui/rules", browsertest.Look{Width: 1280, Scheme: "dark"})
	heading(t, tab, "Temporary overrides")
	found = tab.See(t)
	found.Keep(t, "override among the rules")
	assert.Empty(t, found.Faults())
	require.NoError(t, chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](`document.querySelector('section[aria-labelledby="temporary"] button').focus()`)))
	press(kb.Enter)
	says("The override of ip:192.0.2.1 was ended at")
	assert.Empty(t, w.Overrides())
	assert.False(t, w.Admits(t, "url_shorten", ip))
}
