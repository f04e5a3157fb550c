package rlsconfig

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// of makes a descriptor of keys and values in turn.
func of(words ...string) (entries []Entry) {
	for pair := range slices.Chunk(words, 2) {
		entries = append(entries, Entry{pair[0], pair[1]})
	}
	return entries
}

func parseOne(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse([]File{{"one.yaml", []byte(text)}})
	require.NoError(t, err)
	return c
}

const matching = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: user
    value: ann
    rate_limit: {unit: hour, requests_per_unit: 2}
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 3}
  - key: user
    value: an*
    rate_limit: {unit: hour, requests_per_unit: 4}
  - key: user
    value: a*
    rate_limit: {unit: hour, requests_per_unit: 5}
  - {key: user, value: exempt}
  - key: file
    value: /img/*/thumb*.png
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 6}
    descriptors:
      - key: size
        rate_limit: {unit: hour, requests_per_unit: 7}
      - key: size
        value: s*
        share_threshold: true
        rate_limit: {unit: hour, requests_per_unit: 8}
      - key: size
        value: m*
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: file
    value: "*"
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: file
    rate_limit: {unit: hour, requests_per_unit: 11}
  - key: path
    value: x
    descriptors:
      - key: only
        value: deep
        rate_limit: {unit: hour, requests_per_unit: 12}
  - key: path
    descriptors:
      - key: verb
        rate_limit: {unit: hour, requests_per_unit: 13}
  - key: a_b
    rate_limit: {unit: hour, requests_per_unit: 14}
  - key: a
    value: b
    rate_limit: {unit: hour, requests_per_unit: 15}
  - key: a
    value: "*c"
    rate_limit: {unit: hour, requests_per_unit: 16}
  - key: ключ
    value: 日*語
    rate_limit: {unit: hour, requests_per_unit: 17}
  - key: k*
    rate_limit: {unit: hour, requests_per_unit: 18}
`

func TestMatching(t *testing.T) {
	t.Parallel()
	c := parseOne(t, matching)
	for _, test := range []struct {
		name       string
		descriptor []Entry
		n          uint32 // of the limit that applies; 0: none
		counted    []Entry
	}{
		{"a bare key", of("user", "bob"), 1, nil},
		{"an empty value", of("user", ""), 1, nil},
		{"the exact value first", of("user", "ann"), 2, nil},
		{"the first wildcard in the order of the file", of("user", "anna"), 4, nil},
		{"another wildcard", of("user", "al"), 5, nil},
		{"a wildcard matches nothing too", of("user", "an"), 4, nil},
		{"the wildcard's own text", of("user", "a*"), 5, nil},
		{"case matters", of("user", "ANN"), 1, nil},
		{"a descriptor without limit exempts", of("user", "exempt"), 0, nil},
		{"a key repeats", of("user", "ann", "user", "ann"), 3, nil},
		{"deeper than the configuration", of("user", "bob", "user", "ann"), 0, nil},
		{"no descriptor", nil, 0, nil},
		{"an unknown key", of("nose", "ann"), 0, nil},
		{"several wildcards, shared", of("file", "/img/7/thumb1.png"), 6, of("file", "/img/*/thumb*.png")},
		{"the pattern itself", of("file", "/img/*/thumb*.png"), 6, nil},
		{"shared above a bare key", of("file", "/img/7/thumb1.png", "size", "xl"), 7, of("file", "/img/*/thumb*.png", "size", "xl")},
		{"shared twice", of("file", "/img/7/thumb1.png", "size", "sm"), 8, of("file", "/img/*/thumb*.png", "size", "s*")},
		{"shared above a wildcard", of("file", "/img/7/thumb1.png", "size", "md"), 9, of("file", "/img/*/thumb*.png", "size", "md")},
		{"any value", of("file", "x"), 10, nil},
		{"a lone wildcard before the bare key, even without a value", of("file", ""), 10, nil},
		{"no return to the bare key", of("path", "x", "verb", "get"), 0, nil},
		{"the way that does lead on", of("path", "y", "verb", "get"), 13, nil},
		{"not deep enough", of("path", "y"), 0, nil},
		{"order counts", of("verb", "get", "path", "y"), 0, nil},
		{"a key with an underscore", of("a_b", ""), 14, nil},
		{"its twin of key and value", of("a", "b"), 15, nil},
		{"a wildcard ends at its key", of("a_b", "c"), 14, nil},
		{"any UTF-8", of("ключ", "日本語"), 17, nil},
		{"no wildcard in a key", of("kk", "v"), 0, nil},
		{"an asterisk in a key is one", of("k*", "v"), 18, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(test.descriptor)
			limit, counted := c.Find("shop", test.descriptor)
			assert.Equal(t, before, test.descriptor, "Find must not change what it is given")
			if test.n == 0 {
				assert.Nil(t, limit)
				assert.Nil(t, counted)
				return
			}
			require.NotNil(t, limit)
			assert.Equal(t, test.n, limit.N)
			if test.counted == nil {
				test.counted = test.descriptor
			}
			assert.Equal(t, test.counted, counted)
		})
	}
	limit, _ := c.Find("elsewhere", of("user", "bob"))
	assert.Nil(t, limit)
}

