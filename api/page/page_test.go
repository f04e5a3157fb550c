package page_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	htmlparser "golang.org/x/net/html"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/pagetest"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600+1800) // nothing depends on it
	goleak.VerifyTestMain(m)
}

type world = pagetest.World

const (
	ofIP  = pagetest.OfIP
	ofBob = pagetest.OfBob
)

var (
	now     = pagetest.Now
	hostile = pagetest.Hostile

	newWorld    = pagetest.NewWorld
	newDay      = pagetest.NewDay
	featurePage = pagetest.FeaturePage
	whatIf      = pagetest.WhatIf
)

// get asks for a page. Whatever page it is, it has the headers that a page has.
func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, target, nil))
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		assert.Equal(t, value, answer.Header().Get(name), "%s of %s", name, target)
	}
	return answer
}

var tag = regexp.MustCompile(`(?s)<(title|desc)[ >].*?</(title|desc)>|<[^>]*>`)

// textOf returns what a reader sees of a page.
func textOf(body string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(body, " "))), " ")
}

// shown returns what a reader sees of a page that is there.
func shown(t *testing.T, h http.Handler, target string) string {
	t.Helper()
	answer := get(t, h, target)
	require.Equal(t, http.StatusOK, answer.Code, "%s: %s", target, textOf(answer.Body.String()))
	return textOf(answer.Body.String())
}

func TestAFeatureThatIsDenied(t *testing.T) {
	w := newDay(t)
	text := shown(t, w.Handler(), ofIP)
	assert.Contains(t, text, "A hit would be denied: 10 of 10 url_shorten in the last minute by ip 192.0.2.1; fits again at 12:30:34 UTC, in 12 s.")
	assert.Contains(t, text, "Has room for the hit at 12:30:34 UTC, in 12 s, if nothing else comes.")
	assert.Contains(t, text, "12:30:34 12 s 1 9 of 10 12:30:40 18 s 1 8 of 10", "when room returns")
	assert.Contains(t, text, "12:29:34 second 1 12:29:40 second 1", "what the count is made of")
	assert.Contains(t, text, "Rule: line 5: events.url_shorten.limits[0]")
	assert.Contains(t, text, "11:36 4 0", "of the history")
	assert.Contains(t, text, "Counted in each minute, by the hour (UTC)")
	body := get(t, w.Handler(), ofIP).Body.String()
	assert.Contains(t, body, `<title>11:36 UTC: 4 counted</title>`)
	assert.Contains(t, body, `<title>11:31 UTC: 5 denied</title>`)
	assert.Equal(t, 2*24, strings.Count(body, `<svg width="100%" height="14" role="img"`), "rows of both maps")
}

// Verdicts say what decides, in words.
func TestVerdicts(t *testing.T) {
	w := newDay(t)
	for target, words := range map[string]string{
		featurePage("url_shorten", "ip:203.0.113.1"):              "A hit would be admitted: 0 of 10 url_shorten in the last minute by ip 203.0.113.1.",
		featurePage("url_shorten", "ip:203.0.113.1") + "&cost=11": "A hit of cost 11 would be denied, always: it costs 11, and ip-10-per-1m admits 10 at the most.",
		featurePage("login", "user:mallory"):                      "A hit would be denied: it is on the deny list of user-5-per-15m.",
		featurePage("login", "user:user-1"):                       "A hit would be denied: 5 of 5 login in the last 15 minutes by user user-1; fits again at 12:45:22 UTC, in 15 min.",
		featurePage("login", "user:alice"):                        "0 of 50 login in the last 15 minutes by user alice.",
		featurePage("export"):                                     "A hit would be denied: 100 of 100 export today in all; fits again at 23:00:00 UTC, in 10 h 29 min.",
		featurePage("url_shorten", "key:k-1"):                     "20 of 20 url_shorten from a bucket that gets 5 per second back by key k-1",
		ofBob:                                                     "In shadow: its denial is reported, not enforced.",
		featurePage("plain", "user:bob"):                          "Plain has no limits: it is counted, not decided.",
		featurePage("login", "ip:192.0.2.1"):                      "No limit of login is per the features given: wanted are user.",
		featurePage("hourly", "ip:192.0.2.1"):                     "There is no map: the counter is kept by the hour, for 7 days.",
		featurePage("url_shorten", "key:k-1") + "&level=":         "The counter has token buckets alone, which remember no events",
	} {
		assert.Contains(t, shown(t, w.Handler(), target), words, target)
	}
	text := shown(t, w.Handler(), featurePage("url_shorten", "ip:2001:db8::1"))
	assert.Contains(t, text, "by ip 2001:db8::/64", "addresses of IPv6 are counted by their network")
}

