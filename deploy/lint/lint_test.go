// Package lint_test checks the files of deploy against the product, and against the tools
// and schemas that read them. It is a module of its own: the product does not need its
// dependencies.
package lint_test

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	project = "../.."
	deploy  = ".."
)

// image is where the steps of the Dockerfile have left the root filesystem; TestMain has
// it removed.
var image string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "counterd-lint")
	if err != nil {
		panic(err)
	}
	image = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// read returns a file of deploy.
func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, name))
	require.NoError(t, err)
	return text
}

// tool returns the path of a program of the system's packages. Where it is missing the test
// fails.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join(project, "bin", name))
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "this test needs %s: make deps", name)
	return path
}

// flags are those of counterd -h, and their variables.
type flags map[string]bool

var (
	flagLine     = regexp.MustCompile(`(?m)^  -([a-z][a-z-]*) `)
	variableLine = regexp.MustCompile(`(?m)^ +(COUNTERD_[A-Z_]+) *$`)
)

func readFlags(t *testing.T) flags {
	t.Helper()
	help, err := exec.Command(counterd(t), "-h").Output()
	require.NoError(t, err)
	list := flags{}
	for _, match := range append(flagLine.FindAllSubmatch(help, -1), variableLine.FindAllSubmatch(help, -1)...) {
		list[string(match[1])] = true
	}
	require.Greater(t, len(list), 20, "%s", help)
	return list
}

// settings are what a deployment tells counterd: each variable, or flag by its variable,
// and its value.
type settings map[string]string

func (s settings) addArgs(t *testing.T, args []string) {
	t.Helper()
	for _, arg := range args {
		name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		require.True(t, found, "%s: a flag and its value in one", arg)
		s["COUNTERD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = value
	}
}

// port returns the port of an address that the settings name.
func (s settings) port(name string) string { return s[name][strings.LastIndex(s[name], ":")+1:] }

// check finds variables that counterd does not know.
func (s settings) check(t *testing.T, known flags) {
	t.Helper()
	for name := range s {
		if strings.HasPrefix(name, "COUNTERD_") {
			assert.True(t, known[name], "counterd knows no %s", name)
		}
	}
}

// elsewhere returns the settings as this machine can have them: of the files those given,
// on free ports, with as many servers on the loopback interface.
func (s settings) elsewhere(t *testing.T, servers []string, files map[string]string) []string {
	t.Helper()
	env := []string{}
	for name, value := range s {
		switch name {
		case "COUNTERD_LISTEN", "COUNTERD_ADMIN", "COUNTERD_RLS":
			value = "127.0.0.1:0"
		case "COUNTERD_MEMCACHED":
			require.Len(t, strings.Split(value, ","), len(servers))
			value = strings.Join(servers, ",")
		case "COUNTERD_DRAIN_DELAY":
			value = "1ms"
		case "COUNTERD_LOG":
			value = "text"
		}
		if strings.HasPrefix(value, "/") {
			require.Contains(t, files, filepath.Base(value), "%s=%s", name, value)
			value = files[filepath.Base(value)]
		}
		env = append(env, name+"="+value)
	}
	return env
}

// process is a counterd that was started, and its log.
type process struct {
	*exec.Cmd
	log   bytes.Buffer
	api   string // the address that is said in the log
	admin string
	read  chan struct{} // closed when the log is read to its end
}

// end asks the process to end and waits until it has, well.
func (p *process) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	<-p.read
	require.NoError(t, p.Wait(), "%s", p.log.String())
}

var (
	servingAt  = regexp.MustCompile(`msg=serving address=(\S+)`)
	operatorAt = regexp.MustCompile(`msg="serving operators" address=(\S+)`)
)

// start runs a counterd until the test ends, or is waited for. It returns when it serves.
func start(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: command, read: make(chan struct{})}
	log, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	serving := make(chan bool, 1)
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			p.log.Write(append(lines.Bytes(), '\n'))
			if match := operatorAt.FindStringSubmatch(lines.Text()); match != nil {
				p.admin = match[1]
			}
			if match := servingAt.FindStringSubmatch(lines.Text()); match != nil {
				p.api = match[1]
				serving <- true
			}
		}
		close(serving)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.read
		p.Wait()
	})
	select {
	case ok := <-serving:
		if !ok {
			<-p.read
			require.Fail(t, "counterd does not serve", "%s", p.log.String())
		}
	case <-time.After(30 * time.Second):
		require.Fail(t, "counterd does not say that it serves")
	}
	return p
}

// duration returns a constant of counterd: how long the end of a process may take.
func duration(t *testing.T, name string) time.Duration {
	t.Helper()
	var files []string
	for _, folder := range []string{"internal/server/", "internal/backend/"} {
		found, err := filepath.Glob(project + "/" + folder + "*.go")
		require.NoError(t, err)
		files = append(files, found...)
	}
	constant := regexp.MustCompile(`(?m)^(?:const )?\s*` + name + ` *= (?:(\d+) \* )?time\.Second`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if match := constant.FindSubmatch(text); match != nil {
			d, err := time.ParseDuration(cmp.Or(string(match[1]), "1") + "s")
			require.NoError(t, err)
			return d
		}
	}
	require.Fail(t, "no constant", name)
	return 0
}

// longestEnd is how long a process takes to end, at most, beside its drain delay.
func longestEnd(t *testing.T) time.Duration {
	t.Helper()
	return duration(t, "drainTimeout") + duration(t, "adminDrain") + duration(t, "replayTimeout") + duration(t, "exportTimeout")
}