// A wildcard is the regular expression .* between what is quoted.
func TestMatchesLikeARegexp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	word := func(letters string, longest int) string {
		b := make([]byte, random.IntN(longest+1))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	matched := 0
	for range 10_000 {
		pattern, value := word("ab*", 6)+"*"+word("ab*", 3), word("ab", 9)
		oracle := regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `$`)
		want := oracle.MatchString(value)
		require.Equal(t, want, matches(strings.Split(pattern, "*"), value), "%s against %s", pattern, value)
		if want {
			matched++
		}
	}
	assert.Greater(t, matched, 1000)
}

// spec is a descriptor as a file has it, for the oracle.
type spec struct {
	Key       string
	Value     string
	RateLimit *struct {
		Requests uint32 `yaml:"requests_per_unit"`
	} `yaml:"rate_limit"`
	Share       bool `yaml:"share_threshold"`
	Descriptors []spec
}

// slowFind finds what Find finds, by the words of the documentation: list by list, pass by pass.
func slowFind(list []spec, descriptor []Entry) (n uint32, found bool, counted []Entry) {
	for i, entry := range descriptor {
		var best *spec
		pass := func(fits func(s *spec) bool) {
			for j := range list {
				if s := &list[j]; best == nil && s.Key == entry.Key && fits(s) {
					best = s
				}
			}
		}
		pass(func(s *spec) bool { return s.Value != "" && s.Value == entry.Value })
		pass(func(s *spec) bool {
			oracle := regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(s.Value), `\*`, `.*`) + `\z`)
			return strings.Contains(s.Value, "*") && oracle.MatchString(entry.Value)
		})
		pass(func(s *spec) bool { return s.Value == "" })
		if best == nil {
			return 0, false, nil
		}
		if best.Share {
			entry.Value = best.Value
		}
		counted = append(counted, entry)
		if i == len(descriptor)-1 && best.RateLimit != nil {
			return best.RateLimit.Requests, true, counted
		}
		list = best.Descriptors
	}
	return 0, false, nil
}