// What cannot be shown is said in words, with a status, and the form stays filled in.
func TestErrors(t *testing.T) {
	w := newDay(t)
	for target, want := range map[string]struct {
		status int
		words  string
	}{
		featurePage("nope", "user:bob"):                         {404, "The rules in force have no event of this name."},
		featurePage("rls/nope", "user:bob"):                     {404, "The configuration in force has no domain of this name."},
		"/ui/?event=nope":                                       {404, "The rules in force have no event of this name."},
		"/ui/limits?event=nope":                                 {404, "The rules in force have no event of this name."},
		featurePage("login", "bob"):                             {400, "A feature is written kind:value, as in ip:192.0.2.1."},
		featurePage("login", "user:"):                           {400, "Feature of kind \"user\": the value is empty."},
		featurePage("login", "ip:1.2.3", "User:x"):              {400, "The value is not an IP address."},
		featurePage("login", "user:"+strings.Repeat("w", 1025)): {400, "the value has 1025 bytes, at most 1024 are taken"},
		featurePage("login", "user:\xff"):                       {400, "the value is not valid UTF-8"},
		featurePage("login", "user:bob") + "&cost=x":            {400, "Cost: it is 0 to "},
		featurePage("login"):                                    {400, "Login is counted by feature: at least one is wanted."},
		ofIP + "&level=week":                                    {400, "Level: it is second, minute, hour or day."},
		ofIP + "&from=yesterday":                                {400, "From: it is a moment such as 2026-03-14T23:00:00Z."},
		ofIP + "&from=2020-01-01T00:00:00Z":                     {400, "it is longer ago than the 24h for which the counter is remembered"},
		featurePage("hourly", "ip:192.0.2.1") + "&level=minute": {400, "There is no map"},
		ofIP + "&counter=user":                                  {400, "Feature of kind \"user\": the value is empty."},
		"/ui/nothing":                                           {404, "There is no such page."},
		"/ui/feature":                                           {404, "The rules in force have no event of this name."},
	} {
		answer := get(t, w.Handler(), target)
		assert.Equal(t, want.status, answer.Code, target)
		assert.Contains(t, strings.ToLower(textOf(answer.Body.String())), strings.ToLower(want.words), target)
		assert.Contains(t, answer.Header().Get("Content-Type"), "text/html")
	}
	body := get(t, w.Handler(), featurePage("nope", `us"er`, "ip:x")+"&cost=7").Body.String()
	for _, kept := range []string{`<option value="nope" selected>nope</option>`, `value="us&#34;er"`, `value="ip:x"`, `value="7"`} {
		assert.Contains(t, body, kept, "the form stays filled in")
	}
}

// While the store is down the page is there, says so, and has no text of the store.
func TestTheStoreIsDown(t *testing.T) {
	w := newDay(t)
	for err, words := range map[error]string{
		engine.StoreError(assert.AnError): "The store did not answer, or not in time.",
		service.ErrOverload:               "The server has too much to do",
		engine.ErrBadCounter:              "another client of the server wrote it",
		t.Context().Err():                 "",
	} {
		if err == nil {
			continue
		}
		w.Down = err
		answer := get(t, w.Handler(), ofIP)
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		assert.Contains(t, textOf(answer.Body.String()), words)
		assert.Contains(t, answer.Body.String(), `value="ip:192.0.2.1"`)
		assert.NotContains(t, answer.Body.String(), assert.AnError.Error())
		assert.Equal(t, http.StatusOK, get(t, w.Handler(), "/ui/").Code, "the overview needs no store")
	}
}

