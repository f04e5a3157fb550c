package rls_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/rls/rlsimport"
)

// Where no comment says otherwise, the imported rules decide as the configuration does.
func TestImportedRulesDecideAsTheConfiguration(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	asked, denied := 0, 0
	for range 50 {
		config := randomConfig(random)
		parsed, err := rlsconfig.Parse([]rlsconfig.File{{Name: "limits.yaml", Text: []byte(config)}})
		require.NoError(t, err, config)
		rules, _, err := rlsimport.Rules(parsed)
		require.NoError(t, err, config)
		theirs, ours := newKit(t, setting{config: config}), newKit(t, setting{rules: string(rules)})
		var nodes []*rlsconfig.Limit
		for limit := range parsed.Descriptors() {
			nodes = append(nodes, limit)
		}
		noted := notedLines(string(rules))
		for range 60 {
			in := &request{Domain: "d"}
			for range 1 + random.IntN(2) {
				entries := matching(random, nodes[random.IntN(len(nodes))].Path)
				d := of(entries...)
				same := func(other *descriptor) bool { return d.String() == other.String() }
				if saysOtherwise(nodes, noted, entries) || slices.ContainsFunc(in.Descriptors, same) {
					continue
				}
				in.Descriptors = append(in.Descriptors, d)
			}
			if len(in.Descriptors) == 0 {
				continue
			}
			want, err := theirs.ShouldRateLimit(t.Context(), in)
			require.NoError(t, err)
			got, err := ours.ShouldRateLimit(t.Context(), in)
			require.NoError(t, err, "%v\n%s\n%s", in, config, rules)
			require.Equal(t, codesOf(want), codesOf(got), "%v\n%s\n%s", in, config, rules)
			asked++
			if want.OverallCode == over {
				denied++
			}
			if random.IntN(4) == 0 {
				step := time.Duration(random.IntN(40)) * time.Second
				theirs.clock.Advance(step)
				ours.clock.Advance(step)
			}
		}
	}
	t.Log(asked, denied)
	assert.Greater(t, asked, 700)
	assert.Greater(t, denied, 130)
}

func codesOf(r *response) (codes []rlsv3.RateLimitResponse_Code) {
	codes = append(codes, r.OverallCode)
	for _, s := range r.Statuses {
		codes = append(codes, s.Code)
	}
	return codes
}

// randomConfig returns a configuration of the domain d.
func randomConfig(random *rand.Rand) string {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	var b strings.Builder
	var write func(indent string, depth int)
	write = func(indent string, depth int) {
		fmt.Fprintf(&b, "%sdescriptors:\n", indent)
		given := map[string]bool{}
		for range 1 + random.IntN(5-depth) {
			key, value := pick("a", "a", "b", "c"), pick("", "", "x", "y", "x*")
			if given[key+"="+value] {
				continue
			}
			given[key+"="+value] = true
			fmt.Fprintf(&b, "%s- key: %s\n%s  value: '%s'\n", indent, key, indent, value)
			if random.IntN(5) > 0 {
				rate := fmt.Sprintf("unit: %s, requests_per_unit: %d", pick("minute", "hour"), random.IntN(4))
				if random.IntN(8) == 0 {
					rate = "unlimited: true"
				}
				fmt.Fprintf(&b, "%s  rate_limit: {%s, %s}\n", indent, rate,
					pick("name: r", "name: r", "name: s", "name: '\"'", "name: s, replaces: [{name: r}]"))
			}
			if random.IntN(6) == 0 {
				fmt.Fprintf(&b, "%s  %s: true\n", indent, pick("shadow_mode", "shadow_mode", "quota_mode"))
			}
			if depth < 3 && random.IntN(3) == 0 {
				write(indent+"  ", depth+1)
			}
		}
	}
	b.WriteString("domain: d\n")
	write("", 1)
	return b.String()
}

// matching returns keys and values that match a path, or others that go before it.
func matching(random *rand.Rand, path []rlsconfig.Entry) (pairs []string) {
	values := []string{"x", "y", "xy", "z"}
	for _, entry := range path {
		value := strings.ReplaceAll(entry.Value, "*", values[random.IntN(4)])
		if value == "" {
			value = values[random.IntN(4)]
		}
		pairs = append(pairs, entry.Key, value)
	}
	return pairs
}

var note = regexp.MustCompile(`(?m)^ *# limits\.yaml:(\d+): `)

func notedLines(rules string) map[int]bool {
	lines := map[int]bool{}
	for _, match := range note.FindAllStringSubmatch(rules, -1) {
		line, _ := strconv.Atoi(match[1])
		lines[line] = true
	}
	return lines
}

// saysOtherwise reports whether a comment is about a descriptor: on what it matches, or that it matches nothing.
func saysOtherwise(nodes []*rlsconfig.Limit, noted map[int]bool, pairs []string) bool {
	var path []rlsconfig.Entry
	for pair := range slices.Chunk(pairs, 2) {
		exact := rlsconfig.Entry{Key: pair[0], Value: pair[1]}
		at := -1
		for _, entry := range []rlsconfig.Entry{exact, {Key: pair[0], Value: "x*"}, {Key: pair[0]}} {
			if entry.Value == "x*" && !strings.HasPrefix(pair[1], "x") {
				continue
			}
			at = slices.IndexFunc(nodes, func(l *rlsconfig.Limit) bool {
				return slices.Equal(l.Path, append(slices.Clone(path), entry))
			})
			if at >= 0 {
				break
			}
		}
		if at < 0 || noted[nodes[at].Line] {
			return true
		}
		path = nodes[at].Path
	}
	return false
}
