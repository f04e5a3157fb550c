package page_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

const formType = "application/x-www-form-urlencoded"

// post sends a form.
func post(t *testing.T, h http.Handler, mediaType, body string) *httptest.ResponseRecorder {
	t.Helper()
	return postTo(t, h, "/ui/reset", mediaType, body)
}

// postTo sends a form to a route.
func postTo(t *testing.T, h http.Handler, target, mediaType, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Content-Type", mediaType)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	assert.Contains(t, answer.Header().Get("Content-Security-Policy"), "default-src 'none'")
	for _, fault := range foreign(strings.NewReader(answer.Body.String())) {
		assert.Fail(t, fault, body)
	}
	return answer
}

var resetField = regexp.MustCompile(`<form action="reset" method="post"><input type="hidden" name="of" value="([^"]*)">`)

// resets returns the bodies of a page's forms that reset a counter.
func resets(t *testing.T, h http.Handler, target string) (bodies []string) {
	t.Helper()
	for _, match := range resetField.FindAllStringSubmatch(get(t, h, target).Body.String(), -1) {
		bodies = append(bodies, url.Values{"of": {html.UnescapeString(match[1])}}.Encode())
	}
	return bodies
}

// follow returns the page that an answer leads to.
func follow(t *testing.T, h http.Handler, answer *httptest.ResponseRecorder) string {
	t.Helper()
	require.Equal(t, http.StatusSeeOther, answer.Code, textOf(answer.Body.String()))
	location := answer.Header().Get("Location")
	require.True(t, strings.HasPrefix(location, "feature?"), "relative, as all links are: %s", location)
	return shown(t, h, "/ui/"+location)
}

// The form of a counter resets that counter and no other. The page says so, and what was denied is admitted.
func TestReset(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	ip, other := events.Features{"ip": "192.0.2.1"}, events.Features{"ip": "198.51.100.0"}
	require.False(t, w.Admits(t, "url_shorten", ip))
	require.False(t, w.Admits(t, "url_shorten", other))
	forms := resets(t, h, ofIP)
	require.Len(t, forms, 1)
	assert.Contains(t, shown(t, h, ofIP), "Reset ip:192.0.2.1 This cannot be undone. Reset ip:192.0.2.1 now")
	answer := post(t, h, formType+"; charset=utf-8", forms[0])
	text := follow(t, h, answer)
	assert.Contains(t, text, "The counter ip:192.0.2.1 was reset at 12:30:22 UTC. A hit would be admitted: 0 of 10 url_shorten")
	assert.True(t, w.Admits(t, "url_shorten", ip))
	assert.False(t, w.Admits(t, "url_shorten", other))
	location, _, _ := strings.Cut(answer.Header().Get("Location"), "reset=")
	for _, later := range []string{"1773491300", "1773491600", "x", ""} {
		assert.NotContains(t, shown(t, h, "/ui/"+location+"reset="+later), "was reset", "later a bookmark does not say it")
	}
}

// Of several counters each has its form, also that of an event as a whole, and of one without limits.
func TestResetOfEachCounter(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	names := []string{"ip:2001:db8::/64", "user:bob", "ip:2001:db8::/64+user:bob"}
	forms := resets(t, h, ofBob)
	require.Len(t, forms, len(names))
	for i, name := range names {
		text := follow(t, h, post(t, h, formType, forms[i]))
		assert.Contains(t, text, "The counter "+name+" was reset at")
		assert.Contains(t, text, "Past of "+name)
	}
	for target, name := range map[string]string{featurePage("export"): "the event as a whole", featurePage("plain", "user:bob"): "user:bob", featurePage("url_shorten", "key:k-1"): "key:k-1"} {
		forms := resets(t, h, target)
		require.Len(t, forms, 1, target)
		assert.Contains(t, follow(t, h, post(t, h, formType, forms[0])), "The counter "+name+" was reset at")
	}
	assert.True(t, w.Admits(t, "export", nil))
}

