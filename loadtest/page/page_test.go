package page_test

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
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