// Without a file and servers the page says so.
func TestRulesOfAProgram(t *testing.T) {
	w := newDay(t)
	w.Config.Source, w.Config.Health = nil, service.Health{}
	h := w.Handler()
	assert.Contains(t, shown(t, h, "/ui/"), "The counters are in this process: there are no servers.")
	assert.Contains(t, shown(t, h, "/ui/rules"), "From the program, not a file .")
}

func TestTheOverview(t *testing.T) {
	w := newDay(t)
	w.Config.Host = "web-7f9c"
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "What the process on web-7f9c saw and what its store holds.")
	for range 40 {
		w.Hot.Add(top.Denied, top.Key{Event: "rls_domain", Feature: pagetest.FeatureOf([2]string{"path", hostile[0]})}, "x")
	}
	h := w.Handler()
	text := shown(t, h, "/ui/")
	assert.Contains(t, text, "Ready, with faults 12:30:22 UTC")
	assert.Contains(t, text, "ip:192.0.2.1 url_shorten ip-10-per-1m 56")
	assert.Contains(t, text, "10.0.0.2:11211 reachable, empty since 2026-03-14T11:30:22Z, repairing 42%")
	assert.Contains(t, text, "path:<script>alert(1)</script> rls_domain x 40")
	body := get(t, h, "/ui/").Body.String()
	assert.Contains(t, body, `<a href="feature?event=url_shorten&amp;feature=ip%3A192.0.2.1"><bdi>ip:192.0.2.1</bdi></a>`)
	assert.NotContains(t, body, "event=rls_domain", "what the rules do not have has no page")
	assert.Empty(t, get(t, h, "/ui/").Header().Get("Refresh"))
	answer := get(t, h, "/ui/?live=on&event=login")
	assert.Equal(t, "5", answer.Header().Get("Refresh"))
	live := answer.Body.String()
	assert.NotContains(t, live, "<form", "a refresh would lose what is typed")
	assert.NotContains(t, textOf(live), "ip-10-per-1m")
	assert.Contains(t, live, `href="./?event=login">Pause</a>`)
	w.Config.Health.Drain = func() bool { return true }
	w.Config.Health.Clock = func() string { return "It is 3 s ahead." }
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "About to end")
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "Clock It is 3 s ahead.")
}

// Each limit that denied hits has a plot of its minutes, with words, those of the event as a whole too.
func TestDenialsByLimit(t *testing.T) {
	w := newWorld(t)
	var minutes [60]int64
	minutes[0], minutes[58], minutes[59] = 1, 4000, 1000
	denials := []top.Denials{{Event: "export", Limit: "all-100-per-1d", Sum: 5001, Minutes: minutes}, {Event: "rls_domain", Limit: hostile[0], Sum: 7}}
	for i := range 30 {
		denials = append(denials, top.Denials{Event: "login", Limit: fmt.Sprint("limit-", i), Sum: 2, Minutes: [60]int64{30: 2}})
	}
	w.Config.Denials = func(at time.Time) []top.Denials {
		assert.Equal(t, now, at)
		return append(denials, top.Denials{Sum: 3, Minutes: [60]int64{10: 3}})
	}
	body := get(t, w.Handler(), "/ui/").Body.String()
	for _, want := range []string{
		`<title id="denials-0">5,001 denied in 3 of 60 minutes, most in the minute of 12:29 UTC: 4,000</title>`,
		`<rect class="denied" x="0.000%" width="1.500%" y="27.0" height="1.0"><title>11:31 UTC: 1 denied</title>`,
		`<rect class="denied" x="96.667%" width="1.500%" y="0.0" height="28.0"><title>12:29 UTC: 4,000 denied</title>`,
		`<rect class="denied" x="98.333%" width="1.500%" y="21.0" height="7.0"><title>12:30 UTC: 1,000 denied</title>`,
		`<a class="of" href="limits?event=export"><bdi>export</bdi></a>`,
		`<title id="denials-20">27 denied in 2 of 60 minutes, most in the minute of 12:01 UTC: 24</title>`,
	} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, "event=rls_domain")
	assert.Contains(t, textOf(body), "all-100-per-1d export 5,001 4,000 <script>alert(1)</script> rls_domain")
	assert.Contains(t, textOf(body), "limit-17 login 2 2 other limits 27 24")
	assert.NotContains(t, body, "denials-21", "20 limits, and the rest")
	login := shown(t, w.Handler(), "/ui/?event=login&live=on")
	assert.Contains(t, login, "limit-19 login 2 2 other limits 20 20")
	assert.NotContains(t, login, "all-100-per-1d")
	assert.Contains(t, shown(t, w.Handler(), "/ui/?event=plain"), "This process denied no hit in this time.")

	w = newDay(t)
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "all-100-per-day export 20 20", "as the limiter has decided")
}

