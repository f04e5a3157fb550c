package rulesfile

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

const schemaFile = "../../docs/rules.schema.json"

// part returns what is at a path of the schema.
func part(t *testing.T, path ...string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	var at map[string]any
	require.NoError(t, json.Unmarshal(data, &at))
	for _, step := range path {
		next, ok := at[step].(map[string]any)
		require.True(t, ok, "the schema has no %s", strings.Join(path, "/"))
		at = next
	}
	return at
}

// The keys that the parser says it knows are those of the schema.
func TestTheSchemaHasTheKeysOfTheParser(t *testing.T) {
	for file, path := range map[string][]string{
		"zzzzzz: 1":                            {"properties"},
		"events: {e: {zzzzzz: 1}}":             {"$defs", "event", "properties"},
		"events: {e: {limits: [{zzzzzz: 1}]}}": {"$defs", "rule", "properties"},
	} {
		_, err := Parse([]byte(file))
		require.Error(t, err)
		_, known, found := strings.Cut(strings.Split(err.Error(), "\n")[0], "known here are ")
		if !found {
			_, known, found = strings.Cut(err.Error(), "known here are ")
			known, _, _ = strings.Cut(known, "\n")
		}
		require.True(t, found, "%s", err)
		assert.ElementsMatch(t, strings.Split(known, ", "), slices.Collect(maps.Keys(part(t, path...))), file)
	}
}

func TestTheSchemaHasTheChoicesOfTheParser(t *testing.T) {
	for name, choices := range map[string][]string{
		"count": countNames[:], "precision": precisionNames[:], "on_error": onErrorNames[:],
		"algorithm": append(events.AlgorithmNames(), gcra),
	} {
		field := part(t, "$defs", "rule", "properties", name)
		assert.Equal(t, anys(choices), field["enum"], name)
		assert.Equal(t, choices[0], field["default"], name)
	}
	assert.Equal(t, anys(headerNames[:]), part(t, "$defs", "header")["enum"])
	assert.Equal(t, float64(events.DefaultIPv6Prefix), part(t, "$defs", "rule", "properties", "ipv6_prefix")["default"])
	assert.Equal(t, events.Throttle{}.String(), part(t, "$defs", "rule", "properties", "throttle")["default"])
	for _, throttle := range part(t, "$defs", "rule", "properties", "throttle")["examples"].([]any) {
		_, reason := parseThrottle(throttle.(string))
		assert.Empty(t, reason, throttle)
	}
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, word := range words {
		all[i] = word
	}
	return all
}