// What a form has to be. One that is faulty resets nothing.
func TestFaultyForms(t *testing.T) {
	w := newDay(t)
	counted := &resetService{world: w}
	w.Config.Service = counted
	h := w.Handler()
	of := func(query string) string { return url.Values{"of": {query}}.Encode() }
	good := of("event=login&feature=user%3Auser-1&counter=user")
	for _, test := range []struct {
		mediaType, body string
		status          int
		words           string
	}{
		{"application/json", good, 415, "application/x-www-form-urlencoded"},
		{"multipart/form-data; boundary=x", good, 415, "application/x-www-form-urlencoded"},
		{"text/plain", good, 415, "application/x-www-form-urlencoded"},
		{"", good, 415, "application/x-www-form-urlencoded"},
		{formType, good + "&x=" + strings.Repeat("x", 16<<10), 413, "larger than 16 KiB"},
		{formType, "", 400, "names no counter"},
		{formType, "event=login&feature=user%3Auser-1&counter=user", 400, "names no counter"},
		{formType, "of=", 400, "names no counter"},
		{formType, "of=%25zz", 400, "names no counter"},
		{formType, "of=%zz", 400, "cannot be read"},
		{formType, of("event=nope&feature=user%3Auser-1&counter=user"), 404, "no event of this name"},
		{formType, of("event=login&feature=user&counter=user"), 400, "kind:value"},
		{formType, of("event=login&feature=user%3A" + strings.Repeat("w", 1025) + "&counter=user"), 400, "at most 1024"},
		{formType, of("event=login&feature=user%3Auser-1&counter=ip"), 400, "value is empty"},
		{formType, of("event=login&feature=user%3Auser-1&counter=user%2Bip"), 400, "value is empty"},
		{formType, of("event=login&feature=user%3Auser-1"), 400, "A kind is 1 to 32"},
	} {
		answer := post(t, h, test.mediaType, test.body)
		assert.Equal(t, test.status, answer.Code, test.body)
		assert.Contains(t, textOf(answer.Body.String()), test.words, test.body)
	}
	assert.Empty(t, counted.reset)
	require.Equal(t, http.StatusSeeOther, post(t, h, formType, good).Code)
	assert.Equal(t, []string{"login user:user-1"}, counted.reset)
	assert.Equal(t, http.StatusNotFound, get(t, h, "/ui/reset").Code, "only a form resets")
	assert.Len(t, counted.reset, 1)
}

// A store that fails is said on the counter's page, with the status, and without its text.
func TestResetsThatFail(t *testing.T) {
	w := newDay(t)
	failing := &resetService{world: w}
	w.Config.Service = failing
	h := w.Handler()
	form := resets(t, h, ofIP)[0]
	for err, words := range map[error]string{
		errors.Join(service.ErrNotReset, engine.StoreError(assert.AnError)): "The store did not answer, or not in time: the counter may be reset in part. Reset it again.",
		service.ErrOverload: "The server has too much to do",
	} {
		failing.err = err
		answer := post(t, h, formType, form)
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		text := textOf(answer.Body.String())
		assert.Contains(t, text, words)
		assert.NotContains(t, text, "was reset")
		assert.NotContains(t, text, assert.AnError.Error())
		assert.Contains(t, text, "Past of ip:192.0.2.1", "the page is there, with the form")
		assert.Len(t, resetField.FindAllString(answer.Body.String(), -1), 1)
	}
	assert.False(t, w.Admits(t, "url_shorten", events.Features{"ip": "192.0.2.1"}))
}

// resetService is the service of a world, with what was reset, and the fault of a reset.
type resetService struct {
	*world
	reset []string
	err   error
}

func (s *resetService) Reset(ctx context.Context, counter events.Counter) error {
	if s.err != nil {
		return s.err
	}
	s.reset = append(s.reset, counter.Event+" "+counter.Feature.String())
	return s.world.Reset(ctx, counter)
}