// A count that may be too high says what it is at least.
func TestCountsThatMayBeTooHigh(t *testing.T) {
	w := newWorld(t)
	w.Config.Top = func(*http.Request, top.Query) wire.Top {
		limits := []wire.TopLimit{{Name: "user-5-per-15m", Count: 1200}}
		return wire.Top{Features: []wire.TopFeature{
			{Event: "login", Feature: "user:bob", Features: map[string]string{"user": "bob"}, Count: 1234, Error: 34, Limits: limits},
			{Event: "login", Feature: "user:eve", Features: map[string]string{"user": "eve"}, Count: 1000, Limits: []wire.TopLimit{{Name: "user-5-per-15m", Count: 1000}}},
		}, Processes: 1, Unanswered: []string{"http://10.0.0.9:8080"}}
	}
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "user:bob login user-5-per-15m 1,200 to 1,234")
	assert.Contains(t, shown(t, w.Handler(), "/ui/"), "http://10.0.0.9:8080 did not answer; its hits are not included.")
	assert.Contains(t, shown(t, w.Handler(), "/ui/limits"), "user-5-per-15m login 2 2,200 to 2,234", "of all features of the limit")
}

// What processes that did not answer have denied is not known: no page says that there was nothing.
func TestPeersThatDoNotAnswer(t *testing.T) {
	w := newWorld(t)
	w.Config.Top = func(*http.Request, top.Query) wire.Top {
		return wire.Top{Processes: 1, Unanswered: []string{"http://10.0.0.8:8080", "http://10.0.0.9:8080"}}
	}
	h := w.Handler()
	for _, target := range []string{"/ui/", "/ui/limits", "/ui/limits?event=login", "/ui/whatif?event=login&text=%7Bper%3A+user%2C+rate%3A+5%2Fm%7D"} {
		text := shown(t, h, target)
		for _, peer := range []string{"http://10.0.0.8:8080", "http://10.0.0.9:8080"} {
			assert.Contains(t, text, peer+" did not answer; its hits are not included.", target)
		}
		for _, claim := range []string{"No limit", "No hit was", "No feature of", "and its peers saw"} {
			assert.NotContains(t, text, claim, target)
		}
	}
	assert.Contains(t, shown(t, h, "/ui/limits"), "The processes that answered denied no hit of a feature in this time.")
	assert.Contains(t, shown(t, h, "/ui/"), "The processes that answered admitted no hit in this time.")
	w.Config.Top = func(*http.Request, top.Query) wire.Top { return wire.Top{Processes: 3} }
	assert.Contains(t, shown(t, w.Handler(), "/ui/limits"), "No limit of a feature denied a hit in this time.", "all answered")
}

func TestTheRules(t *testing.T) {
	text := shown(t, newWorld(t).Handler(), "/ui/rules")
	for _, words := range []string{
		"From /etc/counterd/rules.yaml , generation 3 since the start of the process",
		"ip-10-per-1m 10 per minute ip sliding-window hard admitted allow line 5: events.url_shorten.limits[0]",
		"user-100-per-1h 100 per hour user sliding-window soft 10%",
		"ip+user-3-per-1m shadow 3 per minute ip and user",
		"5 per second, burst of 20 key token-bucket",
		"100 per day of Europe/Berlin the event as a whole fixed-window",
		"deny list of 1", "precision: hour", "alice user 50 per 15 minutes", "It has no limits: it is counted.",
	} {
		assert.Contains(t, text, words)
	}
}

