package lint_test

import (
	"bytes"
	"debug/elf"
	"go/version"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// built is what the Dockerfile makes, without a container engine.
type built struct {
	root       string            // the folder that is the image's root
	env        map[string]string // what it sets
	user       string
	entrypoint []string
	health     []string
	ports      []string
}

// counterd returns the path of the binary of the image.
func counterd(t *testing.T) string {
	t.Helper()
	return filepath.Join(buildImage(t).root, "counterd")
}

var building = struct {
	sync.Mutex
	done *built
}{}

// buildImage runs the Dockerfile's steps, once: each stage in a folder of its own. Of base
// images it takes what is on this machine: Go, and the files of authorities.
func buildImage(t *testing.T) *built {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if building.done != nil {
		return building.done
	}
	stages := parseDockerfile(t)
	require.Len(t, stages, 2)
	folders := map[string]string{}
	b := &built{env: map[string]string{}}
	for _, stage := range stages {
		s := step{t: t, root: filepath.Join(image, "stage-"+stage.Name), stages: folders, built: b, base: stage.BaseName, env: map[string]string{}}
		require.NoError(t, os.Mkdir(s.root, 0o755))
		folders[stage.Name], b.root = s.root, s.root
		b.env = s.env
		for _, command := range stage.Commands {
			s.run(command)
		}
	}
	building.done = b
	return b
}

func parseDockerfile(t *testing.T) []instructions.Stage {
	t.Helper()
	parsed, err := parser.Parse(bytes.NewReader(read(t, "docker/Dockerfile")))
	require.NoError(t, err)
	assert.Empty(t, parsed.Warnings)
	stages, meta, err := instructions.Parse(parsed.AST, nil)
	require.NoError(t, err)
	require.Empty(t, meta, "dependabot updates no base image whose version is an ARG")
	return stages
}

// step is where a stage is.
type step struct {
	t      *testing.T
	root   string
	dir    string // within the root
	base   string
	env    map[string]string
	stages map[string]string
	built  *built
}

func (s *step) run(command instructions.Command) {
	s.t.Helper()
	switch c := command.(type) {
	case *instructions.WorkdirCommand:
		s.dir = c.Path
		require.NoError(s.t, os.MkdirAll(filepath.Join(s.root, s.dir), 0o755))
	case *instructions.EnvCommand:
		for _, pair := range c.Env {
			s.env[pair.Key] = pair.Value
		}
	case *instructions.CopyCommand:
		s.copy(c)
	case *instructions.RunCommand:
		s.shell(strings.Join(c.CmdLine, " "))
	case *instructions.UserCommand:
		s.built.user = c.User
	case *instructions.ExposeCommand:
		s.built.ports = c.Ports
	case *instructions.EntrypointCommand:
		assert.False(s.t, c.PrependShell, "there is no shell")
		s.built.entrypoint = c.CmdLine
	case *instructions.HealthCheckCommand:
		require.Equal(s.t, "CMD", c.Health.Test[0], "there is no shell")
		s.built.health = c.Health.Test[1:]
	case *instructions.LabelCommand, *instructions.ArgCommand:
	default:
		require.Fail(s.t, "the test does not know what this step does", "%s", c)
	}
}

// absolute matches the paths within a stage that a command line names.
var absolute = regexp.MustCompile(`(^|[\s=])/(src|image)\b`)

// shell runs a line, with the folders of the stage in the place of those it names.
func (s *step) shell(line string) {
	s.t.Helper()
	require.NotEqual(s.t, "scratch", s.base, "there is no shell")
	command := exec.Command("/bin/sh", "-c", absolute.ReplaceAllString(line, "${1}"+s.root+"/${2}"))
	command.Dir = filepath.Join(s.root, s.dir)
	command.Env = os.Environ()
	for name, value := range s.env {
		command.Env = append(command.Env, name+"="+value)
	}
	output, err := command.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", line, output)
}

func (s *step) copy(c *instructions.CopyCommand) {
	s.t.Helper()
	target := c.DestPath
	if !path.IsAbs(target) {
		target = path.Join(s.dir, target)
	}
	for _, source := range c.SourcePaths {
		if c.From == "" {
			copyContext(s.t, source, filepath.Join(s.root, target))
			continue
		}
		from, known := s.stages[c.From]
		require.True(s.t, known, "COPY from a stage that is not there: %s", c.From)
		require.NoError(s.t, os.CopyFS(filepath.Join(s.root, target), os.DirFS(filepath.Join(from, source))))
	}
}

// copyContext copies a file or folder of the project, without what .dockerignore names, and
// without .git: the test needs no revision in the binary.
func copyContext(t *testing.T, source, target string) {
	t.Helper()
	file, err := os.Open(project + "/.dockerignore")
	require.NoError(t, err)
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	require.NoError(t, err)
	ignored, err := patternmatcher.New(append(patterns, ".git"))
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(filepath.Join(project, source), func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		relative, err := filepath.Rel(project, name)
		require.NoError(t, err)
		out, err := ignored.MatchesOrParentMatches(relative)
		require.NoError(t, err)
		switch {
		case relative == ".":
			return nil
		case out && entry.IsDir():
			return fs.SkipDir
		case out:
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(target, relative), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return os.WriteFile(filepath.Join(target, relative), text, 0o644)
	}))
}

