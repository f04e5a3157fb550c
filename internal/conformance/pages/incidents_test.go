package pages_test

import (
	"context"
	"fmt"
	"image/png"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/conformance/browsertest"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/pagetest"
)

// incidentRules are those in force at the beginning of each incident.
const incidentRules = `
events:
  api_call:
    limits:
      - {per: key, rate: 1000/d}
  login:
    retention: 24h
    limits:
      - {per: ip, rate: 20/m}
      - {per: user, rate: 5/15m}
  url_shorten:
    retention: 24h
    limits:
      - {per: ip, rate: 10/m}
`

// story is a world in which an incident has happened: each hit at its moment, and decided then.
type story struct {
	*pagetest.World
	clock      *testkit.Clock
	random     *rand.Rand
	hits       []storyHit
	generation atomic.Int64 // of the rules
}

type storyHit struct {
	at       time.Time
	event    string
	features events.Features
}

func newStory(t *testing.T, seed uint64) *story {
	t.Helper()
	s := &story{clock: testkit.NewClock(pagetest.Now.Add(-25 * time.Hour)), random: rand.New(rand.NewPCG(seed, 1))}
	s.generation.Store(3)
	s.World = pagetest.NewWorldOf(t, incidentRules, s.clock.Now)
	s.Config.Service = s
	s.Config.Source = func() (string, int64) { return "/etc/counterd/rules.yaml", s.generation.Load() }
	s.Config.Health.Servers = func() (list []service.ServerState) {
		for i := range 3 {
			list = append(list, service.ServerState{Name: fmt.Sprintf("10.0.0.%d:11211", i+1), Reachable: true})
		}
		return list
	}
	return s
}

// DeniedHistory has the denials that were decided.
func (s *story) DeniedHistory(
	ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time,
) (engine.History, error) {
	return s.Service.DeniedHistory(ctx, counter, level, from, to)
}

// hit has a hit come at a moment.
func (s *story) hit(at time.Time, event string, pairs ...string) {
	features := events.Features{}
	for i := 0; i < len(pairs); i += 2 {
		features[pairs[i]] = pairs[i+1]
	}
	s.hits = append(s.hits, storyHit{at, event, features})
}

// sometimes has hits come by chance between two moments.
func (s *story) sometimes(n int, from, to time.Time, event string, pairs ...string) {
	for range n {
		s.hit(from.Add(time.Duration(s.random.Int64N(int64(to.Sub(from))))), event, pairs...)
	}
}

// every has hits come evenly from one moment on, before another.
func (s *story) every(d time.Duration, from, to time.Time, event string, pairs ...string) {
	for at := from; at.Before(to); at = at.Add(d) {
		s.hit(at, event, pairs...)
	}
}

// until lets the hits up to a moment happen, and the moment be pagetest.Now.
func (s *story) until(t *testing.T, moment time.Time) {
	t.Helper()
	slices.SortStableFunc(s.hits, func(a, b storyHit) int { return a.at.Compare(b.at) })
	for _, h := range s.hits {
		s.clock.Set(h.at)
		event, err := s.Event(h.event)
		require.NoError(t, err)
		d, err := s.Hit(t.Context(), event, h.features, 1)
		require.NoError(t, err)
		for i := range d.Limits { // a feature has one limit in these rules
			if service.Denies(&d.Limits[i]) {
				_, err = s.Counters.Increment(t.Context(), 1, h.at, denied.CounterOf(event.Event, d.Limits[i].Feature))
				require.NoError(t, err)
			}
		}
	}
	s.hits = nil
	s.clock.Set(moment)
}

// aDeniedCustomer: from the evening on a script calls with a customer's key, and soon the limit of the day is used up.
func aDeniedCustomer(t *testing.T) *story {
	s := newStory(t, 1)
	today := time.Date(2026, 3, 14, 9, 12, 22, 0, time.UTC)
	yesterday := today.Add(-24 * time.Hour).Truncate(24 * time.Hour)
	s.sometimes(260, yesterday.Add(13*time.Hour), yesterday.Add(18*time.Hour), "api_call", "key", "acme")
	s.sometimes(40, today.Add(-12*time.Minute), today, "api_call", "key", "acme")
	s.every(10*time.Second, yesterday.Add(21*time.Hour+4*time.Minute+3*time.Second), today, "api_call", "key", "acme")
	for _, other := range []string{"globex", "initech", "umbrella"} {
		s.sometimes(300, today.Add(-20*time.Hour), today, "api_call", "key", other)
	}
	s.until(t, today)
	return s
}

