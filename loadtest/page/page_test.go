package page_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/counterd/counterd/internal/testkit/pagetest"
	"github.com/counterd/counterd/loadtest/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, p page.Page) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	return out.String()
}

// skeleton is a page's elements with their attributes, and the places of its texts.
func skeleton(text string) (list []string) {
	tokens := html.NewTokenizer(strings.NewReader(text))
	for {
		kind := tokens.Next()
		token := tokens.Token()
		switch kind {
		case html.ErrorToken:
			return append(list, tokens.Err().Error())
		case html.TextToken:
			if strings.TrimSpace(token.Data) != "" {
				list = append(list, "text")
			}
			continue
		}
		bone := kind.String() + " " + token.Data
		for _, attribute := range token.Attr {
			bone += " " + attribute.Key
		}
		list = append(list, bone)
	}
}

func parse(t testing.TB, text string) *html.Node {
	t.Helper()
	document, err := html.Parse(strings.NewReader(text))
	require.NoError(t, err)
	return document
}

// elements returns those of a name.
func elements(t testing.TB, text, name string) (list []*html.Node) {
	t.Helper()
	for node := range parse(t, text).Descendants() {
		if node.Type == html.ElementNode && node.Data == name {
			list = append(list, node)
		}
	}
	return list
}

func attribute(node *html.Node, key string) string {
	for _, a := range node.Attr {
		if strings.EqualFold(a.Key, key) {
			return a.Val
		}
	}
	return ""
}

func textOf(node *html.Node) string {
	var text strings.Builder
	for child := range node.Descendants() {
		if child.Type == html.TextNode {
			text.WriteString(child.Data)
		}
	}
	return text.String()
}

// requireWithin holds every line and text of the page's plots to the plot's box.
func requireWithin(t testing.TB, text string) {
	t.Helper()
	for _, svg := range elements(t, text, "svg") {
		box := strings.Fields(attribute(svg, "viewBox"))
		require.Len(t, box, 4)
		inside := func(x, y string) {
			for i, value := range []string{x, y} {
				v, err := strconv.ParseFloat(value, 64)
				require.NoError(t, err)
				end, err := strconv.ParseFloat(box[2+i], 64)
				require.NoError(t, err)
				require.True(t, v >= -0.5 && v <= end+0.5, "%s,%s is not within %v", x, y, box)
			}
		}
		for node := range svg.Descendants() {
			switch {
			case node.Type != html.ElementNode:
			case node.Data == "text":
				inside(attribute(node, "x"), attribute(node, "y"))
			case node.Data == "path" && attribute(svg, "class") != "swatch":
				for place := range strings.FieldsFuncSeq(attribute(node, "d"), func(r rune) bool { return r == 'M' || r == 'L' }) {
					x, y, _ := strings.Cut(place, ",")
					inside(x, y)
				}
			}
		}
	}
}

// plotOf draws two lines that go through the points.
func plotOf(axis page.Axis, x, y []float64) page.Page {
	lines := []page.Line{{Name: "a", X: x, Y: y}, {Name: "b", X: y[:1], Y: x[:1]}}
	return page.Page{Sections: []page.Section{{Plot: &page.Plot{X: axis, Y: axis, Lines: lines}}}}
}

func TestEveryValueHasAPlace(t *testing.T) {
	odd := []float64{0, 1e-9, 0.001, 1, 1.0000001, 59, 1e5, 1e5 + 1, 1e9, 1e15}
	for _, a := range odd {
		for _, b := range odd {
			for _, axis := range pagetest.Axes {
				if axis.Log && a*b == 0 {
					continue
				}
				requireWithin(t, write(t, plotOf(axis, []float64{a, b, 1}, []float64{b, a, a})))
			}
		}
	}
}

func TestAPageMayHaveNothing(t *testing.T) {
	text := write(t, page.Page{Sections: []page.Section{{}, {Plot: &page.Plot{}}, {Table: &page.Table{}}}})
	requireWithin(t, text)
	assert.Len(t, elements(t, text, "section"), 3)
}