// The image holds one static binary, its licenses and the authorities, and runs it without privileges.
func TestTheImageHoldsOneStaticBinary(t *testing.T) {
	b := buildImage(t)
	files := []string{}
	require.NoError(t, filepath.WalkDir(b.root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(name, b.root))
		}
		return err
	}))
	assert.ElementsMatch(t, []string{
		"/counterd", "/etc/ssl/certs/ca-certificates.crt",
		"/usr/share/doc/counterd/LICENSE", "/usr/share/doc/counterd/NOTICE", "/usr/share/doc/counterd/THIRD_PARTY_LICENSES",
	}, files)
	assert.Equal(t, []string{"/counterd"}, b.entrypoint)
	assert.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, b.user, "Kubernetes has to see that it is not root")

	binary, err := elf.Open(counterd(t))
	require.NoError(t, err)
	defer binary.Close()
	for _, program := range binary.Progs {
		assert.NotEqual(t, elf.PT_INTERP, program.Type, "it wants a loader")
		assert.NotEqual(t, elf.PT_DYNAMIC, program.Type, "it wants libraries")
	}
}

// The Dockerfile builds with a Go of go.mod's minor version, as the workflows do, and what it exposes is what it listens on.
func TestTheDockerfileAgreesWithTheProject(t *testing.T) {
	b := buildImage(t)
	used, found := strings.CutPrefix(parseDockerfile(t)[0].BaseName, "golang:")
	require.True(t, found)
	module, err := os.ReadFile(project + "/go.mod")
	require.NoError(t, err)
	asked := regexp.MustCompile(`(?m)^go (1\.\d+\.0)$`).FindSubmatch(module)
	require.NotNil(t, asked, "go.mod asks for no patch of Go: an older one would be downloaded anew")
	assert.NotContains(t, string(module), "\ntoolchain ")
	assert.Equal(t, version.Lang("go"+string(asked[1])), version.Lang("go"+used))
	assert.GreaterOrEqual(t, version.Compare("go"+used, "go"+string(asked[1])), 0)
	workflows, err := filepath.Glob(project + "/.github/workflows/*.yml")
	require.NoError(t, err)
	for _, name := range workflows {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`go-version: .*`).FindAllString(string(text), -1) {
			assert.Equal(t, "go-version: "+used, line, "%s: dependabot updates the Dockerfile alone", name)
		}
	}
	listen := settings(b.env)
	listen.check(t, readFlags(t))
	assert.ElementsMatch(t, b.ports, []string{listen.port("COUNTERD_LISTEN"), listen.port("COUNTERD_ADMIN")})
	require.NotEmpty(t, b.health)
	assert.Contains(t, strings.Join(b.health, " "), ":"+listen.port("COUNTERD_ADMIN")+"/healthz")

	ignored, err := os.ReadFile(project + "/.dockerignore")
	require.NoError(t, err)
	tracked := exec.Command("git", "ls-files", "--cached")
	tracked.Dir = project
	names, err := tracked.Output()
	if err != nil {
		return // not a clone: nothing is tracked
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(ignored))
	require.NoError(t, err)
	matcher, err := patternmatcher.New(patterns)
	require.NoError(t, err)
	for name := range strings.Lines(string(names)) {
		out, err := matcher.MatchesOrParentMatches(strings.TrimSpace(name))
		require.NoError(t, err)
		assert.False(t, out, "%s is tracked and not in the image's context: the binary would call itself modified", name)
	}
}

const tokensForTests = "caller decide,read 0123456789abcdef0123\nprometheus operate fedcba98765432100123\n"

// The image runs: in its root filesystem and nothing else, as its user. Without a token it
// says what is missing.
func TestTheImageRuns(t *testing.T) {
	b := buildImage(t)
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(b.root)))
	require.NoError(t, os.Chmod(root, 0o755))
	require.NoError(t, os.WriteFile(root+"/tokens", []byte(tokensForTests), 0o644))
	within := func(env map[string]string, args ...string) *exec.Cmd {
		command := exec.Command(args[0], args[1:]...)
		command.Env = []string{}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			command.Env = append(command.Env, name+"="+env[name])
		}
		if os.Getuid() == 0 {
			command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			command.Dir = "/"
		} else { // only root can change it
			command.Path, command.Err = root+args[0], nil
		}
		return command
	}
	said, err := within(b.env, b.entrypoint...).CombinedOutput()
	require.Error(t, err, "%s", said)
	assert.Contains(t, string(said), "-tokens", "it says what is missing")

	env := maps.Clone(b.env)
	env["COUNTERD_LISTEN"], env["COUNTERD_ADMIN"] = "127.0.0.1:0", "127.0.0.1:0"
	env["COUNTERD_TOKENS"] = "/tokens"
	if os.Getuid() != 0 {
		env["COUNTERD_TOKENS"] = root + "/tokens"
	}
	p := start(t, within(env, b.entrypoint...))
	_, port, _ := strings.Cut(p.admin, ":")
	health := slices.Clone(b.health)
	for i := range health {
		health[i] = strings.Replace(health[i], ":9090/", ":"+port+"/", 1)
	}
	said, err = within(b.env, health...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	said, err = within(nil, "/counterd", "probe", "http://"+p.api+"/readyz").CombinedOutput()
	require.NoError(t, err, "%s", said)
	p.end(t)
	said, err = within(b.env, health...).CombinedOutput()
	require.Error(t, err, "nobody is there any more: %s", said)
}