// aJump: for some twenty minutes an address has been trying one user after the other.
func aJump(t *testing.T) *story {
	s := newStory(t, 2)
	today := time.Date(2026, 3, 14, 14, 40, 50, 0, time.UTC)
	for i := range 40 {
		address, user := fmt.Sprintf("198.51.100.%d", i+1), fmt.Sprintf("user-%d", i+1)
		s.sometimes(4, today.Add(-time.Hour), today, "login", "ip", address, "user", user)
	}
	for i, user := range []string{"alice", "bob", "carol"} {
		from := today.Add(-time.Duration(50-15*i) * time.Minute)
		s.sometimes(9, from, from.Add(4*time.Minute), "login", "ip", fmt.Sprintf("192.0.2.%d", i+1), "user", user)
	}
	s.attack(today.Add(-18*time.Minute-30*time.Second), today)
	s.until(t, today)
	return s
}

// attack has an address try a user in each half of a second or so.
func (s *story) attack(from, to time.Time) {
	for at := from; at.Before(to); at = at.Add(time.Duration(400+s.random.Int64N(400)) * time.Millisecond) {
		s.hit(at, "login", "ip", "203.0.113.50", "user", fmt.Sprintf("victim-%d", s.random.IntN(100_000)))
	}
}

// aLimitToChange: a scraper is above the limit, an office close to it, and all others far from it.
func aLimitToChange(t *testing.T) *story {
	s := newStory(t, 3)
	today := time.Date(2026, 3, 14, 11, 0, 22, 0, time.UTC)
	s.every(4*time.Second, today.Add(-40*time.Minute), today, "url_shorten", "ip", "203.0.113.9")
	for i := range 20 {
		from := today.Add(-time.Duration(19-i) * 3 * time.Minute).Add(-2 * time.Minute)
		s.every(time.Minute/time.Duration(5+i%3), from, from.Add(time.Minute), "url_shorten", "ip", "198.51.100.7")
	}
	s.sometimes(9, today.Add(-12*time.Minute), today, "login", "user", "alice")
	for i := range 8 {
		s.sometimes(8+i, today.Add(-time.Hour), today, "url_shorten", "ip", fmt.Sprintf("192.0.2.%d", 10+i))
	}
	s.until(t, today)
	return s
}

// change replaces a text of the rules, which are reloaded.
func (s *story) change(t *testing.T, old, replacement string) {
	t.Helper()
	parsed, err := rulesfile.Parse([]byte(strings.Replace(incidentRules, old, replacement, 1)))
	require.NoError(t, err)
	s.InForce.Store(parsed)
	s.generation.Add(1)
}

// walkWidth is that of the window in which the incidents are walked through, and of its screenshots, in pixels.
const walkWidth = 1200

// incident is how a section of docs/operations.md is walked through: by one function for each of its steps.
type incident struct {
	title string
	story func(*testing.T) *story
	steps []func(t *testing.T, w *walk)
}

// walk is an incident in a browser.
type walk struct {
	*browsertest.Tab
	*story
	pressed, typed []string // in the step
	from, to       string   // selectors of the first and the last element of the step's screenshot
}

// sectionOf selects a section by the id of its heading.
func sectionOf(heading string) string { return "section[aria-labelledby=" + heading + "]" }