// Values of strangers are text, and letters that are not seen are written out.
func TestHostileValues(t *testing.T) {
	w := newWorld(t)
	for _, value := range hostile {
		w.Hits(t, "login", 7, events.Features{"user": value})
	}
	h := w.Handler()
	targets := []string{"/ui/", "/ui/limits", "/ui/limits?event=login", "/ui/rules"}
	for _, value := range append(hostile, "\xff\xfe", "%zz") {
		targets = append(targets, featurePage("login", "user:"+value), featurePage(value, "user:bob"), featurePage("login", value),
			featurePage("login", "user:bob")+"&"+url.Values{"level": {value}, "from": {value}, "counter": {value}, "cost": {value}}.Encode(),
			"/ui/?"+url.Values{"event": {value}, "window": {value}, "live": {value}}.Encode(), "/ui/"+url.PathEscape(value))
	}
	targets = append(targets, whatIf("login", strings.Join(hostile[:7], " ")), "/ui/feature?%zz", "/ui/feature?feature=%00&event=login")
	for _, target := range targets {
		answer := get(t, h, target)
		assert.Less(t, answer.Code, 500, target)
		assert.Less(t, answer.Body.Len(), 1<<20, target)
		assert.True(t, utf8.Valid(answer.Body.Bytes()), target)
		for _, fault := range foreign(answer.Body) {
			assert.Fail(t, fault, target)
		}
	}
	assert.Contains(t, shown(t, h, featurePage("login", "user:"+hostile[3])), `user:\u202egnp.exe`)
}

// elements and attributes are all that pages have.
var (
	elements = strings.Fields("html head meta title link body a header div p nav ul li span main footer form label select option input textarea button code section h1 h2 h3 " +
		"table caption thead tbody tr th td bdi svg rect desc g line text article figure figcaption details summary strong")
	attributes = strings.Fields("lang charset name content rel type class id tabindex role scope for value selected required autocomplete autocapitalize spellcheck inputmode " +
		"method rows width height x y x1 x2 y1 y2 rx text-anchor open")
)

// foreign returns what of a page is not of its templates.
func foreign(body io.Reader) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for tokens := htmlparser.NewTokenizer(body); tokens.Next() != htmlparser.ErrorToken; {
		token := tokens.Token()
		if strings.Contains(token.Data, "\u202e") {
			add("a letter turns the direction")
		}
		if token.Type != htmlparser.StartTagToken && token.Type != htmlparser.SelfClosingTagToken {
			continue
		}
		if !slices.Contains(elements, token.Data) {
			add("element %s", token.Data)
		}
		for _, attribute := range token.Attr {
			switch key := attribute.Key; {
			case key == "href" || key == "action":
				if !regexp.MustCompile(`^(#[a-z-]+|\./(#state)?|(\./|feature|limits|rules|whatif)(\?[^"]*)?|\.\./openapi\.json|reset|override|page.css|icon.svg)$`).MatchString(attribute.Val) {
					add("link %s", attribute.Val)
				}
			case strings.HasPrefix(key, "aria-"):
			case !slices.Contains(attributes, key):
				add("attribute %s", key)
			}
			if attribute.Key != "value" && strings.Contains(attribute.Val, "\u202e") {
				add("a letter of %s turns the direction", attribute.Key)
			}
		}
	}
	return faults
}