// Values of strangers are text in forms, and name the counter that they are of, to the letter.
func TestResetsOfHostileValues(t *testing.T) {
	w := newWorld(t)
	counted := &resetService{world: w}
	w.Config.Service = counted
	h := w.Handler()
	values := append([]string{"a\r\nb", "a\rb", " a ", "&counter=ip", "%0A", strings.Repeat("\"", 1024), "+", "a\x00b"}, hostile...)
	for _, value := range values {
		features := events.Features{"user": value}
		w.Hits(t, "login", 5, features)
		require.False(t, w.Admits(t, "login", features), "%q", value)
		forms := resets(t, h, featurePage("login", "user:"+value))
		require.Len(t, forms, 1, "%q", value)
		assert.Contains(t, follow(t, h, post(t, h, formType, forms[0])), "was reset at")
		assert.Equal(t, "login "+"user:"+value, counted.reset[len(counted.reset)-1])
		assert.True(t, w.Admits(t, "login", features), "%q", value)
	}
	n := len(counted.reset)
	for _, value := range append(values, "\xff\xfe", "%zz") {
		for _, query := range []url.Values{{"event": {value}}, {"event": {"login"}, "feature": {value}}, {"event": {"login"}, "feature": {"user:bob"}, "counter": {value}}} {
			answer := post(t, h, formType, url.Values{"of": {query.Encode()}, value: {value}}.Encode())
			assert.Contains(t, []int{400, 404}, answer.Code, "%q", query)
		}
		assert.Equal(t, 400, post(t, h, formType, url.Values{value: {value}}.Encode()).Code)
	}
	assert.Len(t, counted.reset, n)
}

// White space at the ends of a value is part of it: links, resets and overrides of such a value act on it alone, and
// its page says so.
func TestWhiteSpaceAtTheEndsOfValues(t *testing.T) {
	w := newWorld(t)
	h := w.Handler()
	bob := events.Features{"user": "bob"}
	w.Hits(t, "login", 7, bob)
	for value, remark := range map[string]string{
		"bob ": "The value of user ends in white space.", "bob\n": "The value of user ends in white space.",
		"bob\u00a0": "The value of user ends in white space.", "\tbob": "The value of user begins in white space.",
		"\u2028": "The value of user begins and ends in white space.",
	} {
		features, page := events.Features{"user": value}, featurePage("login", "user:"+value)
		w.Hits(t, "login", 7, features)
		require.False(t, w.Admits(t, "login", features), "%q", value)
		overview := html.UnescapeString(get(t, h, "/ui/").Body.String())
		assert.True(t, strings.Contains(overview, `href="`+strings.TrimPrefix(page, "/ui/")+`"`), "%q has its link", value)
		assert.Contains(t, shown(t, h, page), remark, "%q", value)
		assert.Contains(t, shown(t, h, page), "would be denied: 5 of 5", "%q", value)

		forms := resets(t, h, page)
		require.Len(t, forms, 1, "%q", value)
		follow(t, h, post(t, h, formType, forms[0]))
		assert.Contains(t, shown(t, h, page), "would be admitted: 0 of 5", "%q", value)
		assert.True(t, w.Admits(t, "login", features), "%q", value)
		assert.False(t, w.Admits(t, "login", bob), "%q was meant", value)

		override := func(fields ...string) {
			follow(t, h, postTo(t, h, "/ui/override", formType, overrideForm("login", "user:"+value, "user", fields...)))
		}
		override("verdict", "allow", "for", "1h")
		require.Len(t, w.Overrides(), 1)
		assert.Equal(t, value, w.Overrides()[0].Value)
		assert.False(t, w.Admits(t, "login", bob), "%q was meant", value)
		follow(t, h, postTo(t, h, "/ui/override", formType, overrideForm("login", "user:bob", "user", "verdict", "end")))
		require.Len(t, w.Overrides(), 1, "%q was not meant", value)
		override("verdict", "end")
		assert.Empty(t, w.Overrides(), "%q", value)
	}
	assert.NotContains(t, shown(t, h, featurePage("login", "user:bob")), "white space")
}
