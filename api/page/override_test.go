package page_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	htmlparser "golang.org/x/net/html"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/service"
)

// overrideForm returns the body of a form that overrides a feature.
func overrideForm(event, feature, kind string, fields ...string) string {
	form := url.Values{"of": {url.Values{"event": {event}, "feature": {feature}}.Encode()}, "kind": {kind}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return form.Encode()
}

// An override is set, shown where its feature is and among the rules, and ended.
func TestOverride(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	ip := events.Features{"ip": "192.0.2.1"}
	require.False(t, w.Admits(t, "url_shorten", ip))
	text := shown(t, h, ofIP)
	assert.Contains(t, text, "Override ip:192.0.2.1 New rates For 15 minutes 1 hour 2 hours 8 hours 1 day 7 days "+
		"Set these rates Deny always Allow always, and count Rates have windows of the rules, whose rates are 10/m 5000/d .")
	assert.NotContains(t, text, "Override: ")
	assert.NotContains(t, shown(t, h, "/ui/rules"), "Temporary overrides")

	change := func(fields ...string) string {
		return follow(t, h, postTo(t, h, "/ui/override", formType, overrideForm("url_shorten", "ip:192.0.2.1", "ip", fields...)))
	}
	text = change("verdict", "allow", "for", "2h")
	assert.Contains(t, text, "From 12:30:22 UTC to 14:30:22 UTC, ip:192.0.2.1 is always allowed. Then the rules decide again.")
	assert.Contains(t, text, "Override: ip:192.0.2.1 is always allowed until 14:30:22 UTC. Set by a program at 12:30:22 UTC.")
	assert.True(t, w.Admits(t, "url_shorten", ip))
	assert.Contains(t, shown(t, h, "/ui/rules"), "Temporary overrides in force Feature Event Is Until Set at By End ip:192.0.2.1 url_shorten always allowed 14:30:22 UTC 12:30:22 UTC a program End the override of ip:192.0.2.1")

	assert.Contains(t, text, "A hit would be admitted: an override allows it.")
	assert.Contains(t, text, "By a temporary override: always allowed.")

	text = change("verdict", "rates", "rates", "500/m", "for", "168h")
	assert.Equal(t, 1, strings.Count(text, "By a temporary override, instead of the rule's rate."), "the limit of the day is the rule's")
	assert.Contains(t, text, "is at most 500 per minute until 21 Mar 2026 12:30:22 UTC")
	assert.True(t, w.Admits(t, "url_shorten", ip))
	text = change("verdict", "deny", "for", "15m")
	assert.Contains(t, text, "is always denied until 12:45:22 UTC")
	assert.Contains(t, text, "A hit would be denied: an override denies it.")
	assert.Contains(t, text, "By a temporary override: always denied.")
	assert.NotContains(t, text, "deny list")
	other := events.Features{"ip": "203.0.113.77"}
	assert.True(t, w.Admits(t, "url_shorten", other))
	assert.False(t, w.Admits(t, "url_shorten", ip))
	text = change("verdict", "end")
	assert.Contains(t, text, "The override of ip:192.0.2.1 was ended at 12:30:22 UTC. The rules decide again.")
	assert.NotContains(t, text, "Override: ")
	assert.Empty(t, w.Overrides())
	change("verdict", "end") // again, as another tab may

	several := shown(t, h, ofBob)
	assert.Contains(t, several, "Override ip:2001:db8::7 New rates")
	assert.Contains(t, several, "Override user:bob New rates")
	assert.NotContains(t, shown(t, h, featurePage("plain", "user:bob")), "Deny always", "no limit is per the kind")
	assert.NotContains(t, shown(t, h, featurePage("url_shorten", "key:k-1")), "New rates", "token buckets have no windows")
}

// submitted returns the fields that a browser sends for the first form to an address, if the reader types text into the
// field of a name and presses Enter: each list has its first choice, unless another is selected, and the first button is
// pressed.
func submitted(t *testing.T, body, action, name, text string) url.Values {
	t.Helper()
	_, form, found := strings.Cut(body, `action="`+action+`"`)
	require.True(t, found)
	form, _, _ = strings.Cut(form, "</form>")
	fields, list, pressed := url.Values{}, "", false
	for tokens := htmlparser.NewTokenizer(strings.NewReader(form)); tokens.Next() != htmlparser.ErrorToken; {
		token, attributes := tokens.Token(), map[string]string{}
		for _, attribute := range token.Attr {
			attributes[attribute.Key] = attribute.Val
		}
		_, selected := attributes["selected"]
		switch {
		case token.Type != htmlparser.StartTagToken:
		case token.Data == "select":
			list = attributes["name"]
		case token.Data == "option" && (selected || !fields.Has(list)):
			fields.Set(list, attributes["value"])
		case token.Data == "input", token.Data == "button" && !pressed && attributes["name"] != "":
			fields.Set(attributes["name"], attributes["value"])
			pressed = pressed || token.Data == "button"
		}
	}
	require.True(t, fields.Has(name), "the form has no field %s", name)
	fields.Set(name, text)
	return fields
}

// Whoever types a rate gets the rate: no choice of the form is made in advance, and none opens a limit unasked.
func TestATypedRateImpliesRates(t *testing.T) {
	w := newDay(t)
	h := w.Handler()
	fields := submitted(t, get(t, h, ofIP).Body.String(), "override", "rates", "500/m")
	answer := postTo(t, h, "/ui/override", formType, fields.Encode())
	require.Equal(t, http.StatusSeeOther, answer.Code, textOf(answer.Body.String()))
	require.Len(t, w.Overrides(), 1)
	assert.Equal(t, events.Unlisted, w.Overrides()[0].Listing)
	require.Len(t, w.Overrides()[0].Rates, 1)
	text := follow(t, h, answer)
	assert.Contains(t, text, "From 12:30:22 UTC to 14:30:22 UTC, ip:192.0.2.1 is at most 500 per minute. Then the rules decide again. "+
		"Other processes follow within two seconds.")

	fields.Del("verdict")
	fields.Set("rates", "7/m")
	text = follow(t, h, postTo(t, h, "/ui/override", formType, fields.Encode()))
	assert.Contains(t, text, "ip:192.0.2.1 is at most 7 per minute.", "without a button, too")

	for _, verdict := range []string{"allow", "deny"} {
		fields.Set("verdict", verdict)
		answer = postTo(t, h, "/ui/override", formType, fields.Encode())
		assert.Equal(t, http.StatusBadRequest, answer.Code, verdict)
		assert.Contains(t, textOf(answer.Body.String()), "Rates were typed", verdict)
		assert.Len(t, w.Overrides()[0].Rates, 1, verdict)
	}
	fields.Del("verdict")
	fields.Del("rates")
	answer = postTo(t, h, "/ui/override", formType, fields.Encode())
	assert.Equal(t, http.StatusBadRequest, answer.Code, "nothing was chosen")
	assert.Len(t, w.Overrides()[0].Rates, 1)
}

// What is wrong with a form is said, and nothing is done.
func TestFaultyOverrides(t *testing.T) {
	w := newDay(t)
	failing := &overrideService{world: w}
	w.Config.Service = failing
	h := w.Handler()
	for _, test := range []struct {
		body   string
		status int
		words  string
	}{
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip"), 400, "An override allows, denies, or has rates."},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "maybe", "for", "1h"), 400, "An override allows, denies, or has rates."},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "allow"), 400, "It holds for a duration"},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "allow", "for", "9000h"), 400, "Until: an override holds for 30 days at the most."},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "rates", "for", "1h"), 400, "It allows, denies, or has 1 to 8 rates."},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "rates", "rates", "often", "for", "1h"), 400, "A rate is written"},
		{overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "rates", "rates", "5/8s", "for", "1h"), 400, "No limit per ip has the window 8s"},
		{overrideForm("url_shorten", "ip:192.0.2.1", "user", "verdict", "allow", "for", "1h"), 400, "the value is empty"},
		{overrideForm("url_shorten", "ip:x", "ip", "verdict", "allow", "for", "1h"), 400, "not an IP address"},
		{overrideForm("nope", "ip:192.0.2.1", "ip", "verdict", "allow", "for", "1h"), 404, "no event of this name"},
		{"of=", 400, "names no counter"},
	} {
		answer := postTo(t, h, "/ui/override", formType, test.body)
		assert.Equal(t, test.status, answer.Code, test.body)
		assert.Contains(t, textOf(answer.Body.String()), test.words, test.body)
	}
	for err, want := range map[error]struct {
		status int
		words  string
	}{overrides.ErrTooMany: {409, "as many overrides as there may be"}, engine.StoreError(assert.AnError): {503, "The store did not answer"}, service.ErrOverload: {503, "too much to do"}} {
		failing.err = err
		answer := postTo(t, h, "/ui/override", formType, overrideForm("url_shorten", "ip:192.0.2.1", "ip", "verdict", "allow", "for", "1h"))
		assert.Equal(t, want.status, answer.Code)
		assert.Contains(t, textOf(answer.Body.String()), want.words)
	}
	assert.Empty(t, w.Overrides())
	assert.Equal(t, http.StatusNotFound, get(t, h, "/ui/override").Code)
}