func TestFindAgainstTheOracle(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	keys, values := []string{"a", "b", "a_b"}, []string{"", "", "x", "xy", "x*", "*y", "*", "x*y", "**"}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	var n uint32
	var generate func(depth int) ([]spec, string)
	generate = func(depth int) (list []spec, text string) {
		seen := make(map[Entry]bool)
		for range random.IntN(7) {
			s := spec{Key: pick(keys), Value: pick(values)}
			if seen[Entry{s.Key, s.Value}] {
				continue
			}
			seen[Entry{s.Key, s.Value}] = true
			var children string
			if depth > 0 {
				s.Descriptors, children = generate(depth - 1)
			}
			s.Share = strings.Contains(s.Value, "*") && random.IntN(2) == 0
			item := fmt.Sprintf("{key: %q, value: %q, share_threshold: %t, descriptors: [%s]", s.Key, s.Value, s.Share, children)
			if random.IntN(3) > 0 {
				n++
				s.RateLimit = &struct {
					Requests uint32 `yaml:"requests_per_unit"`
				}{n}
				item += fmt.Sprintf(", rate_limit: {unit: day, requests_per_unit: %d}", n)
			}
			list, text = append(list, s), text+item+"},"
		}
		return list, text
	}
	hits, shared := 0, 0
	for range 400 {
		list, text := generate(2)
		c := parseOne(t, "domain: d\ndescriptors: ["+text+"]")
		for range 50 {
			var descriptor []Entry
			for range random.IntN(4) {
				descriptor = append(descriptor, Entry{pick(keys), pick([]string{"", "x", "xy", "yx", "xxy", "x*"})})
			}
			n, found, counted := slowFind(list, descriptor)
			limit, got := c.Find("d", descriptor)
			require.Equal(t, found, limit != nil, "%v in %s", descriptor, text)
			if !found {
				continue
			}
			require.Equal(t, n, limit.N, "%v in %s", descriptor, text)
			require.Equal(t, counted, got, "%v in %s", descriptor, text)
			require.Len(t, limit.Path, len(descriptor))
			for i, entry := range limit.Path {
				require.Equal(t, descriptor[i].Key, entry.Key, "%v in %s", descriptor, text)
			}
			hits++
			if !slices.Equal(counted, descriptor) {
				shared++
			}
		}
	}
	assert.Greater(t, hits, 2000)
	assert.Greater(t, shared, 200)
}

func TestFindDoesNotAllocate(t *testing.T) {
	c := parseOne(t, matching)
	for name, test := range map[string]struct {
		descriptor []Entry
		allocs     float64
	}{
		"exact":      {of("user", "ann", "user", "x"), 0},
		"a wildcard": {of("user", "anna"), 0},
		"a bare key": {of("path", "y", "verb", "get"), 0},
		"none":       {of("nose", "y"), 0},
		"a pattern":  {of("file", "/img/*/thumb*.png"), 0},
		"shared":     {of("file", "/img/7/thumb1.png", "size", "sm"), 1},
	} {
		assert.Equal(t, test.allocs, testing.AllocsPerRun(100, func() { c.Find("shop", test.descriptor) }), name)
	}
}

func BenchmarkFind(b *testing.B) {
	c := parseOne(b, matching)
	for name, descriptor := range map[string][]Entry{
		"exact": of("user", "ann", "user", "x"), "wildcard": of("user", "anna"), "shared": of("file", "/img/7/thumb1.png", "size", "sm"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Find("shop", descriptor)
			}
		})
	}
}

// The counter of long entries has a name that answers can show, and that leads to it: so what top shows can be reset,
// explained and overridden.
func TestLongEntriesHaveANameThatLeadsToTheirCounter(t *testing.T) {
	c := parseOne(t, matching)
	long := strings.Repeat("x", 1100)
	for name, entries := range map[string][]Entry{
		"a bare key":     of("path", long, "verb", "get"),
		"a wildcard":     of("user", "ann"+long),
		"any value":      of("file", long),
		"a pattern":      of("a", long+"c"),
		"in UTF-8":       of("ключ", "日"+long+"語"),
		"below an exact": of("user", "ann", "user", long),
		"long together":  of("path", long[:600], "verb", long[:600]),
	} {
		limit, counted := c.Find("shop", entries)
		if limit == nil {
			t.Errorf("%s: no limit", name)
			continue
		}
		counter, id := limit.CounterOf("shop", limit.Window(), counted)
		text := counter.Feature.String()
		assert.Less(t, len(text), 200, name)
		assert.Contains(t, text, "sha256:", name)
		features := events.Features{}
		for kind, value := range counter.Feature.All() {
			features[kind] = value
		}
		if len(features) < len(entries) {
			continue // a key twice has no features
		}
		found, err := c.Event("shop").Counter(features)
		require.NoError(t, err, "%s: %s", name, text)
		assert.Equal(t, id, found.ID(), name)
	}
}