var (
	linked  = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	address = regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|<script|<style| style=`)
)

// Every link of every page leads to a page, and none elsewhere.
func TestEveryLinkLeadsToAPage(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	seen, left := map[string]bool{"/openapi.json": true}, []string{"/ui/", ofBob, featurePage("hourly", "ip:192.0.2.1"), featurePage("plain", "user:bob"), featurePage("export")}
	most := testkit.Fifth(1000)
	for len(left) > 0 && len(seen) < most {
		target := left[0]
		left = left[1:]
		if seen[target] {
			continue
		}
		seen[target] = true
		answer := get(t, h, target)
		require.Equal(t, http.StatusOK, answer.Code, target)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		if strings.HasSuffix(target, ".svg") { // its namespace is an address
			continue
		}
		assert.NotRegexp(t, address, string(body), target)
		base, err := url.Parse(target)
		require.NoError(t, err)
		for _, match := range linked.FindAllSubmatch(body, -1) {
			to, err := base.Parse(html.UnescapeString(string(match[1])))
			require.NoError(t, err)
			assert.Empty(t, to.Host)
			if to.Fragment != "" && to.Path == base.Path && to.RawQuery == base.RawQuery {
				assert.Contains(t, string(body), ` id="`+to.Fragment+`"`, "%s of %s", to.Fragment, target)
			}
			if to.Fragment = ""; to.RawQuery == "" && slices.Contains([]string{"/ui/feature", "/ui/reset", "/ui/override", "/ui/whatif"}, to.Path) {
				continue // of forms
			}
			left = append(left, to.String())
		}
	}
	assert.Greater(t, len(seen), 100)
}

// Each page has one first heading, no heading skips a level, each field a label, each picture a name, each table a
// caption, and no two elements have one id.
func TestTheStructureOfPages(t *testing.T) {
	w := newDay(t)
	pages := pagetest.ShownPages()
	pages["fault"], pages["missing"] = featurePage("nope", "user:x"), "/ui/nothing"
	for name, target := range pages {
		body := get(t, w.Handler(), target).Body.String()
		last := 0
		for _, match := range regexp.MustCompile(`<h([1-6])`).FindAllStringSubmatch(body, -1) {
			level := int(match[1][0] - '0')
			assert.LessOrEqual(t, level, last+1, "%s: h%d after h%d", name, level, last)
			last = level
		}
		assert.Equal(t, 1, strings.Count(body, "<h1"), name)
		ids := map[string]bool{}
		for _, match := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			assert.False(t, ids[match[1]], "%s: id %s twice", name, match[1])
			ids[match[1]] = true
		}
		for _, match := range regexp.MustCompile(` (?:aria-labelledby|aria-describedby|for)="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			for id := range strings.FieldsSeq(match[1]) {
				assert.True(t, ids[id], "%s: no element %s", name, id)
			}
		}
		for _, field := range regexp.MustCompile(`<(?:input|select|textarea) id="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			assert.Contains(t, body, `<label for="`+field[1]+`"`, name)
		}
		for _, svg := range regexp.MustCompile(`<svg[^>]*>`).FindAllString(body, -1) {
			assert.Regexp(t, `aria-hidden="true"|role="(img|group)" aria-labelledby=`, svg, name)
		}
		assert.Equal(t, strings.Count(body, "<table"), strings.Count(body, "<caption"), name)
		assert.NotContains(t, body, "<th>", "each head says of what it is")
		for _, landmark := range []string{`<a class="skip" href="#main">`, "<header>", `<main id="main"`, "<footer>", `<html lang="en">`} {
			assert.Equal(t, 1, strings.Count(body, landmark), "%s: %s", name, landmark)
		}
	}
}

// What a page reads is bounded, whatever it is asked for.
func TestReadsAreBounded(t *testing.T) {
	w := newDay(t)
	counted := &reads{world: w}
	w.Config.Service = counted
	for _, level := range []string{"second", "minute", "hour", "day"} {
		for _, from := range []string{"", "2026-03-13T12:31:00Z", "2026-03-14T12:30:00Z", "2026-03-14T00:00:00Z"} {
			counted.intervals = 0
			get(t, w.Handler(), ofIP+"&level="+level+"&from="+from)
			assert.LessOrEqual(t, counted.intervals, 24*60+60, "%s %s", level, from)
			assert.Positive(t, counted.intervals)
		}
	}
}

// The history goes from days to seconds and back by links, and to earlier and later ones.
func TestZoom(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	follow := func(target, text string) string {
		t.Helper()
		match := regexp.MustCompile(`<a href="([^"]*)"[^>]*>` + text + `</a>`).FindStringSubmatch(get(t, h, target).Body.String())
		require.NotNil(t, match, "%s has no link %s", target, text)
		return "/ui/" + strings.Split(html.UnescapeString(match[1]), "#")[0]
	}
	bar := func(target, title string) string {
		t.Helper()
		match := regexp.MustCompile(`<a href="([^"]*)" aria-label="` + title).FindStringSubmatch(get(t, h, target).Body.String())
		require.NotNil(t, match, "%s has no bar %s", target, title)
		return "/ui/" + strings.Split(html.UnescapeString(match[1]), "#")[0]
	}
	day := ofIP + "&level=day"
	hour := bar(day, "14 Mar UTC")
	assert.Contains(t, shown(t, h, hour), "Hits by the hour")
	assert.Contains(t, shown(t, h, hour), "00:00:00 to 12:59:59 UTC")
	minute := bar(hour, "14 Mar 11:00 UTC: 44 counted")
	assert.Contains(t, shown(t, h, minute), "11:00:00 to 11:59:59 UTC")
	second := bar(minute, "11:36 UTC: 4 counted")
	assert.Contains(t, shown(t, h, second), "11:36:00 to 11:36:59 UTC")
	assert.Contains(t, shown(t, h, follow(second, "zoom out")), "11:00:00 to 11:59:59 UTC")
	assert.Contains(t, shown(t, h, follow(minute, "zoom out")), "00:00:00 to 12:59:59 UTC")
	assert.Contains(t, shown(t, h, follow(minute, "← earlier")), "10:00:00 to 10:59:59 UTC")
	assert.Contains(t, shown(t, h, follow(minute, "later →")), "12:00:00 to 12:30:59 UTC")
	assert.Contains(t, shown(t, h, follow(minute, "latest")), "11:31:00 to 12:30:59 UTC")
	assert.Contains(t, shown(t, h, follow(hour, "zoom out")), "Hits by the day")
}

