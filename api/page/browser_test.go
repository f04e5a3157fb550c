package page_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/testkit/browsertest"
)

// shownPages are pages in all that they can show, but for errors: a browser says the status of those.
func shownPages() map[string]string {
	return map[string]string{
		"overview": "/ui/", "live": "/ui/?live=on", "limits": "/ui/limits", "limits-of-event": "/ui/limits?event=login", "rules": "/ui/rules",
		"whatif": "/ui/whatif?event=url_shorten&rule=0", "tried": whatIf("url_shorten", "{per: ip, rate: 3/m}"),
		"denied": ofIP, "several": ofBob + "&cost=3", "bucket": featurePage("url_shorten", "key:k-1"), "calendar": featurePage("export"),
		"day": ofIP + "&level=day", "hour": ofIP + "&level=hour", "second": ofIP + "&level=second",
		"hostile": featurePage("url_shorten", "user:"+hostile[7]), "script": featurePage("url_shorten", "user:"+hostile[0]),
	}
}

// In each look nothing overflows, all can be read, nothing is loaded from elsewhere, and nothing is said.
func TestPagesInABrowser(t *testing.T) {
	ctx, server := browsertest.Start(t), newServer(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280, 3840} {
			l := browsertest.Look{Width: width, Scheme: scheme}
			for name, path := range shownPages() {
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
	server := httptest.NewServer(newDay(t).handler())
	t.Cleanup(server.Close)
	return server
}

// longest bounds the wait for a page that a link leads to.
const longest = time.Minute

// heading waits until a tab has a page with that heading, whole: the load of one with a fragment takes the focus.
func heading(t *testing.T, tab *browsertest.Tab, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.readyState === "complete" ? [...document.querySelectorAll("h1, h2, h3")].map(e => e.textContent).join("|") : ""`))
		return err == nil && strings.Contains(got, want)
	}, longest, 20*time.Millisecond, want)
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
	tab := browsertest.Open(t, browsertest.Start(t), newServer(t).URL+ofIP+"&level=day", browsertest.Look{Width: 1280, Scheme: "dark"})
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
	w := newDay(t)
	server := httptest.NewServer(w.handler())
	defer server.Close()
	tab := browsertest.Open(t, browsertest.Start(t), server.URL+"/ui/?live=on", browsertest.Look{Width: 1280, Scheme: "light"})
	has := func(feature string) bool {
		got, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.body.textContent`))
		return err == nil && strings.Contains(got, feature)
	}
	require.False(t, has("user:newcomer"))
	for range 100 {
		w.top.Add(top.Denied, top.Key{Event: "login", Feature: featureOf([2]string{"user", "newcomer"})}, "user-5-per-15m")
	}
	require.Eventually(t, func() bool { return has("user:newcomer") }, longest, 50*time.Millisecond)
	require.NoError(t, chromedp.Do(tab, chromedp.Click(".turn .button")))
	heading(t, tab, "Look a feature up")
	assert.Empty(t, tab.See(t).Faults())
}
