package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// console matches the blocks of a page that show commands with their output.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// The commands of the page are run one after the other, and answer as they are shown to.
// The server is started where the first of them asks one.
func TestTheCommandsOfOperations(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, operations))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), read(t, "rules/rules.yaml"), 0o600))
	var p *process
	commands := 0
	for _, block := range console.FindAllStringSubmatch(string(text), -1) {
		for shown := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			command, output, _ := strings.Cut(strings.TrimSuffix(shown, "\n"), "\n")
			if p == nil && strings.Contains(command, "http://") {
				servers := strings.Join(memcachedtest.StartMany(t, 3), ",")
				server := exec.Command(counterd(t), "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-tokens", "tokens",
					"-key-secret", "key-secret", "-rules", "rules.yaml", "-replicas", "2", "-memcached", servers)
				server.Dir = dir
				p = start(t, server)
			}
			line := command
			if p != nil {
				line = strings.NewReplacer("127.0.0.1:8080", p.api, "127.0.0.1:9090", p.admin).Replace(command)
			}
			run := exec.Command("bash", "-c", line)
			run.Dir = dir
			run.Env = append(os.Environ(), "PATH="+filepath.Dir(counterd(t))+":"+os.Getenv("PATH"))
			said, err := run.CombinedOutput()
			if err != nil {
				assert.Contains(t, output, "counterd: ", "%s: %s", command, said) // it is shown to fail
			}
			assert.Equal(t, output, strings.TrimSpace(string(said)), command)
			commands++
		}
	}
	assert.Greater(t, commands, 10)
	p.end(t)
}

// named matches what is named of deploy.
var named = regexp.MustCompile(`\bdeploy/[a-z.]*[a-z](?:/[A-Za-z.]*[A-Za-z])?`)

func TestOperationsNamesWhatThereIs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, operations))
	require.NoError(t, err)
	for _, path := range named.FindAllString(string(text), -1) {
		if strings.HasPrefix(path+"/", "deploy/secrets/") {
			continue // of those who run it
		}
		_, err := os.Stat(filepath.Join(project, path))
		assert.NoError(t, err, path)
	}
	known := readFlags(t)
	for _, match := range regexp.MustCompile("`-([a-z][a-z-]+)[ `]").FindAllSubmatch(text, -1) {
		assert.True(t, known[string(match[1])], "counterd knows no -%s", match[1])
	}
}