// The counters of a hit of several features each have their past.
func TestCountersOfAHit(t *testing.T) {
	w := newDay(t)
	body := get(t, w.Handler(), ofBob).Body.String()
	assert.Contains(t, textOf(body), "Past of ip:2001:db8::/64+user:bob")
	assert.Contains(t, body, "counter=user&amp;")
	assert.Contains(t, shown(t, w.Handler(), ofBob+"&counter=user"), "Past of user:bob")
	assert.Contains(t, shown(t, w.Handler(), ofBob+"&counter=ip"), "Past of ip:2001:db8::/64")
}

// The legend of a map names the counts of each colour, and no count has two.
func TestTheMapOfBusyMinutes(t *testing.T) {
	w := newWorld(t)
	w.DeniedIn = func(minute time.Time) int64 { return int64(minute.Minute()) * 1000 }
	text := shown(t, w.Handler(), ofIP)
	assert.Contains(t, text, "In a minute: 1–11,800 11,801–23,600 23,601–35,400 35,401–47,200 47,201–59,000")
	assert.Contains(t, text, "11:00 1,770,000")
	body := get(t, w.Handler(), ofIP).Body.String()
	assert.Contains(t, body, `<rect class="h1" x="1.667%" width="1.6%" height="14"><title>23:01 UTC: 1,000 denied</title>`)
	assert.Contains(t, body, `<rect class="h5" x="98.333%" width="1.6%" height="14"><title>23:59 UTC: 59,000 denied</title>`)
	assert.NotContains(t, body, `class="h6"`)
}

// Of a counter that forgets sooner than in a day the page shows what it remembers.
func TestAShortMemory(t *testing.T) {
	text := shown(t, newDay(t).Handler(), featurePage("login", "user:user-1"))
	assert.Contains(t, text, "Counted in each minute, by the hour (UTC) Hour Minutes :00 :15 :30 :45 Sum 12:00 5 In a minute: 1 2 3 4 5")
	assert.Contains(t, text, "12:15:00 to 12:30:59 UTC")
}

// reads is the service of a world, with how many intervals were read.
type reads struct {
	*world
	intervals int
}

func (r *reads) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	h, err := r.world.History(ctx, counter, level, from, to)
	r.intervals += len(h.Intervals)
	return h, err
}