// overrideService is the service of a world, with the fault of an override.
type overrideService struct {
	*world
	err error
}

func (s *overrideService) SetOverride(ctx context.Context, o events.Override) (events.Override, error) {
	if s.err != nil {
		return o, s.err
	}
	return s.world.SetOverride(ctx, o)
}

// Values of strangers are text, and name the feature that they are of, to the letter.
func TestOverridesOfHostileValues(t *testing.T) {
	w := newWorld(t)
	h := w.Handler()
	for _, value := range append([]string{"a\r\nb", "&kind=ip", "%0A", "+"}, hostile...) {
		features := events.Features{"user": value}
		answer := postTo(t, h, "/ui/override", formType, overrideForm("login", "user:"+value, "user", "verdict", "deny", "for", "1h"))
		follow(t, h, answer)
		assert.False(t, w.Admits(t, "login", features), "%q", value)
		for _, target := range []string{featurePage("login", "user:"+value), "/ui/rules"} {
			for _, fault := range foreign(get(t, h, target).Body) {
				assert.Fail(t, fault, "%q", value)
			}
		}
		follow(t, h, postTo(t, h, "/ui/override", formType, overrideForm("login", "user:"+value, "user", "verdict", "end")))
		assert.True(t, w.Admits(t, "login", features), "%q", value)
	}
}