var incidents = []incident{
	{"A customer is denied, and says it was not them", aDeniedCustomer, []func(*testing.T, *walk){
		func(t *testing.T, w *walk) {
			w.choose(t, "#event", "api_call")
			w.write(t, "#feature-0", "key:acme")
			w.press(t, "Look up", "main")
			w.from, w.to = "h1", ".card tbody tr:nth-child(4)"
		},
		func(_ *testing.T, w *walk) { w.from, w.to = sectionOf("past")+" > h3:not([id])", ".heat.denied" },
		func(t *testing.T, w *walk) {
			w.press(t, "22:00", ".heat.counted")
			w.press(t, "22:30", ".plot")
			w.from, w.to = "#history", "#after-chart"
		},
		func(t *testing.T, w *walk) {
			w.press(t, "Reset key:acme", "main")
			w.press(t, "Reset key:acme now", "main")
			w.from, w.to = "h1", ".usage"
		},
		func(t *testing.T, w *walk) {
			w.press(t, "Override key:acme", sectionOf("override"))
			w.choose(t, "#override-0-for", "2 hours")
			w.press(t, "Allow always, and count", sectionOf("override")+" form")
			w.from, w.to = "h1", ".card .usage"
		},
		func(*testing.T, *walk) {}, // nothing is done on the page
	}},
	{"Denials jump", aJump, []func(*testing.T, *walk){
		func(_ *testing.T, w *walk) { w.from, w.to = sectionOf("denials"), sectionOf("denials") },
		func(t *testing.T, w *walk) {
			w.press(t, "Go live", "main")
			begin := w.clock.Now()
			w.attack(begin, begin.Add(5*time.Second))
			w.until(t, begin.Add(5*time.Second))
			w.from, w.to = "h1", ".loud.denied tr:nth-child(4)"
		},
		func(t *testing.T, w *walk) {
			w.press(t, "ip:203.0.113.50", ".loud.denied")
			w.from, w.to = sectionOf("past"), ".chart"
		},
		func(t *testing.T, w *walk) {
			w.press(t, "Override ip:203.0.113.50", sectionOf("override"))
			w.choose(t, "#override-0-for", "1 hour")
			w.press(t, "Deny always", sectionOf("override")+" form")
			w.from, w.to = "h1", ".card .usage"
		},
		func(t *testing.T, w *walk) {
			w.press(t, "Rules", "header")
			w.from, w.to = "h1", sectionOf("temporary")
		},
		func(t *testing.T, w *walk) {
			begin := w.clock.Now()
			w.attack(begin, begin.Add(22*time.Minute))
			w.until(t, begin.Add(30*time.Minute))
			w.press(t, "ip:203.0.113.50", sectionOf("temporary"))
			w.press(t, "End", "main")
			w.from, w.to = "h1", ".chart"
		},
	}},
	{"A limit is to be changed", aLimitToChange, []func(*testing.T, *walk){
		func(t *testing.T, w *walk) {
			w.press(t, "Denials by limit", "header")
			w.from, w.to = "h1", sectionOf("by-limit")
		},
		func(t *testing.T, w *walk) {
			w.press(t, "Rules", "header")
			w.press(t, "What if a rule were another?", sectionOf("event-url_shorten"))
			w.write(t, "#text", "{per: ip, rate: 6/m}")
			w.press(t, "Try it", "main")
			w.from, w.to = sectionOf("trial"), sectionOf("result")
		},
		func(t *testing.T, w *walk) {
			w.write(t, "#text", "{per: ip, rate: 8/m}")
			w.press(t, "Try it", "main")
			w.from, w.to = sectionOf("trial"), ".loud.denied tr:nth-child(3)"
		},
		func(t *testing.T, w *walk) {
			w.change(t, "10/m", "8/m")
			w.press(t, "Rules", "header")
			w.from, w.to = "h1", sectionOf("event-url_shorten")
		},
	}},
}

// find is what a script finds of an element to press: its place, and its address, or form; empty: it leads nowhere.
type find struct {
	X, Y float64
	To   string
}

