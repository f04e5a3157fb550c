package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
)

// configsOfEnvoy returns the configuration of envoyproxy/ratelimit and the rules that docs/envoy.md shows.
func configsOfEnvoy(t *testing.T) (config, rules string) {
	t.Helper()
	return blockBehind(t, "envoy.md", "such as this `shop.yaml`", "yaml"), blockBehind(t, "envoy.md", "## By rules", "yaml")
}

func TestTheConfigurationsOfEnvoyAreValid(t *testing.T) {
	text, rulesText := configsOfEnvoy(t)
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "shop.yaml", Text: []byte(text)}})
	require.NoError(t, err)
	assert.Empty(t, config.Warnings)
	rules, err := rulesfile.Parse([]byte(rulesText))
	require.NoError(t, err)
	assert.Empty(t, rules.Warnings)
}

// untilReset depends on when in its second a call comes; jsonSpace is random, by the build.
var (
	untilReset = regexp.MustCompile(`("durationUntilReset":"|"Retry-After","value":"|;t=)[1-9]\d*`)
	jsonSpace  = regexp.MustCompile(`([,:]) `)
)

// The page's commands are run, and their answers are those shown.
func TestTheEnvoyPageIsTrue(t *testing.T) {
	config, rules := configsOfEnvoy(t)
	folder, counterd := t.TempDir(), filepath.Join(buildPrograms(t), "counterd")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(rules), 0o600))
	command := strings.TrimSpace(blockBehind(t, "envoy.md", "such as this `shop.yaml`", "sh"))
	address := serve(t, counterd, command+" -rules rules.yaml\n", folder)
	same := func(output string) string {
		output = strings.ReplaceAll(jsonSpace.ReplaceAllString(output, "$1$2"), folder, "/etc/ratelimit")
		return strings.TrimSpace(untilReset.ReplaceAllString(output, "${1}60"))
	}
	list := readShown(t, "envoy.md")
	require.Len(t, list, 7)
	for _, shown := range list {
		run := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(shown.command, readmeAddress, address))
		run.Dir = folder
		run.Env = append(os.Environ(), "PATH="+filepath.Dir(counterd)+":"+os.Getenv("PATH"))
		output, err := run.CombinedOutput()
		if err != nil {
			assert.Contains(t, shown.output, "counterd: ", "it is shown to fail: %s", output)
		}
		assert.Equal(t, same(shown.output), same(string(output)), shown.command)
	}
}