// pageOf has a name wherever there is room for one.
func pageOf(name string) page.Page {
	return page.Page{Title: name, Subtitle: name, Sections: []page.Section{{
		Title: name,
		Text:  strings.NewReplacer("\n", " ", "\r", " ").Replace(name), // they make paragraphs
		Table: &page.Table{Head: []string{name, name}, Rows: [][]string{{name, name}}},
		Plot: &page.Plot{
			Title: name, X: page.Axis{Label: name}, Y: page.Axis{Label: name},
			Lines: []page.Line{{Name: name, X: []float64{1, 2}, Y: []float64{1, 2}}},
		},
	}}}
}

// requireHarmless tells whether a name adds an element or an attribute to a page, ends one,
// or is lost. The bones are those of the page of a name without harm.
func requireHarmless(t testing.TB, bones []string, name string) {
	t.Helper()
	name = "x" + name
	text := write(t, pageOf(name))
	require.Equal(t, bones, skeleton(text))
	if !utf8.ValidString(name) {
		return
	}
	shown := strings.NewReplacer("\x00", "\ufffd", "\r\n", "\n", "\r", "\n").Replace(name)
	places := 0
	for node := range parse(t, text).Descendants() {
		if slices.Contains([]string{"h1", "h2", "h3", "title", "td", "li", "caption"}, node.Data) && node.Type == html.ElementNode {
			places++
			require.Equal(t, shown, textOf(node), node.Data)
		}
	}
	require.Equal(t, 8, places)
}

func TestNamesAreTexts(t *testing.T) {
	bones := skeleton(write(t, pageOf("x")))
	for _, attack := range pagetest.Attacks {
		requireHarmless(t, bones, attack)
	}
}

func FuzzPage(f *testing.F) {
	for i, attack := range pagetest.Attacks {
		f.Add(attack, float64(i), 1/float64(i+1), uint8(i))
	}
	bones := skeleton(write(f, pageOf("x")))
	f.Fuzz(func(t *testing.T, name string, a, b float64, kind uint8) {
		requireHarmless(t, bones, name)
		for _, v := range []*float64{&a, &b} {
			if *v = math.Abs(*v); !(*v >= 1e-9 && *v <= 1e15) {
				*v = 1
			}
		}
		requireWithin(t, write(t, plotOf(pagetest.Axes[int(kind)%len(pagetest.Axes)], []float64{a, b}, []float64{b, a})))
	})
}

// Nothing is loaded, nothing is run: neither by an element, nor by an attribute.
func TestThePageAsksForNothing(t *testing.T) {
	text := write(t, pagetest.Report())
	for node := range parse(t, text).Descendants() {
		assert.NotContains(t, []string{"script", "link", "img", "iframe", "object", "embed", "base", "form", "a", "use", "image", "foreignObject"}, node.Data)
		for _, a := range node.Attr {
			assert.NotContains(t, []string{"href", "src", "style", "srcset", "action"}, a.Key)
			assert.False(t, strings.HasPrefix(a.Key, "on"), a.Key)
		}
	}
	assert.NotContains(t, text, "url(")
	assert.NotContains(t, text, "@import")
	policy := elements(t, text, "meta")[1]
	assert.Equal(t, "Content-Security-Policy", attribute(policy, "http-equiv"))
	assert.Regexp(t, `^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; base-uri 'none'; form-action 'none'$`, attribute(policy, "content"))
}

// A plot has a description in words, for readers that do not see it.
func TestPlotsAreSaidInWords(t *testing.T) {
	text := write(t, page.Page{Sections: []page.Section{{Plot: &page.Plot{
		Title: "Hits", X: page.Axis{Label: "time"}, Y: page.Axis{Label: "share", Unit: page.Percent},
		Lines: []page.Line{{Name: "admitted", X: []float64{1, 2}, Y: []float64{1.5, 20}}, {Name: "denied", X: []float64{1}, Y: []float64{0}}},
	}}}})
	svg := elements(t, text, "svg")[2] // behind two swatches
	ids := strings.Fields(attribute(svg, "aria-labelledby"))
	require.Len(t, ids, 2)
	assert.Equal(t, "img", attribute(svg, "role"))
	title, desc := svg.FirstChild.NextSibling, svg.FirstChild.NextSibling.NextSibling.NextSibling
	assert.Equal(t, ids[0], attribute(title, "id"))
	assert.Equal(t, "Hits", textOf(title))
	assert.Equal(t, ids[1], attribute(desc, "id"))
	assert.Equal(t, "share over time. admitted: from 1.5% to 20%. denied: from 0% to 0%.", textOf(desc))
}