// press clicks on what has the text, within an element: a link, a button, a summary, or a bar by how its name begins.
// It waits for the page that a link or a form leads to.
func (w *walk) press(t *testing.T, text, within string) {
	t.Helper()
	w.pressed = append(w.pressed, text)
	script := fmt.Sprintf(`(() => {
		const text = %q;
		const seen = e => [...e.childNodes].filter(n => !n.classList?.contains("hidden")).map(n => n.textContent).join("");
		const names = e => [seen(e).trim().replace(/\s+/g, " "), (e.getAttribute("aria-label") ?? "").split(" ")[0]];
		const all = document.querySelector(%q)?.querySelectorAll("a, button, summary") ?? [];
		const e = [...all].find(e => names(e).includes(text));
		if (!e || document.readyState !== "complete") return null;
		document.documentElement.dataset.pressed = "yes";
		e.scrollIntoView({block: "center"});
		const box = (e.querySelector(".hit") ?? e).getBoundingClientRect();
		const href = e.href?.baseVal ?? e.href;
		return {
			X: box.x + box.width / 2, Y: box.y + box.height / 2,
			To: href ? new URL(href, document.baseURI).href : e.form ? "form" : "",
		};
	})()`, text, within)
	var at *find
	testkit.Await(t, longest, "something to press is called "+text, func() (found bool) {
		var err error
		at, err = chromedp.Run(w, chromedp.Evaluate[*find](script))
		return err == nil && at != nil
	})
	require.NoError(t, chromedp.Do(w, chromedp.MouseClickXY(at.X, at.Y)))
	there := `document.readyState === "complete" && ` // a live page comes again, so links are known by their addresses
	switch at.To {
	case "":
		return
	case "form":
		there += `!document.documentElement.dataset.pressed`
	default:
		there += `location.href === ` + strconv.Quote(at.To)
	}
	testkit.Await(t, longest, text+" leads to its page", func() bool {
		arrived, err := chromedp.Run(w, chromedp.Evaluate[bool](there))
		return err == nil && arrived
	})
}

// write types a text into a field, in place of what is there.
func (w *walk) write(t *testing.T, field, text string) {
	t.Helper()
	w.typed = append(w.typed, text)
	script := fmt.Sprintf("document.querySelector(%q).select()", field)
	require.NoError(t, chromedp.Do(w, chromedp.Evaluate[chromedp.Void](script)))
	press(t, w.Tab, text)
}

// choose chooses one of a list by keyboard.
func (w *walk) choose(t *testing.T, field, text string) {
	t.Helper()
	w.typed = append(w.typed, text)
	require.NoError(t, chromedp.Do(w, chromedp.SendKeys(field, text)))
	script := fmt.Sprintf("document.querySelector(%q).selectedOptions[0].text", field)
	chosen, err := chromedp.Run(w, chromedp.Evaluate[string](script))
	require.NoError(t, err)
	require.Equal(t, text, chosen)
}

// says waits until the page says all the quotes, in its text or under the mouse.
func (w *walk) says(t *testing.T, quotes []string) {
	t.Helper()
	const script = `document.readyState !== "complete" ? "" :
		document.body.innerText + [...document.querySelectorAll("svg title")].map(e => " | " + e.textContent).join("")`
	testkit.Await(t, longest, strings.Join(quotes, " | "), func() bool {
		got, err := chromedp.Run(w, chromedp.Evaluate[string](script))
		text := strings.Join(strings.Fields(got), " ")
		return err == nil && !slices.ContainsFunc(quotes, func(quote string) bool { return !strings.Contains(text, quote) })
	})
}

// rows returns which rows of the page are those of the step's screenshot.
func (w *walk) rows(t *testing.T) (from, to int) {
	t.Helper()
	script := fmt.Sprintf(`(() => {
		const box = selector => document.querySelector(selector).getBoundingClientRect();
		return [box(%q).top + scrollY, box(%q).bottom + scrollY];
	})()`, w.from, w.to)
	found, err := chromedp.Run(w, chromedp.Evaluate[[]float64](script))
	require.NoError(t, err)
	const margin = 12
	return max(int(found[0])-margin, 0), int(found[1]) + margin
}

// The incidents of docs/operations.md are walked through as it says: what is bold is pressed, and the page says what is
// quoted. With COUNTERD_SCREENSHOTS=../../../docs/images the screenshots are taken anew.
func TestIncidentsInABrowser(t *testing.T) {
	ctx := browsertest.Start(t)
	for _, incident := range incidents {
		t.Run(incident.title, func(t *testing.T) {
			s := incident.story(t)
			pages := s.Handler()
			server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
				asked := service.WithAudit(r.Context(), "oncall", slog.New(slog.DiscardHandler)) // by a token of that name
				pages.ServeHTTP(answer, r.WithContext(asked))
			}))
			defer server.Close()
			look := browsertest.Look{Width: walkWidth, Scheme: "light"}
			w := &walk{story: s, Tab: browsertest.Open(t, ctx, server.URL+"/ui/", look)}
			for i, written := range readSteps(t, incident.title) {
				w.pressed, w.typed, w.from = nil, nil, ""
				incident.steps[i](t, w)
				assert.Equal(t, written.bold, w.pressed, "step %d", i+1)
				assert.Subset(t, written.code, w.typed, "step %d", i+1)
				w.says(t, written.quotes)
				// A live page comes no more.
				require.NoError(t, chromedp.Do(w, chromedp.Evaluate[chromedp.Void]("window.stop()")))
				found := w.See(t)
				assert.Empty(t, found.Faults())
				for _, image := range written.images {
					from, to := w.rows(t)
					found.KeepRows(t, strings.TrimSuffix(image, ".png"), from, to)
				}
			}
		})
	}
}

// imagesFolder has the screenshots of docs/operations.md.
var imagesFolder = filepath.Join("..", "..", "..", "docs", "images")

// writtenStep is a step of an incident as docs/operations.md has it.
type writtenStep struct{ bold, code, quotes, images []string }

var (
	stepBegins = regexp.MustCompile(`(?m)^\d+\. `)
	bold       = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	code       = regexp.MustCompile("`([^`]+)`")
	quote      = regexp.MustCompile(`“([^”]+)”`)
	imageLink  = regexp.MustCompile(`!\[[^\]]+\]\(images/([^)]+)\)`)
)

// readIncidents returns the sections of the incidents in docs/operations.md.
func readIncidents(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## Incidents\n")
	require.True(t, found)
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

// readSteps returns the steps of an incident.
func readSteps(t *testing.T, title string) (steps []writtenStep) {
	t.Helper()
	_, section, found := strings.Cut(readIncidents(t), "\n### "+title+"\n")
	require.True(t, found, title)
	section, _, _ = strings.Cut(section, "\n### ")
	for _, text := range stepBegins.Split(section, -1)[1:] {
		text = strings.Join(strings.Fields(text), " ")
		all := func(pattern *regexp.Regexp) (list []string) {
			for _, match := range pattern.FindAllStringSubmatch(text, -1) {
				list = append(list, match[1])
			}
			return list
		}
		steps = append(steps, writtenStep{all(bold), all(code), all(quote), all(imageLink)})
	}
	return steps
}

// Each step is walked, each image that docs/operations.md shows is that of a step, and none is left over.
func TestScreenshotsOfIncidents(t *testing.T) {
	var named []string
	for _, incident := range incidents {
		written := readSteps(t, incident.title)
		require.Len(t, written, len(incident.steps), incident.title)
		for i, step := range written {
			assert.LessOrEqual(t, len(step.images), 1, "step %d", i+1)
			named = append(named, step.images...)
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	assert.Equal(t, len(named), strings.Count(string(text), "](images/"), "images are those of steps")
	assert.Equal(t, len(incidents), strings.Count(readIncidents(t), "\n### "))
	kept, err := os.ReadDir(imagesFolder)
	require.NoError(t, err)
	var names []string
	for _, entry := range kept {
		names = append(names, entry.Name())
	}
	assert.ElementsMatch(t, named, names)
	for _, name := range named {
		file, err := os.Open(filepath.Join(imagesFolder, name))
		require.NoError(t, err)
		defer file.Close()
		config, err := png.DecodeConfig(file)
		require.NoError(t, err, name)
		assert.Equal(t, walkWidth, config.Width, name)
		info, err := file.Stat()
		require.NoError(t, err)
		assert.Less(t, info.Size(), int64(120_000), name)
	}
}