// The marks of an axis are where one looks for them.
func TestMarks(t *testing.T) {
	for _, example := range []struct {
		axis   page.Axis
		values []float64
		marks  string
	}{
		{page.Axis{}, []float64{0, 0}, "0 1"},
		{page.Axis{}, []float64{0, 3}, "0 1 2 3"},
		{page.Axis{}, []float64{0, 999}, "0 200 400 600 800 1,000"},
		{page.Axis{}, []float64{12345, 20000}, "0 5,000 10,000 15,000 20,000"},
		{page.Axis{}, []float64{0, 4e6}, "0 1,000,000 2,000,000 3,000,000 4,000,000"},
		{page.Axis{Unit: page.Percent}, []float64{0, 100}, "0% 20% 40% 60% 80% 100%"},
		{page.Axis{Unit: page.Percent, Log: true}, []float64{0.06, 100}, "0.01% 0.1% 1% 10% 100%"},
		{page.Axis{Log: true}, []float64{2, 9}, "1 10"},
		{page.Axis{Log: true}, []float64{1, 1e12}, "1 1,000 1,000,000 1,000,000,000 1,000,000,000,000"},
		{page.Axis{Unit: page.Moment}, []float64{1431849600, 1431853200}, "08:00 08:15 08:30 08:45 09:00"},
		{page.Axis{Unit: page.Moment}, []float64{1431849600, 1431849602}, "08:00:00 08:00:01 08:00:02"},
		{page.Axis{Unit: page.Moment}, []float64{1431820800, 1432080000}, "17 May 18 May 19 May 20 May"},
		{page.Axis{Unit: page.Moment}, []float64{1431820800, 1432858000}, "20 May 25 May"},
	} {
		line := page.Line{X: []float64{1, 1}, Y: example.values}
		text := write(t, page.Page{Sections: []page.Section{{Plot: &page.Plot{Y: example.axis, Lines: []page.Line{line}}}}})
		var marks []string
		for node := range elements(t, text, "svg")[1].Descendants() { // behind a swatch
			if node.Data == "text" && attribute(node, "text-anchor") == "end" && attribute(node, "class") == "mark" {
				marks = append(marks, textOf(node))
			}
		}
		assert.Equal(t, example.marks, strings.Join(marks, " "), fmt.Sprint(example.axis, example.values))
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteSaysWhatItCannot(t *testing.T) {
	require.ErrorIs(t, page.Page{}.Write(brokenWriter{}), errBroken)
}

// Pages may be written side by side.
func TestPagesShareNothing(t *testing.T) {
	wanted := write(t, pagetest.Report())
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			var out bytes.Buffer
			assert.NoError(t, pagetest.Report().Write(&out))
			assert.Equal(t, wanted, out.String())
		})
	}
	writers.Wait()
}

// A value holds until the next one. A single point is a dot.
func TestLinesAreSteps(t *testing.T) {
	lines := []page.Line{{Name: "a", X: []float64{0, 60, 120}, Y: []float64{0, 10, 5}}, {Name: "b", X: []float64{60}, Y: []float64{5}}}
	text := write(t, page.Page{Sections: []page.Section{{Plot: &page.Plot{X: page.Axis{Unit: page.Moment}, Lines: lines}}}})
	assert.Contains(t, text, `<path class="line c0 d0" d="M90.0,316.0L490.0,316.0L490.0,26.0L890.0,26.0L890.0,171.0"/>`)
	assert.Contains(t, text, `<path class="dot c1 d0" d="M490.0,171.0L490.0,171.0"/>`)
}
